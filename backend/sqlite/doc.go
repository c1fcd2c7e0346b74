// Package sqlite is a [backend.Cache] in one SQLite file, in pure Go. Any number
// of processes of one machine may use the file at the same time.
//
//	cache, err := sqlite.Open("vectors.db", nil)
//
// # The file
//
// The file is made with mode 0600, and so are the files NAME-wal and NAME-shm
// that SQLite keeps beside it while it is in use. The last handle that closes
// moves what is in NAME-wal into the file and removes both. To copy the file
// while it is open, use SQLite's own tools ("sqlite3 NAME '.backup COPY'"); a
// plain copy may lack what is still in NAME-wal.
//
// Do not put the file on a network file system: its locks are not reliable
// there, and SQLite's write-ahead log needs memory that all users share. On most
// Unix systems a program also must not open the file itself, by os.Open for
// instance, while it holds a Cache on it: closing such a file drops the locks
// of the whole process.
//
// One table holds everything, under an application_id and a user_version that
// mark the file as this package's and tell its layout:
//
//	CREATE TABLE entries(id INTEGER PRIMARY KEY, key BLOB NOT NULL, value);
//	CREATE UNIQUE INDEX entries_key ON entries(key);
//
// Another program may put anything there, SQLite's columns have no fixed type: a
// value that is no BLOB is visited as nil (rule G5). It must not add tables,
// views, triggers or indexes: Open refuses the file then, as SQLite would run what
// is in them inside the calls of this package.
//
// On a damaged page GetMany leaves out the entries it can't read, visits the
// others, and returns [backend.ErrCorrupt] at the end.
//
// # What survives
//
// A batch is one transaction. By default (Options.Synchronous is [Full]) it is
// synced to the disk before it is acknowledged and survives a power failure.
// With [Normal] it survives the end of the process, and a power failure may take
// the last acknowledged batches, each as a whole.
//
// # Waiting
//
// A file has one writer at a time. SetMany waits for the other calls of its
// handle until its context ends, and for a lock that another handle or process
// holds until its context ends or Options.BusyTimeout is over, whichever comes
// first; in the latter case it returns [backend.ErrUnavailable]. Readers wait for
// nobody, except while another process creates or recovers the file.
//
// Readers that overlap without a pause keep SQLite from emptying NAME-wal. When it
// is longer than 64 MiB after a batch, SetMany holds back the next batch of its
// handle until no reader needs what is in it, for two seconds at most, and
// empties it; if that fails it tries again 64 MiB later.
//
// A context is looked at while waiting and between entries; the one entry, or
// the commit, that is being written is not interrupted.
//
// # Memory-mapped reading
//
// GetMany reads through a memory map, which saves a copy and a system call for
// each page. The price: a disk that fails under the map, or a foreign program
// that truncates the file, is no error but a SIGBUS that ends the program.
// Options.DisableMmap reads the usual way.
//
// # Space
//
// The room of removed entries is filled again by later ones. Cache.Compact gives it
// back to the system, a step at a time, while the file is in use. Until then, and
// in NAME-wal, what was removed can still be found on the disk.
//
// # Handles that are dropped
//
// The package starts no goroutine. A Cache that is dropped without Close loses
// nothing that was acknowledged, but its files stay open until the process ends.
package sqlite
