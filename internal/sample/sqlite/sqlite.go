// Package sqlite stores the rows of the sample backend. It holds all SQL and knows nothing of HTTP.
//
// One connection writes and several read (WAL). Every method that changes something does so in one
// transaction. Rows survive a killed process. A power cut can lose the last transactions, but never
// half of one, and never the creation or revocation of a token. Several processes may use one
// database at once.
package sqlite

import (
	"context"
	"crypto/rand"
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

	"github.com/weirlimit/weir/internal/owned"
)

// Options configure a DB. The zero value is useful.
type Options struct {
	// BusyTimeout is how long a write waits for the lock of another process before it returns
	// ErrBusy. 0 means 2 s. Writes of this DB wait for each other queueFactor times as long.
	BusyTimeout time.Duration
	// MaxBytes bounds the size of rows and indexes. A write beyond it returns ErrFull. 0 means no
	// bound.
	MaxBytes int64

	// NearlyFull is optional. It is called once for each of OfDocuments and OfVisitors, when more
	// than four fifths of that share are in use. Open calls it if they are in use already. Both
	// figures are in bytes, and used may exceed limit. NearlyFull must return at once.
	NearlyFull func(share Share, used, limit int64)
}

// A DB is an open database. It is safe for concurrent use.
type DB struct {
	path        string
	busyTimeout time.Duration
	postings    int     // max postings that one search may read
	writer      *sql.DB // one connection; a transaction locks the database when it begins
	reader      *sql.DB // cannot write

	accounts accounts
	bound    bound                              // guarded by the write connection
	listener func(conversation string, n int64) // called by notify; may be nil
	// appended are the events of the current transaction, guarded by the write connection.
	appended []update
}

// readers is the number of connections that read. Reads are short, and at most one a core runs at a
// time.
const readers = 8

// Open opens the database at path and migrates its schema. If the file does not exist, Open creates
// it with mode 0600, for the owner of its directory. The error wraps ErrNewer, ErrForeign,
// ErrCorrupt, ErrBusy, ErrFull or ErrSmall, or is the file system's.
func Open(ctx context.Context, path string, o Options) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	err = checkFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = create(ctx, path, o); err == nil {
			err = checkFile(path) // another process may have been first, and not be done
		}
	}
	var d *DB
	if err == nil {
		d, err = open(ctx, path, o)
	}
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	return d, nil
}

// checkFile makes sure that a database exists, that it may hold rows, and that its owner alone can
// read it. SQLite creates its side files with the mode and the owner of the database. checkFile
// does not open the file, because closing it would release the locks that this process holds on it.
func checkFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() && info.Size() == 0 {
		// SQLite would take it for a new database.
		return fmt.Errorf("%w; it has 0 bytes, so remove it only if nothing was stored yet", ErrCorrupt)
	}
	for _, side := range []string{"", "-wal", "-shm"} {
		if err := owned.Access(path + side); err != nil {
			return err
		}
	}
	// not behind a link: root may run this in the directory of a user that has made one
	if itself, err := os.Lstat(path); err == nil && itself.Mode().IsRegular() && itself.Mode().Perm()&0o077 != 0 {
		return os.Chmod(path, 0o600)
	}
	return nil
}

// checkNew makes sure that a database that does not exist has left no log: SQLite would write what
// it has into a new database.
func checkNew(path string) error {
	for _, side := range []string{"-wal", "-journal"} {
		if _, err := os.Lstat(path + side); err != nil {
			continue
		}
		if _, err := os.Lstat(path); err == nil {
			return nil // another process has made it by now
		}
		return fmt.Errorf("%w; it is missing, and its log %s is there: put the file back, or remove the log too", ErrCorrupt, path+side)
	}
	return nil
}

// create creates a database under another name, and gives it its name when it has its schema. So a
// process that is killed leaves no file without a schema, and others that open the database at the
// same time get the one that was first.
func create(ctx context.Context, path string, o Options) error {
	if err := checkNew(path); err != nil {
		return err
	}
	f, err := owned.Create(path + ".new-" + rand.Text())
	if err != nil {
		return err
	}
	defer func() {
		for _, side := range []string{"", "-wal", "-shm", "-journal"} {
			os.Remove(f.Name() + side)
		}
	}()
	if err := f.Close(); err != nil {
		return err
	}
	o.NearlyFull = nil // open calls it
	d, err := open(ctx, f.Name(), o)
	if err != nil {
		return err
	}
	// It moves the log into the file, and does not report if it cannot.
	if err := d.Close(); err != nil {
		return err
	}
	if _, err := os.Lstat(f.Name() + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the new database could not be written", ErrFull)
	}
	if err := os.Link(f.Name(), path); err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	// The file system has no hard links. Others that find the file empty do not open it.
	reserved, err := owned.Create(path)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := reserved.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// open opens a file that exists.
func open(ctx context.Context, path string, o Options) (*DB, error) {
	busyTimeout := o.BusyTimeout
	if busyTimeout <= 0 {
		busyTimeout = 2 * time.Second
	}
	d := &DB{path: path, busyTimeout: busyTimeout, postings: maxPostings, bound: newBound(o)}
	var err error
	if d.writer, err = sql.Open("sqlite", d.dsn()); err != nil {
		return nil, err
	}
	d.writer.SetMaxOpenConns(1)
	if d.reader, err = sql.Open("sqlite", d.dsn()+"&_pragma=query_only(1)"); err != nil {
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
		return nil, err
	}
	return d, nil
}

// pageSize is SQLite's default, and the unit of the bound.
const pageSize = 4096

// dsn returns the data source name of a connection, with its pragmas.
func (d *DB) dsn() string {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(" + strconv.FormatInt(max(1, d.busyTimeout.Milliseconds()), 10) + ")",
		"journal_mode(WAL)",
		"synchronous(NORMAL)",
		"foreign_keys(1)",
		"trusted_schema(0)",
		"journal_size_limit(67108864)",
	}}
	return (&url.URL{Scheme: "file", Path: d.path, RawQuery: q.Encode()}).String()
}

