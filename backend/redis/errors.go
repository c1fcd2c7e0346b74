package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	driver "github.com/redis/go-redis/v9"

	"github.com/embedonce/embedonce/backend"
)

// errorCode is the first word of an error that the server answered. The words
// behind it may quote keys, values and passwords, and are never shown.
type errorCode string

// codeOf returns the code of an error's line, "ERR" if it has none.
func codeOf(line []byte) errorCode {
	word := line
	for i, b := range line {
		if b == ' ' {
			word = line[:i]
			break
		}
	}
	if len(word) == 0 || len(word) > longestCode {
		return "ERR"
	}
	for _, b := range word {
		if b < 'A' || b > 'Z' {
			return "ERR"
		}
	}
	return errorCode(word)
}

// meaning is what an error code of the server means here.
type meaning struct {
	is    error // the sentinel, nil if none fits
	again bool  // asking again soon may help, and nothing was done
	text  string
}

var meanings = map[errorCode]meaning{
	"LOADING":     {backend.ErrUnavailable, true, "the server is loading its data"},
	"MASTERDOWN":  {backend.ErrUnavailable, true, "the replica has lost its master"},
	"CLUSTERDOWN": {backend.ErrUnavailable, true, "the cluster is down"},
	"TRYAGAIN":    {backend.ErrUnavailable, true, "the keys are being moved to another node"},
	"MOVED":       {backend.ErrUnavailable, true, "the keys are on another node; is this a cluster, and the client none for clusters?"},
	"ASK":         {backend.ErrUnavailable, true, "the keys are being moved to another node"},
	"READONLY":    {backend.ErrReadOnly, true, "the server is a replica, which takes no writes"},
	"BUSY":        {backend.ErrUnavailable, false, "the server is busy with a script"},
	"NOREPLICAS":  {backend.ErrUnavailable, false, "the server has fewer replicas than it asks for before it writes"},
	"OOM":         {backend.ErrUnavailable, false, "the server has no memory left (maxmemory)"},
	"MISCONF":     {backend.ErrUnavailable, false, "the server can't write to its disk and takes no writes"},
	"NOAUTH":      {nil, false, "the server asks for a password"},
	"WRONGPASS":   {nil, false, "user or password is wrong, or the user is disabled"},
	"NOPERM":      {nil, false, "the user lacks a permission for one of the commands or keys; docs/backends.md lists them"},
}

// serverError is an error that the server answered.
type serverError struct{ code errorCode }

func (e serverError) Error() string {
	if m, known := meanings[e.code]; known {
		return fmt.Sprintf("%s (%s)", m.text, e.code)
	}
	return fmt.Sprintf("the server refused a command (%s)", e.code)
}

// Is finds the sentinel that fits.
func (e serverError) Is(target error) bool {
	is := meanings[e.code].is
	return is != nil && target == is
}

// RedisError makes it an error as those of the driver.
func (e serverError) RedisError() {}

// hidden keeps an error of the driver whose text may quote what was sent or
// answered.
type hidden struct {
	text string
	err  error
}

func (e *hidden) Error() string { return e.text }
func (e *hidden) Unwrap() error { return e.err }

// explain gives err, which is not nil, the sentinel that fits, and hides texts that
// may hold keys, values or passwords.
func explain(err error) error {
	var ours serverError
	var answered driver.Error
	var network *net.OpError
	var unknown x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &ours):
		return ours
	case errors.Is(err, context.DeadlineExceeded): // of the caller's context, see judge
		return context.DeadlineExceeded
	case errors.As(err, &answered):
		code := codeOf([]byte(answered.Error()))
		if strings.HasPrefix(answered.Error(), "ERR max number of clients") {
			return fmt.Errorf("%w: the server has too many clients", backend.ErrUnavailable)
		}
		return &hidden{serverError{code}.Error(), errors.Join(serverError{code}, err)}
	case errors.As(err, &certificate), errors.As(err, &unknown):
		return fmt.Errorf("%w: the server's certificate: %w", backend.ErrUnavailable, err)
	case errors.Is(err, driver.ErrClosed):
		return fmt.Errorf("%w: the client was closed", backend.ErrUnavailable)
	case errors.Is(err, driver.ErrPoolTimeout), errors.Is(err, driver.ErrPoolExhausted):
		return fmt.Errorf("%w: no connection of the client became free", backend.ErrUnavailable)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the server closed the connection", backend.ErrUnavailable)
	case errors.As(err, &network):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, network)
	case errors.Is(err, backend.ErrUnavailable), errors.Is(err, errOtherRun):
		return err
	}
	return &hidden{errDriver.Error(), errors.Join(errDriver, err)}
}

// refusedByReplica gives errReplica, which the driver must not know as an answer, its
// code.
func refusedByReplica(err error) error {
	if errors.Is(err, errReplica) {
		return serverError{"READONLY"}
	}
	return err
}

// mayHelpAgain says whether another try may go better.
func mayHelpAgain(err error) bool {
	var ours serverError
	var answered driver.Error
	switch {
	case errors.As(err, &ours):
		return meanings[ours.code].again
	case errors.As(err, &answered):
		return meanings[codeOf([]byte(answered.Error()))].again
	}
	return !errors.Is(err, errNoAnswer) && !errors.Is(err, driver.ErrClosed) && !errors.Is(err, errOtherRun)
}

// neverSent says whether err is from before anything of a write was sent.
func neverSent(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial" ||
		errors.Is(err, driver.ErrPoolTimeout) || errors.Is(err, driver.ErrPoolExhausted)
}

// fail wraps err, which is not nil, with what was being done.
func fail(doing string, err error) error {
	return fmt.Errorf("redis: %s: %w", doing, explain(err))
}

// ended returns an error that wraps ctx.Err().
func ended(ctx context.Context, doing string) error {
	return fmt.Errorf("redis: %s: %w", doing, ctx.Err())
}

// reason is ctx.Err() if the context of the call has ended, else err explained.
func reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return explain(err)
}

// failed is fail for a call with a context: if that has ended, its error counts.
func failed(ctx context.Context, doing string, err error) error {
	return fmt.Errorf("redis: %s: %w", doing, reason(ctx, err))
}

var (
	errClosed   = fmt.Errorf("redis: cache is %w", backend.ErrClosed)
	errDriver   = fmt.Errorf("%w: the driver failed", backend.ErrUnavailable)
	errNoAnswer = fmt.Errorf("%w: no answer within Options.Timeout", backend.ErrUnavailable)
)
