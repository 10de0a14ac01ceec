package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// A Session is one visitor's, of one workspace.
type Session struct {
	ID        string
	Workspace string
	Created   time.Time
	Expires   time.Time
	Origin    Origin // set by whoever starts it; Session does not read it
}

// An Origin is where a session was started, as keyed hashes of 16 bytes: no address is stored.
type Origin struct {
	Address []byte // nil: unknown, and then no address's share bounds the session
	Network []byte // the network that the address is in; nil: it counts by itself alone
}

// A Conversation belongs to one session.
type Conversation struct {
	ID       string
	Created  time.Time
	Closed   time.Time // zero: open
	Messages int64     // how many there are

	n      int64
	events int64
}

// StartSession stores s and its first conversation. ErrNotFound where there is no such workspace.
func (d *DB) StartSession(ctx context.Context, s Session, conversation string) error {
	return d.visit(ctx, s.ID, func(v *visit) error {
		origin, err := v.origin(ctx, s.Origin)
		if err != nil {
			return err
		}
		v.rows = charge(sessionCharge, len(s.Workspace))
		there, err := changed(v.ExecContext(ctx, `
			INSERT INTO sessions (id, workspace_id, created_at, expires_at, origin)
			SELECT ?, id, ?, ?, ? FROM workspaces WHERE id = ?`,
			s.ID, moment(s.Created), moment(s.Expires), origin, s.Workspace))
		if err != nil {
			return err
		}
		if !there {
			return ErrNotFound
		}
		return d.start(ctx, v, s.ID, conversation, s.Created)
	})
}

// Session returns the session of that id. ErrNotFound.
func (d *DB) Session(ctx context.Context, id string) (s Session, err error) {
	var created, expires int64
	err = d.reader.QueryRowContext(ctx, `SELECT id, workspace_id, created_at, expires_at FROM sessions WHERE id = ?`, id).
		Scan(&s.ID, &s.Workspace, &created, &expires)
	s.Created, s.Expires = instant(created), instant(expires)
	return s, explain(err)
}

// origin returns the number of an origin, which it adds if it is new; NULL if it is unknown.
func (v *visit) origin(ctx context.Context, o Origin) (n sql.NullInt64, err error) {
	var network sql.NullInt64
	for _, hash := range [][]byte{o.Network, o.Address} {
		if hash == nil {
			continue
		}
		err = v.QueryRowContext(ctx, `SELECT n FROM origins WHERE hash = ?`, hash).Scan(&n)
		if err == sql.ErrNoRows {
			err = v.QueryRowContext(ctx, `INSERT INTO origins (hash, network) VALUES (?, ?) RETURNING n`, hash, network).Scan(&n)
		}
		if err != nil {
			return n, err
		}
		network = n
	}
	return n, nil
}

// StartConversation adds an open conversation to the session.
func (d *DB) StartConversation(ctx context.Context, session, id string, now time.Time) error {
	return d.visit(ctx, session, func(v *visit) error { return d.start(ctx, v, session, id, now) })
}

func (d *DB) start(ctx context.Context, v *visit, session, id string, now time.Time) error {
	v.rows += charge(conversationCharge)
	result, err := v.ExecContext(ctx, `INSERT INTO conversations (id, session_id, created_at) VALUES (?, ?, ?)`,
		id, session, moment(now))
	if err != nil {
		return err
	}
	n, err := result.LastInsertId()
	if err != nil {
		return err
	}
	_, err = d.tell(ctx, v, n, Event{Source: FromServer, Type: "conversation.started", Created: now})
	return err
}

const conversationColumns = `SELECT n, id, created_at, closed_at, messages, events FROM conversations `

// Conversation returns a conversation of the session. ErrNotFound, also where it is another session's.
func (d *DB) Conversation(ctx context.Context, session, id string) (Conversation, error) {
	c, err := scanConversation(d.reader.QueryRowContext(ctx, conversationColumns+`WHERE id = ? AND session_id = ?`, id, session))
	return c, explain(err)
}

// Conversations returns up to limit conversations of the session, oldest first, after the one of that id (empty: from
// the first), and whether there are more. ErrNotFound where the session has no conversation after.
func (d *DB) Conversations(ctx context.Context, session, after string, limit int) (page []Conversation, more bool, err error) {
	err = d.read(ctx, func(tx *sql.Tx) error {
		var from Conversation
		if after != "" {
			if from, err = one(ctx, tx, session, after); err != nil {
				return err
			}
		}
		rows, err := tx.QueryContext(ctx, conversationColumns+`WHERE session_id = ? AND n > ? ORDER BY n LIMIT ?`,
			session, from.n, limit+1)
		return collect(rows, err, func() error {
			c, err := scanConversation(rows)
			page = append(page, c)
			return err
		})
	})
	page, more = cut(page, limit)
	return page, more, err
}

// CloseConversation closes a conversation of the session; one that is closed stays as it is. ErrNotFound.
func (d *DB) CloseConversation(ctx context.Context, session, id string, now time.Time) (c Conversation, err error) {
	err = d.visit(ctx, session, func(v *visit) error {
		if c, err = one(ctx, v.Tx, session, id); err != nil || !c.Closed.IsZero() {
			return err
		}
		if _, err := v.ExecContext(ctx, `UPDATE conversations SET closed_at = ?, typing = 0 WHERE n = ?`, moment(now), c.n); err != nil {
			return err
		}
		c.Closed = instant(moment(now))
		_, err := d.tell(ctx, v, c.n, Event{Source: FromServer, Type: "conversation.closed", Created: now})
		return err
	})
	return c, err
}

// one reads a conversation of the session: that of the id, or the newest where id is empty. ErrNotFound.
func one(ctx context.Context, tx *sql.Tx, session, id string) (Conversation, error) {
	if id == "" {
		return scanConversation(tx.QueryRowContext(ctx, conversationColumns+
			`WHERE session_id = ? ORDER BY n DESC LIMIT 1`, session))
	}
	return scanConversation(tx.QueryRowContext(ctx, conversationColumns+`WHERE id = ? AND session_id = ?`, id, session))
}

// open reads an open conversation of the session: that of the id, or the newest open one where id is empty. ErrNotFound,
// ErrClosed, ErrNoneOpen.
func open(ctx context.Context, tx *sql.Tx, session, id string) (Conversation, error) {
	if id == "" {
		c, err := scanConversation(tx.QueryRowContext(ctx, conversationColumns+
			`WHERE session_id = ? AND closed_at IS NULL ORDER BY n DESC LIMIT 1`, session))
		if explain(err) == ErrNotFound {
			err = ErrNoneOpen
		}
		return c, err
	}
	c, err := one(ctx, tx, session, id)
	if err == nil && !c.Closed.IsZero() {
		err = ErrClosed
	}
	return c, err
}

func scanConversation(row interface{ Scan(...any) error }) (c Conversation, err error) {
	var created int64
	var closed sql.NullInt64
	err = row.Scan(&c.n, &c.ID, &created, &closed, &c.Messages, &c.events)
	c.Created = instant(created)
	if closed.Valid {
		c.Closed = instant(closed.Int64)
	}
	return c, err
}

// cut drops the row that was read only to learn whether there are more than limit.
func cut[T any](rows []T, limit int) ([]T, bool) {
	if len(rows) > limit {
		return rows[:limit], true
	}
	return rows, false
}
