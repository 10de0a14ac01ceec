package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// A Session is a session of one visitor with one workspace.
type Session struct {
	ID        string
	Workspace string
	Created   time.Time
	Expires   time.Time
	Origin    Origin // stored by StartSession; not returned by Session
}

// An Origin is the address from which a session was started, as keyed hashes of 16 bytes. No
// address is stored.
type Origin struct {
	Address []byte // nil means unknown; then no address's share bounds the session
	Network []byte // of the network of the address; nil means that the address is counted alone
}

// A Conversation is a conversation of one session.
type Conversation struct {
	ID       string
	Created  time.Time
	Closed   time.Time // zero means open
	Messages int64     // number of messages

	n      int64
	events int64
}

// StartSession stores s and its first conversation. It returns ErrNotFound for an unknown
// workspace.
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
			s.ID, toMillis(s.Created), toMillis(s.Expires), origin, s.Workspace))
		if err != nil {
			return err
		}
		if !there {
			return ErrNotFound
		}
		return d.start(ctx, v, s.ID, conversation, s.Created)
	})
}

// Session returns the session with that id, or ErrNotFound.
func (d *DB) Session(ctx context.Context, id string) (s Session, err error) {
	var created, expires int64
	err = d.reader.QueryRowContext(ctx, `SELECT id, workspace_id, created_at, expires_at FROM sessions WHERE id = ?`, id).
		Scan(&s.ID, &s.Workspace, &created, &expires)
	s.Created, s.Expires = fromMillis(created), fromMillis(expires)
	return s, explain(err)
}

// origin returns the row number of an origin, or NULL for an unknown one. It adds a new origin.
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
		id, session, toMillis(now))
	if err != nil {
		return err
	}
	n, err := result.LastInsertId()
	if err != nil {
		return err
	}
	_, err = d.appendEvent(ctx, v, n, Event{Source: FromServer, Type: "conversation.started", Created: now})
	return err
}

const conversationColumns = `SELECT n, id, created_at, closed_at, messages, events FROM conversations `

// Conversation returns a conversation of the session. It returns ErrNotFound if there is none, or
// if it belongs to another session.
func (d *DB) Conversation(ctx context.Context, session, id string) (Conversation, error) {
	c, err := scanConversation(d.reader.QueryRowContext(ctx, conversationColumns+`WHERE id = ? AND session_id = ?`, id, session))
	return c, explain(err)
}

// Conversations returns up to limit conversations of the session after the one with that id, oldest
// first, and whether there are more. An empty id starts from the first. Conversations returns
// ErrNotFound for a conversation after that the session does not have.
func (d *DB) Conversations(ctx context.Context, session, after string, limit int) (page []Conversation, more bool, err error) {
	err = d.read(ctx, func(tx *sql.Tx) error {
		var from Conversation
		if after != "" {
			if from, err = findConversation(ctx, tx, session, after); err != nil {
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
	page, more = trimPage(page, limit)
	return page, more, err
}

// CloseConversation closes a conversation of the session. A closed one stays unchanged. It returns
// ErrNotFound for an unknown conversation.
func (d *DB) CloseConversation(ctx context.Context, session, id string, now time.Time) (c Conversation, err error) {
	err = d.visit(ctx, session, func(v *visit) error {
		if c, err = findConversation(ctx, v.Tx, session, id); err != nil || !c.Closed.IsZero() {
			return err
		}
		if _, err := v.ExecContext(ctx, `UPDATE conversations SET closed_at = ?, typing = 0 WHERE n = ?`, toMillis(now), c.n); err != nil {
			return err
		}
		c.Closed = fromMillis(toMillis(now))
		_, err := d.appendEvent(ctx, v, c.n, Event{Source: FromServer, Type: "conversation.closed", Created: now})
		return err
	})
	return c, err
}

// findConversation returns the conversation of the session with that id, or its newest if id is
// empty. It returns sql.ErrNoRows if there is none.
func findConversation(ctx context.Context, tx *sql.Tx, session, id string) (Conversation, error) {
	if id == "" {
		return scanConversation(tx.QueryRowContext(ctx, conversationColumns+
			`WHERE session_id = ? ORDER BY n DESC LIMIT 1`, session))
	}
	return scanConversation(tx.QueryRowContext(ctx, conversationColumns+`WHERE id = ? AND session_id = ?`, id, session))
}

// findOpen returns the open conversation of the session with that id, or the newest open one if id
// is empty. It returns sql.ErrNoRows, ErrClosed or ErrNoneOpen.
func findOpen(ctx context.Context, tx *sql.Tx, session, id string) (Conversation, error) {
	if id == "" {
		c, err := scanConversation(tx.QueryRowContext(ctx, conversationColumns+
			`WHERE session_id = ? AND closed_at IS NULL ORDER BY n DESC LIMIT 1`, session))
		if explain(err) == ErrNotFound {
			err = ErrNoneOpen
		}
		return c, err
	}
	c, err := findConversation(ctx, tx, session, id)
	if err == nil && !c.Closed.IsZero() {
		err = ErrClosed
	}
	return c, err
}

func scanConversation(row interface{ Scan(...any) error }) (c Conversation, err error) {
	var created int64
	var closed sql.NullInt64
	err = row.Scan(&c.n, &c.ID, &created, &closed, &c.Messages, &c.events)
	c.Created = fromMillis(created)
	if closed.Valid {
		c.Closed = fromMillis(closed.Int64)
	}
	return c, err
}

// trimPage drops the extra row that was read to find out whether there are more than limit.
func trimPage[T any](rows []T, limit int) ([]T, bool) {
	if len(rows) > limit {
		return rows[:limit], true
	}
	return rows, false
}
