package sample

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"time"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const maxEventData = 4096 // bytes of an event's data, as compact JSON

var eventType = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$`)

// An event is the JSON of an event.
type event struct {
	ID int64 `json:"id"` // 1, 2, 3 … within the conversation
	// Source is "visitor" for an event reported through the API, otherwise "server".
	Source  string          `json:"source"`
	Type    string          `json:"type"`
	Data    json.RawMessage `json:"data"`
	Created string          `json:"created_at"`
}

// reportEvent handles POST /api/v1/widget/events.
func (b *Backend) reportEvent(r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	e := sqlite.Event{Source: sqlite.FromVisitor, Created: r.now}
	e.Type = f.line("type", 1, 64)
	e.Data = f.object("data", maxEventData)
	conversation := f.line("conversation_id", 0, maxID)
	if e.Type != "" && !eventType.MatchString(e.Type) {
		f.problem("field \"type\" is %s: expected letters, digits, dots, colons, dashes and underscores, starting with a letter or digit", show(e.Type))
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

// An eventPage is a part of a conversation's feed.
type eventPage struct {
	Conversation string  `json:"conversation_id"`
	Items        []event `json:"items"`
	Next         int64   `json:"next"` // the value of "after" for the next request
	More         bool    `json:"more"` // whether there are events after Next
}

// A cursor is a position in a conversation's feed: after the event with that number. An empty
// conversation is the session's newest.
type cursor struct {
	conversation string
	after        int64
}

// maxWait is the max time for which an answer waits for an event.
const maxWait = 25 * time.Second

// readEvents handles GET /api/v1/widget/events: the events of a conversation after a cursor, at
// once, as soon as there is one, or as a stream.
func (b *Backend) readEvents(r *request) error {
	r.w.Header().Add("Vary", "Accept")
	if prefersStream(r.Header.Values("Accept")) {
		return b.streamEvents(r)
	}
	limit, err := r.limit(maxPage, 500)
	if err != nil {
		return err
	}
	wait, err := r.wait()
	if err != nil {
		return err
	}
	from, err := r.cursor()
	if err != nil {
		return err
	}
	page, err := b.eventsAfter(r, from, limit)
	if err != nil {
		return err
	}
	if len(page.Items) == 0 && wait > 0 && r.Method != http.MethodHead {
		from.conversation = page.Conversation // a newer one may be started meanwhile
		if page, err = b.awaitEvents(r, from, limit, wait); err != nil {
			return err
		}
	}
	return r.answer(http.StatusOK, page)
}

// awaitEvents is eventsAfter, but it waits until there is an event or the time is over.
func (b *Backend) awaitEvents(r *request, from cursor, limit int, wait time.Duration) (eventPage, error) {
	release, err := b.hold(r)
	if err != nil {
		return eventPage{}, err
	}
	defer release()
	news := b.feed.listen(from.conversation)
	defer news.leave()
	over := time.NewTimer(min(wait, r.session.Expires.Sub(b.now())))
	defer over.Stop()
	for {
		page, err := b.eventsAfter(r, from, limit)
		if err != nil || len(page.Items) > 0 {
			return page, err
		}
		select {
		case <-news.wake:
		case <-over.C:
			return page, nil
		case <-b.feed.draining:
			return page, nil
		case <-r.Context().Done():
			return page, nil // the client has disconnected
		}
	}
}

// eventsAfter reads up to limit events after a cursor.
func (b *Backend) eventsAfter(r *request, from cursor, limit int) (eventPage, error) {
	id, rows, more, err := b.db.Events(r.Context(), r.session.ID, from.conversation, from.after, limit)
	if errors.Is(err, sqlite.ErrFuture) {
		return eventPage{}, refuse(http.StatusBadRequest, "event %d is beyond the newest: start again from 0", from.after)
	}
	if err != nil {
		return eventPage{}, aboutConversation(from.conversation, err)
	}
	page := eventPage{id, make([]event, 0, len(rows)), from.after, more}
	for _, e := range rows {
		page.Items = append(page.Items, event{e.N, e.Source, e.Type, e.Data, formatTime(e.Created)})
		page.Next = e.N
	}
	return page, nil
}

// wait returns how long the answer may wait for an event, from the query.
func (r *request) wait() (time.Duration, error) {
	given := r.query.Get("wait")
	if given == "" {
		return 0, nil
	}
	n, ok := wholeNumber(given)
	if most := int64(maxWait / time.Second); !ok || n > most {
		return 0, refuse(http.StatusBadRequest, "query parameter \"wait\" is %s: expected whole seconds from 0 to %d", show(given), most)
	}
	return time.Duration(n) * time.Second, nil
}

// cursor returns the cursor of the query. The default is the start of the newest conversation.
func (r *request) cursor() (cursor, error) {
	c := cursor{conversation: r.query.Get("conversation_id")}
	if given := r.query.Get("after"); given != "" {
		var ok bool
		if c.after, ok = wholeNumber(given); !ok {
			return c, refuse(http.StatusBadRequest, "query parameter \"after\" is %s: expected the id of an event, or 0", show(given))
		}
	}
	return c, nil
}
