package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
)

// An update is the number of the newest event of a conversation's feed.
type update struct {
	conversation string
	n            int64
}

// Listen makes the DB call f after each transaction that appended to a feed, with the conversation
// and the number of its newest event. After a transaction that failed or may have failed, the
// number is 0, because other events may get the numbers of events that were rolled back. f must
// return at once. Listen must be called before any other method.
func (d *DB) Listen(f func(conversation string, n int64)) { d.listener = f }

// notify calls the listener for the events that the last transaction appended.
func (d *DB) notify() {
	if d.listener != nil {
		for _, t := range d.appended {
			d.listener(t.conversation, t.n)
		}
	}
	clear(d.appended)
	d.appended = d.appended[:0]
}

// clearNumbers clears the numbers that notify reports. Whether a failed commit took place is not
// always known, so listeners must check the database.
func (d *DB) clearNumbers() {
	for i := range d.appended {
		d.appended[i].n = 0
	}
}

// A Version identifies the commits of other processes so far. Versions are compared with ==. The
// zero Version is not equal to any that was read.
type Version struct {
	connection any // counts are comparable only within one connection
	count      int64
}

// Version returns the current version. If two versions are equal, no other process has committed in
// between. Commits of this DB do not change it.
func (d *DB) Version(ctx context.Context) (v Version, err error) {
	// SQLite counts the commits of other connections, and this one makes all commits of the DB
	conn, err := d.acquireWriter(ctx)
	if err != nil {
		return v, err
	}
	defer conn.Close()
	if err := conn.QueryRowContext(ctx, `PRAGMA data_version`).Scan(&v.count); err != nil {
		return v, explain(err)
	}
	err = conn.Raw(func(c any) error { v.connection = c; return nil })
	return v, explain(err)
}

// Newest calls f with the number of the newest event of each of the conversations that exist.
func (d *DB) Newest(ctx context.Context, conversations []string, f func(conversation string, n int64)) error {
	list, err := json.Marshal(conversations)
	if err != nil {
		return err
	}
	rows, err := d.reader.QueryContext(ctx,
		`SELECT id, events FROM conversations WHERE id IN (SELECT value FROM json_each(?))`, string(list))
	return explain(collect(rows, err, func() error {
		var id sql.RawBytes
		var n int64
		if err := rows.Scan(&id, &n); err != nil {
			return err
		}
		f(string(id), n)
		return nil
	}))
}
