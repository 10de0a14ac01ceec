package sample

import (
	"errors"
	"net/http"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const (
	defaultPage = 50
	maxPage     = 100
	maxID       = 64 // max bytes of an id, which this backend generates
)

// A conversation is the JSON of a conversation.
type conversation struct {
	ID       string  `json:"id"`
	Status   string  `json:"status"` // open or closed
	Messages int64   `json:"message_count"`
	Created  string  `json:"created_at"`
	Closed   *string `json:"closed_at"`
}

func showConversation(c sqlite.Conversation) conversation {
	shown := conversation{ID: c.ID, Status: "open", Messages: c.Messages, Created: formatTime(c.Created)}
	if !c.Closed.IsZero() {
		closed := formatTime(c.Closed)
		shown.Status, shown.Closed = "closed", &closed
	}
	return shown
}

// A page is one page of a list. Next is the cursor of the next page, and null on the last.
type page[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"`
}

// showPage returns rows as a page. id returns the cursor of a row.
func showPage[R, T any](rows []R, more bool, show func(R) T, id func(R) string) page[T] {
	p := page[T]{Items: make([]T, 0, len(rows))}
	for _, row := range rows {
		p.Items = append(p.Items, show(row))
	}
	if more {
		next := id(rows[len(rows)-1])
		p.Next = &next
	}
	return p
}

// startConversation handles POST /api/v1/widget/conversations.
func (b *Backend) startConversation(r *request) error {
	if err := r.noBody(); err != nil {
		return err
	}
	c := sqlite.Conversation{ID: newID("cnv"), Created: r.now}
	if err := b.db.StartConversation(r.Context(), r.session.ID, c.ID, c.Created); err != nil {
		return err
	}
	return r.answer(http.StatusCreated, showConversation(c))
}

// noBody accepts an empty body or an empty object, and refuses any other.
func (r *request) noBody() error {
	f, err := r.optionalForm()
	if err != nil {
		return err
	}
	return check(f)
}

// listConversations handles GET /api/v1/widget/conversations: those of the session, oldest first.
func (b *Backend) listConversations(r *request) error {
	limit, err := r.limit(defaultPage, maxPage)
	if err != nil {
		return err
	}
	after := r.query.Get("after")
	rows, more, err := b.db.Conversations(r.Context(), r.session.ID, after, limit)
	if errors.Is(err, sqlite.ErrNotFound) {
		return refuse(http.StatusBadRequest, "query parameter \"after\" is %s: expected the \"next\" of the page before", show(after))
	}
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, showPage(rows, more, showConversation, func(c sqlite.Conversation) string { return c.ID }))
}

// readConversation handles GET /api/v1/widget/conversations/{id}: the conversation and a page of
// its messages, oldest first.
func (b *Backend) readConversation(r *request) error {
	limit, err := r.limit(defaultPage, maxPage)
	if err != nil {
		return err
	}
	id, after := r.parameters[0], r.query.Get("after")
	c, rows, more, err := b.db.Messages(r.Context(), r.session.ID, id, after, limit)
	if errors.Is(err, sqlite.ErrNotFound) && c.ID != "" {
		return refuse(http.StatusBadRequest, "query parameter \"after\" is %s: expected the \"next\" of the page before", show(after))
	}
	if err != nil {
		return aboutConversation(id, err)
	}
	return r.answer(http.StatusOK, struct {
		conversation
		Messages page[message] `json:"messages"`
	}{showConversation(c), showPage(rows, more, showMessage, func(m sqlite.Message) string { return m.ID })})
}

// closeConversation handles POST /api/v1/widget/conversations/{id}/close, which can be repeated.
func (b *Backend) closeConversation(r *request) error {
	if err := r.noBody(); err != nil {
		return err
	}
	id := r.parameters[0]
	c, err := b.db.CloseConversation(r.Context(), r.session.ID, id, r.now)
	if err != nil {
		return aboutConversation(id, err)
	}
	return r.answer(http.StatusOK, showConversation(c))
}
