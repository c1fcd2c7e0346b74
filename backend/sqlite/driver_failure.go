package sqlite

import (
	"context"
	"errors"

	"zombiezen.com/go/sqlite"
)

// failure is what went wrong, as far as the package treats it differently.
type failure uint8

const (
	otherFailure   failure = iota
	busyFailure            // somebody else holds a lock
	fullFailure            // no space for more
	corruptFailure         // no database, or a damaged one
	readOnlyFailure
	movedFailure   // the file is no longer where it was
	tooBigFailure  // over SQLite's own limit
	brokenFailure  // the file can't be opened, read or written
	sharedNotFound // the files beside it can't be made
)

func failureOf(err error) failure {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return otherFailure
	}
	code := sqlite.ErrCode(err)
	switch code {
	case sqlite.ResultReadOnlyDBMoved:
		return movedFailure
	case sqlite.ResultReadOnlyCantInit, sqlite.ResultReadOnlyCantLock, sqlite.ResultReadOnlyDirectory:
		return sharedNotFound
	}
	switch code.ToPrimary() {
	case sqlite.ResultBusy, sqlite.ResultLocked:
		return busyFailure
	case sqlite.ResultFull:
		return fullFailure
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return corruptFailure
	case sqlite.ResultReadOnly, sqlite.ResultPerm:
		return readOnlyFailure
	case sqlite.ResultTooBig:
		return tooBigFailure
	case sqlite.ResultCantOpen:
		return sharedNotFound
	case sqlite.ResultIOErr, sqlite.ResultProtocol:
		return brokenFailure
	}
	return otherFailure
}
