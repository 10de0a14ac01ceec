package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
)

// news is that a conversation's feed has grown to n events.
type news struct {
	conversation string
	n            int64
}

// Listen has f called after each commit of this DB that appended to a feed, with the conversation and the number of its
// newest event; after what was no commit too, perhaps, with 0 for a number: the numbers of a transaction that was rolled back
// are other events' later. f must return at once. Listen comes before the DB is used by anybody else.
func (d *DB) Listen(f func(conversation string, n int64)) { d.listener = f }

// announce tells of what the transaction that has just ended appended.
func (d *DB) announce() {
	if d.listener != nil {
		for _, t := range d.told {
			d.listener(t.conversation, t.n)
		}
	}
	clear(d.told)
	d.told = d.told[:0]
}

// doubt takes the numbers from what announce will tell: that a commit took place is not always known, so whoever listens
// looks for itself.
func (d *DB) doubt() {
	for i := range d.told {
		d.told[i].n = 0
	}
}

// A Version stands for what other processes have committed so far. Versions are compared with ==; the zero Version is
// equal to none that was read.
type Version struct {
	connection any // a count is worth something beside those of the same connection only
	count      int64
}

// Version reads the present one. If two are equal, then no other process has committed in between; commits of this DB do
// not change it.
func (d *DB) Version(ctx context.Context) (v Version, err error) {
	conn, err := d.turn(ctx) // SQLite counts the commits that a connection did not make itself, and all of ours are made by this one
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

// Newest calls f with the number of the newest event of each of the conversations. Those that are not there are left out.
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
