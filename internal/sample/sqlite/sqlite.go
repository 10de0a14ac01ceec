// Package sqlite keeps the rows of the sample backend: SQL and nothing of HTTP.
//
// One connection writes, several read (WAL). Every method that changes something does it in one transaction: all of it
// is there afterwards, or nothing. Rows survive a killed process; a power cut may take the last moments, but never half a
// transaction, and never a token's creation or revocation. Several processes may use one database at once.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver named "sqlite"
)

// Options bound a DB. The zero value is useful.
type Options struct {
	BusyTimeout time.Duration // how long a write waits for another process's before ErrBusy, and 15 times as long for ours; 0 = 2 s
	MaxBytes    int64         // how much rows and indexes may take; what would store more answers ErrFull; 0 = no bound

	// Near is called once for each of OfDocuments and OfVisitors, when more than four fifths of that share are in use, or all;
	// by Open already if they were before. Both are in bytes. It must return at once. Nil: nobody is told.
	Near func(share Share, used, most int64)
}

// A DB is an open database. It is safe for concurrent use.
type DB struct {
	path     string
	patience time.Duration
	postings int     // what one search may read
	writer   *sql.DB // one connection; a transaction locks the database when it begins
	reader   *sql.DB // cannot write

	accounts accounts
	bound    bound                              // whoever has the writing connection has this too
	listener func(conversation string, n int64) // nil: nobody listens
	told     []news                             // of the transaction under way; likewise
}

// readers is the number of connections that read. Reading is short work, done by at most as many cores as there are.
const readers = 8

// Open opens the database at path and brings its schema up to date; where there is no file it makes one with mode 0600.
// The errors say what stands in the way: ErrNewer, ErrForeign, ErrCorrupt, ErrBusy, ErrFull, ErrSmall, or the file system's own.
func Open(ctx context.Context, path string, o Options) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := private(path); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	patience := o.BusyTimeout
	if patience <= 0 {
		patience = 2 * time.Second
	}
	d := &DB{path: path, patience: patience, postings: mostPostings, bound: newBound(o)}
	if d.writer, err = sql.Open("sqlite", d.source()); err != nil {
		return nil, err
	}
	d.writer.SetMaxOpenConns(1)
	if d.reader, err = sql.Open("sqlite", d.source()+"&_pragma=query_only(1)"); err != nil {
		d.writer.Close()
		return nil, err
	}
	d.reader.SetMaxOpenConns(readers)
	d.reader.SetMaxIdleConns(readers)
	err = d.migrate(ctx)
	if err == nil {
		err = d.accounts.prepare(ctx, d.writer)
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	return d, nil
}

// private makes sure that the database exists and that only its owner can read it. SQLite gives its side files the mode
// of the database. An existing file is not opened here: closing it would end the locks that this process has on it.
func private(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Mode().Perm()&0o077 != 0:
		return os.Chmod(path, 0o600)
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// pageSize is SQLite's default, and what MaxBytes is counted in.
const pageSize = 4096

// source is the data source name of one connection, pragmas and all.
func (d *DB) source() string {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(" + strconv.FormatInt(max(1, d.patience.Milliseconds()), 10) + ")",
		"journal_mode(WAL)",
		"synchronous(NORMAL)",
		"foreign_keys(1)",
		"trusted_schema(0)",
		"journal_size_limit(67108864)",
	}}
	return (&url.URL{Scheme: "file", Path: d.path, RawQuery: q.Encode()}).String()
}

// Close ends every connection.
func (d *DB) Close() error {
	return errors.Join(d.reader.Close(), d.writer.Close())
}

