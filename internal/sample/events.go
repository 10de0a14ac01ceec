package sample

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const mostData = 4096 // bytes of an event's data, as compact JSON

var eventType = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$`)

// An event is how answers show one.
type event struct {
	ID      int64           `json:"id"`     // 1, 2, 3 … within the conversation
	Source  string          `json:"source"` // visitor: reported through the API; server: everything else
	Type    string          `json:"type"`
	Data    json.RawMessage `json:"data"`
	Created string          `json:"created_at"`
}

// reportEvent answers POST /api/v1/widget/events.
func (b *Backend) reportEvent(r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	e := sqlite.Event{Source: sqlite.FromVisitor, Created: r.now}
	e.Type = f.line("type", 1, 64)
	e.Data = f.object("data", mostData)
	conversation := f.line("conversation_id", 0, mostID)
	if e.Type != "" && !eventType.MatchString(e.Type) {
		f.problem("field \"type\" is %s: want letters, digits, dots, colons, dashes and underscores, starting with a letter or digit", show(e.Type))
	}
	if err := check(f); err != nil {
		return err
	}
	id, n, err := b.db.Report(r.Context(), r.session.ID, conversation, e)
	if err != nil {
		return aboutConversation(conversation, err)
	}
	return r.answer(http.StatusAccepted, struct {
		ID           int64  `json:"id"`
		Conversation string `json:"conversation_id"`
	}{n, id})
}

// readEvents answers GET /api/v1/widget/events: what the conversation's feed holds after an event, at once.
func (b *Backend) readEvents(r *request) error {
	limit, err := r.limit(mostPage, 500)
	if err != nil {
		return err
	}
	after, err := int64(0), error(nil)
	if given := r.query.Get("after"); given != "" {
		if after, err = strconv.ParseInt(given, 10, 64); err != nil || after < 0 {
			return refuse(http.StatusBadRequest, "query parameter \"after\" is %s: want the id of an event, or 0", show(given))
		}
	}
	conversation := r.query.Get("conversation_id")
	id, rows, more, err := b.db.Events(r.Context(), r.session.ID, conversation, after, limit)
	if errors.Is(err, sqlite.ErrFuture) {
		return refuse(http.StatusBadRequest, "query parameter \"after\" is %d, beyond the newest event: start again from 0", after)
	}
	if err != nil {
		return aboutConversation(conversation, err)
	}
	answer := struct {
		Conversation string  `json:"conversation_id"`
		Items        []event `json:"items"`
		Next         int64   `json:"next"` // the after of the next request
		More         bool    `json:"more"` // whether it will find something by now
	}{id, make([]event, 0, len(rows)), after, more}
	for _, e := range rows {
		answer.Items = append(answer.Items, event{e.N, e.Source, e.Type, e.Data, stamp(e.Created)})
		answer.Next = e.N
	}
	return r.answer(http.StatusOK, answer)
}