// Close closes all connections.
func (d *DB) Close() error {
	return errors.Join(d.reader.Close(), d.writer.Close())
}

// Ready returns an error if rows cannot be read, or if the file at the path has been removed.
func (d *DB) Ready(ctx context.Context) error {
	if _, err := os.Stat(d.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("database %s is gone", d.path)
	}
	var n int
	err := d.reader.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM workspaces LIMIT 1)`).Scan(&n)
	return explain(err)
}

// WithWriteLock runs f while no other process or goroutine writes to the database. A process that
// dies releases the lock.
func (d *DB) WithWriteLock(ctx context.Context, f func() error) error {
	return d.writeUnbounded(ctx, func(*sql.Tx) error { return f() })
}

// write runs f in a transaction and commits it if f returns nil and the documents' share has room
// for what f stored. f must not change rows of visitors.
func (d *DB) write(ctx context.Context, f func(*sql.Tx) error) error {
	return d.transaction(ctx, func(tx *sql.Tx) error {
		if err := trackOtherPages(ctx, tx, func() error { return f(tx) }); err != nil {
			return err
		}
		return d.bound.checkDocuments(ctx, tx)
	})
}

// writeUnbounded is write without the bound, for what must work in a full database, such as
// deletions.
func (d *DB) writeUnbounded(ctx context.Context, f func(*sql.Tx) error) error {
	return d.transaction(ctx, func(tx *sql.Tx) error {
		return trackOtherPages(ctx, tx, func() error { return f(tx) })
	})
}

// transaction runs f in a transaction that holds the write lock from its start, and commits it if f
// returns nil. It is for rows of visitors; write, writeUnbounded and writeDurably keep the count of
// all other pages.
func (d *DB) transaction(ctx context.Context, f func(*sql.Tx) error) error {
	conn, err := d.acquireWriter(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return d.transact(ctx, conn, f)
}

// writeDurably is writeUnbounded for what must survive a power cut once it is reported as done:
// tokens. A token can be revoked however full the database is.
func (d *DB) writeDurably(ctx context.Context, f func(*sql.Tx) error) error {
	conn, err := d.acquireWriter(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `PRAGMA synchronous = FULL`); err != nil {
		return explain(err)
	}
	// a new connection starts with NORMAL
	defer conn.ExecContext(context.WithoutCancel(ctx), `PRAGMA synchronous = NORMAL`)
	return d.transact(ctx, conn, func(tx *sql.Tx) error {
		return trackOtherPages(ctx, tx, func() error { return f(tx) })
	})
}

// queueFactor is the ratio of the max wait for writers of this process to the max wait for another
// process's lock. The writers of this process are served in order. The slowest, a bulk upsert of 8
// MiB, takes 3 to 9 seconds, and a message that is stored late is better than one that is refused.
const queueFactor = 15

// acquireWriter waits for the one write connection of this process.
func (d *DB) acquireWriter(ctx context.Context) (*sql.Conn, error) {
	wait, cancel := context.WithTimeout(ctx, queueFactor*d.busyTimeout)
	defer cancel()
	conn, err := d.writer.Conn(wait)
	if err != nil && ctx.Err() == nil && wait.Err() != nil {
		return nil, fmt.Errorf("%w: other writers held it for %v", ErrBusy, queueFactor*d.busyTimeout)
	}
	return conn, explain(err)
}

func (d *DB) transact(ctx context.Context, conn *sql.Conn, f func(*sql.Tx) error) error {
	defer d.notify()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return explain(err)
	}
	defer tx.Rollback() // no effect after a commit
	if err = f(tx); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		d.clearNumbers()
	}
	return ended(ctx, err)
}

// ended translates the error of a transaction. If ctx is done the transaction was rolled back, and
// the error wraps ctx.Err, whichever error came first.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return explain(err)
}

// read runs f on one consistent snapshot of the database.
func (d *DB) read(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := d.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return explain(err)
	}
	defer tx.Rollback() // nothing was written
	return ended(ctx, f(tx))
}

// errEnough makes collect stop before the last row.
var errEnough = errors.New("enough")

// collect runs scan on every row until it returns errEnough, and closes rows.
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

// toMillis and fromMillis convert between times and the Unix milliseconds of the database.
func toMillis(t time.Time) int64 { return t.UnixMilli() }

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// nullMillis returns NULL for the zero time.
func nullMillis(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: toMillis(t), Valid: !t.IsZero()}
}

// nullString returns NULL for the empty string.
func nullString(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
