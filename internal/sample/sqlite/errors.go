package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// Errors that callers branch on.
var (
	ErrNotFound   = errors.New("no such row")
	ErrClosed     = errors.New("the conversation is closed")
	ErrOwnMessage = errors.New("the message is the visitor's own")
	ErrNoneOpen   = errors.New("no conversation of this session is open")
	ErrUsedUp     = errors.New("the coupon's uses are used up")
	ErrFuture     = errors.New("the cursor lies beyond the newest event")
	ErrBusy       = errors.New("the database is busy")
	ErrFull       = errors.New("the disk or the database's size limit is full")
	ErrSmall      = errors.New("the database's size limit is too small")
	ErrCorrupt    = errors.New("the file is damaged or is not a SQLite database: move it away or restore a backup")
	ErrForeign    = errors.New("the file is another program's SQLite database: choose another data directory")
	ErrReindexed  = errors.New("another version of weir has indexed the documents anew: restart this one as that version")
	ErrNewer      = errors.New("the database was made by a newer weir: use that one, or another data directory")
)

// explain wraps an error of SQLite in one of the errors above, if a caller can act on it.
func explain(err error) error {
	var e *driver.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	case !errors.As(err, &e):
		return err
	}
	switch e.Code() {
	// a quota or file size limit, which SQLite cannot tell from a bad disk
	case codes.SQLITE_IOERR_WRITE, codes.SQLITE_IOERR_SHMSIZE:
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	switch e.Code() & 0xff { // the primary code
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case codes.SQLITE_FULL:
		return fmt.Errorf("%w: %w", ErrFull, err)
	case codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case codes.SQLITE_INTERRUPT:
		return fmt.Errorf("%w: %w", context.Canceled, err)
	}
	return err
}
