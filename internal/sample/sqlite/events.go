package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"
)

// Values of Event.Source.
const (
	FromVisitor = "visitor" // reported through the API
	FromServer  = "server"
)

// An Event is one entry of the feed of a conversation.
type Event struct {
	N       int64 // 1, 2, 3 … within the conversation, without a gap; set by the database
	Source  string
	Type    string
	Data    json.RawMessage // may be nil
	Created time.Time
}

// Report appends an event to an open conversation of the session, and returns the id of that
// conversation and the number of the event. An empty conversation means the newest open one. Report
// returns ErrNotFound, ErrClosed or ErrNoneOpen if it cannot be used.
func (d *DB) Report(ctx context.Context, session, conversation string, e Event) (id string, n int64, err error) {
	err = d.visit(ctx, session, func(v *visit) error {
		c, err := findOpen(ctx, v.Tx, session, conversation)
		if err != nil {
			return err
		}
		id = c.ID
		n, err = d.appendEvent(ctx, v, c.n, e)
		return err
	})
	return id, n, err
}

// SetTyping records whether the visitor is typing in an open conversation of the session. An empty
// conversation means the newest open one. SetTyping appends an event to the feed when the value
// changes. It returns ErrNotFound, ErrClosed or ErrNoneOpen for a conversation that cannot be used.
func (d *DB) SetTyping(ctx context.Context, session, conversation string, typing bool, now time.Time) error {
	var c Conversation
	var before bool
	// Most pings change nothing and need no write lock.
	err := d.read(ctx, func(tx *sql.Tx) (err error) {
		if c, err = findOpen(ctx, tx, session, conversation); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT typing FROM conversations WHERE n = ?`, c.n).Scan(&before)
	})
	if err != nil || before == typing {
		return err
	}
	data, err := json.Marshal(map[string]bool{"typing": typing})
	if err != nil {
		return err
	}
	return d.visit(ctx, session, func(v *visit) error {
		now := Event{Source: FromServer, Type: "visitor.typing", Data: data, Created: now}
		news, err := changed(v.ExecContext(ctx,
			`UPDATE conversations SET typing = ?1 WHERE n = ?2 AND closed_at IS NULL AND typing <> ?1`, typing, c.n))
		if err != nil || !news {
			return err // a concurrent ping has made the change
		}
		_, err = d.appendEvent(ctx, v, c.n, now)
		return err
	})
}

// A Rating is a visitor's rating of a conversation.
type Rating struct {
	ID      string
	Score   int // 1 to 5
	Comment string
	Created time.Time
}

// Rate stores a rating of an open or closed conversation of the session. An empty conversation
// means the newest. Rate returns ErrNotFound for an unknown conversation.
func (d *DB) Rate(ctx context.Context, session, conversation string, r Rating) error {
	data, err := json.Marshal(map[string]int{"score": r.Score})
	if err != nil {
		return err
	}
	return d.visit(ctx, session, func(v *visit) error {
		c, err := findConversation(ctx, v.Tx, session, conversation)
		if err != nil {
			return err
		}
		v.rows += charge(ratingCharge, len(r.Comment))
		_, err = v.ExecContext(ctx, `INSERT INTO ratings (id, conversation, score, comment, created_at) VALUES (?, ?, ?, ?, ?)`,
			r.ID, c.n, r.Score, nullString(r.Comment), toMillis(r.Created))
		if err != nil {
			return err
		}
		_, err = d.appendEvent(ctx, v, c.n, Event{Source: FromServer, Type: "satisfaction.given", Data: data, Created: r.Created})
		return err
	})
}

// Events returns the id of a conversation of the session and up to limit events of its feed after
// number after, oldest first, and whether there are more. An empty conversation means the newest.
// Events returns ErrNotFound for an unknown conversation, and ErrFuture for an after beyond the
// newest event.
func (d *DB) Events(ctx context.Context, session, conversation string, after int64, limit int) (id string, page []Event, more bool, err error) {
	err = d.read(ctx, func(tx *sql.Tx) error {
		c, err := findConversation(ctx, tx, session, conversation)
		if err != nil {
			return err
		}
		if after > c.events {
			return ErrFuture
		}
		id = c.ID
		rows, err := tx.QueryContext(ctx, `
			SELECT n, source, type, data, created_at FROM events
			WHERE conversation = ? AND n > ? ORDER BY n LIMIT ?`, c.n, after, limit+1)
		return collect(rows, err, func() error {
			var e Event
			var created int64
			var data sql.NullString
			if err := rows.Scan(&e.N, &e.Source, &e.Type, &data, &created); err != nil {
				return err
			}
			if data.Valid {
				e.Data = json.RawMessage(data.String)
			}
			e.Created = fromMillis(created)
			page = append(page, e)
			return nil
		})
	})
	page, more = trimPage(page, limit)
	return id, page, more, err
}

// appendEvent appends e to the conversation's feed and returns its number. Listeners are notified
// when the transaction has ended.
func (d *DB) appendEvent(ctx context.Context, v *visit, conversation int64, e Event) (n int64, err error) {
	var id string
	err = v.QueryRowContext(ctx, `UPDATE conversations SET events = events + 1 WHERE n = ? RETURNING events, id`, conversation).Scan(&n, &id)
	if err != nil {
		return 0, err
	}
	d.appended = append(d.appended, update{id, n})
	v.rows += charge(eventCharge, len(e.Type), len(e.Data))
	_, err = v.ExecContext(ctx, `INSERT INTO events (conversation, n, source, type, data, created_at) VALUES (?, ?, ?, ?, ?, ?)`,
		conversation, n, e.Source, e.Type, nullString(string(e.Data)), toMillis(e.Created))
	return n, err
}