// Ready says whether rows can be read, and that the file is still the one at the path that was opened.
func (d *DB) Ready(ctx context.Context) error {
	if _, err := os.Stat(d.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("database %s is gone", d.path)
	}
	var n int
	err := d.reader.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM workspaces LIMIT 1)`).Scan(&n)
	return explain(err)
}

// Alone runs f while no other process or goroutine writes to the database: a lock between processes that ends with them.
func (d *DB) Alone(ctx context.Context, f func() error) error {
	return d.writeAnyway(ctx, func(*sql.Tx) error { return f() })
}

// write runs f, which changes nothing that visitors store, in a transaction, and commits it if f returns nil and what it
// stored has room in the documents' share.
func (d *DB) write(ctx context.Context, f func(*sql.Tx) error) error {
	return d.transaction(ctx, func(tx *sql.Tx) error {
		if err := others(ctx, tx, func() error { return f(tx) }); err != nil {
			return err
		}
		return d.bound.hold(ctx, tx)
	})
}

// writeAnyway is write for what must be possible in a database that is full: to delete, above all.
func (d *DB) writeAnyway(ctx context.Context, f func(*sql.Tx) error) error {
	return d.transaction(ctx, func(tx *sql.Tx) error {
		return others(ctx, tx, func() error { return f(tx) })
	})
}

// transaction runs f in a transaction that holds the write lock from its first moment, and commits it if f returns nil. It
// is for what visitors store; everything else is counted by write, writeAnyway or writeDurably.
func (d *DB) transaction(ctx context.Context, f func(*sql.Tx) error) error {
	conn, err := d.turn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return d.transact(ctx, conn, f)
}

// writeDurably is writeAnyway for what must survive a power cut once it has been reported done: tokens, of which one must
// be revocable however full the database is.
func (d *DB) writeDurably(ctx context.Context, f func(*sql.Tx) error) error {
	conn, err := d.turn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `PRAGMA synchronous = FULL`); err != nil {
		return explain(err)
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), `PRAGMA synchronous = NORMAL`) // a lost connection has it by itself
	return d.transact(ctx, conn, func(tx *sql.Tx) error {
		return others(ctx, tx, func() error { return f(tx) })
	})
}

// queuing is how many times as long as for another process's lock a write waits for those of its own process. They are
// served in order and all of them end; the largest, a bulk upsert of 8 MiB, takes 3 to 9 seconds. Whoever writes a message
// meanwhile is better served late than refused.
const queuing = 15

// turn waits for this process's one writing connection.
func (d *DB) turn(ctx context.Context) (*sql.Conn, error) {
	wait, cancel := context.WithTimeout(ctx, queuing*d.patience)
	defer cancel()
	conn, err := d.writer.Conn(wait)
	if err != nil && ctx.Err() == nil && wait.Err() != nil {
		return nil, fmt.Errorf("%w: other writers held it for %v", ErrBusy, queuing*d.patience)
	}
	return conn, explain(err)
}

func (d *DB) transact(ctx context.Context, conn *sql.Conn, f func(*sql.Tx) error) error {
	defer d.announce()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return explain(err)
	}
	defer tx.Rollback() // after a commit this does nothing
	if err = f(tx); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		d.doubt()
	}
	return ended(ctx, err)
}

// ended explains how a transaction ended. One whose context is done was rolled back, whichever error tells of it first.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return explain(err)
}

// read runs f on one unchanging view of the database.
func (d *DB) read(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := d.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return explain(err)
	}
	defer tx.Rollback() // nothing was written
	return ended(ctx, f(tx))
}

// errEnough ends collect before the last row.
var errEnough = errors.New("enough")

// collect runs scan on every row, until it returns errEnough, and closes rows.
func collect(rows *sql.Rows, err error, scan func() error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(); err == errEnough {
			return nil
		} else if err != nil {
			return err
		}
	}
	return rows.Err()
}

// moment and instant carry times in and out of the database.
func moment(t time.Time) int64 { return t.UnixMilli() }

func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// maybeMoment is NULL for the zero time.
func maybeMoment(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: moment(t), Valid: !t.IsZero()}
}

// maybe is NULL for the empty string.
func maybe(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
