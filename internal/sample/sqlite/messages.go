package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"
)

// Values of Message.Author.
const (
	Visitor   = "visitor"
	Assistant = "assistant"
)

// A Message is one message of a conversation.
type Message struct {
	ID           string
	Conversation string // set by Messages
	Author       string // Visitor or Assistant
	Text         string
	Sources      []Source // of an answer
	Created      time.Time
}

// A Source is a document that supports an answer.
type Source struct {
	Title string `json:"title"`
	URL   string `json:"url"`
}

// AddMessages stores messages in order in an open conversation of the session and returns the id of
// that conversation. An empty conversation means the newest open one. AddMessages returns
// ErrNotFound, ErrClosed or ErrNoneOpen if it cannot be used.
func (d *DB) AddMessages(ctx context.Context, session, conversation string, messages ...Message) (id string, err error) {
	err = d.visit(ctx, session, func(v *visit) error {
		c, err := findOpen(ctx, v.Tx, session, conversation)
		if err != nil {
			return err
		}
		id = c.ID
		for i, m := range messages {
			if err := d.add(ctx, v, c.n, c.Messages+int64(i)+1, m); err != nil {
				return err
			}
		}
		_, err = v.ExecContext(ctx, `UPDATE conversations SET messages = messages + ? WHERE n = ?`, len(messages), c.n)
		return err
	})
	return id, err
}

func (d *DB) add(ctx context.Context, v *visit, conversation, n int64, m Message) error {
	sources, err := json.Marshal(append([]Source{}, m.Sources...))
	if err != nil {
		return err
	}
	v.rows += charge(messageCharge, len(m.Text), len(sources))
	_, err = v.ExecContext(ctx, `
		INSERT INTO messages (conversation, n, id, author, text, sources, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		conversation, n, m.ID, m.Author, m.Text, string(sources), toMillis(m.Created))
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]string{"message_id": m.ID, "author": m.Author})
	if err != nil {
		return err
	}
	_, err = d.appendEvent(ctx, v, conversation, Event{Source: FromServer, Type: "message.created", Data: data, Created: m.Created})
	return err
}

// SetHelpful records whether an answer was helpful, in an open or closed conversation of the
// session. It appends an event to the feed when the value changes. It returns ErrNotFound for a
// message that the session does not have, and ErrOwnMessage for the visitor's own.
func (d *DB) SetHelpful(ctx context.Context, session, message string, helpful bool, now time.Time) error {
	data, err := json.Marshal(struct {
		Message string `json:"message_id"`
		Helpful bool   `json:"helpful"`
	}{message, helpful})
	if err != nil {
		return err
	}
	return d.visit(ctx, session, func(v *visit) error {
		var conversation int64
		var author string
		err := v.QueryRowContext(ctx, `
			SELECT c.n, m.author FROM messages m JOIN conversations c ON c.n = m.conversation
			WHERE m.id = ? AND c.session_id = ?`, message, session).Scan(&conversation, &author)
		if err != nil {
			return err
		}
		if author != Assistant {
			return ErrOwnMessage
		}
		news, err := changed(v.ExecContext(ctx, `UPDATE messages SET helpful = ?1 WHERE id = ?2 AND helpful IS NOT ?1`, helpful, message))
		if err != nil || !news {
			return err
		}
		_, err = d.appendEvent(ctx, v, conversation, Event{Source: FromServer, Type: "feedback.given", Data: data, Created: now})
		return err
	})
}

// Messages returns a conversation of the session, up to limit of its messages after the one with
// that id, oldest first, and whether there are more. An empty id starts from the first. Messages
// returns ErrNotFound if the conversation or the message after does not exist; in the second case
// the conversation is set.
func (d *DB) Messages(ctx context.Context, session, conversation, after string, limit int) (c Conversation, page []Message, more bool, err error) {
	err = d.read(ctx, func(tx *sql.Tx) error {
		if c, err = findConversation(ctx, tx, session, conversation); err != nil {
			return err
		}
		from := int64(0)
		if after != "" {
			err := tx.QueryRowContext(ctx, `SELECT n FROM messages WHERE id = ? AND conversation = ?`, after, c.n).Scan(&from)
			if err != nil {
				return err
			}
		}
		rows, err := tx.QueryContext(ctx, `
			SELECT id, author, text, sources, created_at FROM messages
			WHERE conversation = ? AND n > ? ORDER BY n LIMIT ?`, c.n, from, limit+1)
		return collect(rows, err, func() error {
			m := Message{Conversation: c.ID}
			var created int64
			var sources []byte
			if err := rows.Scan(&m.ID, &m.Author, &m.Text, &sources, &created); err != nil {
				return err
			}
			m.Created = fromMillis(created)
			page = append(page, m)
			return json.Unmarshal(sources, &page[len(page)-1].Sources)
		})
	})
	page, more = trimPage(page, limit)
	return c, page, more, err
}
