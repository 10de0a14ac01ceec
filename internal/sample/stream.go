package sample

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// streamPage is the number of events that a stream reads at a time. At 4 KiB each, it bounds
	// the memory of a slow stream.
	streamPage = 16
	// reconnect is the delay after which clients are asked to reconnect.
	reconnect = 2 * time.Second
)

// prefersStream reports whether an Accept field names text/event-stream with a quality at least
// that of application/json (RFC 9110, section 12.5.1). Wildcards count as JSON.
func prefersStream(accept []string) bool {
	var stream, plain float64
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, parameters, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if given, ok := parameters["q"]; ok {
			if q, err = strconv.ParseFloat(given, 64); err != nil || !(0 <= q && q <= 1) {
				continue
			}
		}
		switch media {
		case "text/event-stream":
			stream = max(stream, q)
		case "application/json":
			plain = max(plain, q)
		}
	}
	return stream > 0 && stream >= plain
}

// streamCursor returns where a stream begins: after Last-Event-ID, or else at the cursor of the
// query.
func (r *request) streamCursor() (cursor, error) {
	for _, name := range []string{"limit", "wait"} {
		if r.query.Has(name) {
			return cursor{}, refuse(http.StatusBadRequest, "query parameter %q goes with JSON: a text/event-stream takes \"after\" and \"conversation_id\"", name)
		}
	}
	asked, err := r.cursor()
	if err != nil {
		return asked, err
	}
	given := strings.Join(r.Header.Values("Last-Event-Id"), ", ")
	if given == "" {
		return asked, nil
	}
	last, ok := parseCursor(given)
	if !ok {
		return last, refuse(http.StatusBadRequest, "Last-Event-ID is %s: expected the id of an event as a stream shows it, CONVERSATION/NUMBER", show(given))
	}
	if asked.conversation != "" && asked.conversation != last.conversation {
		return last, refuse(http.StatusBadRequest, "Last-Event-ID names conversation %s and \"conversation_id\" %s: expected the same, or one of them",
			show(last.conversation), show(asked.conversation))
	}
	return last, nil
}

// String returns the cursor as the id of an event in a stream, for parseCursor.
func (c cursor) String() string { return c.conversation + "/" + strconv.FormatInt(c.after, 10) }

func parseCursor(s string) (c cursor, ok bool) {
	conversation, number, _ := strings.Cut(s, "/")
	n, ok := wholeNumber(number)
	return cursor{conversation, n}, ok && conversation != "" && len(conversation) <= maxID
}

// streamEvents answers with a conversation's feed as text/event-stream, until the session's token
// expires or the server drains.
func (b *Backend) streamEvents(r *request) error {
	from, err := r.streamCursor()
	if err != nil {
		return err
	}
	if r.Method != http.MethodHead {
		release, err := b.hold(r) // before the first read, so that refusing many requests is cheap
		if err != nil {
			return err
		}
		defer release()
	}
	start, err := b.eventsAfter(r, from, 1) // checks the cursor
	if err != nil {
		return err
	}
	from.conversation = start.Conversation
	h := r.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // turns off buffering in nginx
	r.w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	s := &stream{Backend: b, request: r, at: from, out: http.NewResponseController(r.w)}
	switch err := s.run(); {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		panic(http.ErrAbortHandler) // the client does not read
	case r.Context().Err() != nil: // the client has disconnected
	default:
		// The client reconnects and resumes.
		b.log.Warn("sample backend: event stream ended", "error", err)
	}
	return nil
}

// A stream is one client's event stream. It holds a page of events while it writes them, and
// otherwise only a cursor.
type stream struct {
	*Backend
	request *request
	at      cursor // after the last event written
	out     *http.ResponseController
}

// run writes events until the stream ends, when it returns nil, or fails.
func (s *stream) run() error {
	news := s.feed.listen(s.at.conversation)
	defer news.leave()
	beat := time.NewTicker(s.heartbeat)
	defer beat.Stop()
	expiry := time.NewTimer(s.remaining())
	defer expiry.Stop()
	if err := s.send(fmt.Sprintf("retry: %d\n\n", reconnect.Milliseconds())); err != nil {
		return err
	}
	for {
		wrote, err := s.catchUp()
		if err != nil {
			return err
		}
		if wrote {
			beat.Reset(s.heartbeat)
		}
		select {
		case <-news.wake:
		case <-beat.C:
			err = s.send(":\n\n")
		case <-expiry.C:
			expiry.Reset(s.remaining()) // the clock may be behind the timer
		case <-s.feed.draining:
		case <-s.request.Context().Done():
			err = context.Cause(s.request.Context())
		}
		if over := s.lastComment(); err != nil || over != "" {
			return errors.Join(err, s.send(over))
		}
	}
}

// remaining returns the time until the session's token expires. The clock may run differently from
// timers, so it is read at each heartbeat.
func (s *stream) remaining() time.Duration { return s.request.session.Expires.Sub(s.now()) }

// lastComment returns the comment that ends the stream, or "" for a stream that goes on.
func (s *stream) lastComment() string {
	select {
	case <-s.feed.draining:
		return ": the server restarts\n\n"
	default:
	}
	if s.remaining() <= 0 {
		return ": the session's token has expired\n\n"
	}
	return ""
}

// catchUp writes the events after the cursor, page by page, and reports whether there were any.
func (s *stream) catchUp() (wrote bool, err error) {
	for s.lastComment() == "" {
		page, err := s.eventsAfter(s.request, s.at, streamPage)
		if err != nil {
			return wrote, err
		}
		for _, e := range page.Items {
			s.at.after = e.ID
			data, err := json.Marshal(struct {
				Conversation string `json:"conversation_id"`
				event
			}{s.at.conversation, e})
			if err != nil {
				return wrote, err
			}
			if err := s.write("id: " + s.at.String() + "\ndata: " + string(data) + "\n\n"); err != nil {
				return wrote, err
			}
			wrote = true
		}
		if wrote {
			if err := s.flush(); err != nil {
				return wrote, err
			}
		}
		if !page.More {
			break
		}
	}
	return wrote, nil
}

// send writes and flushes text, unless it is empty.
func (s *stream) send(text string) error {
	if text == "" {
		return nil
	}
	if err := s.write(text); err != nil {
		return err
	}
	return s.flush()
}

// write writes text with a deadline of one stall time-out. flush must follow soon.
func (s *stream) write(text string) error {
	if err := s.deadline(time.Now().Add(s.stall)); err != nil {
		return err
	}
	_, err := s.request.w.Write([]byte(text))
	return err
}

// flush flushes under the deadline of the last write and then clears it, because the next write may
// be long after.
func (s *stream) flush() error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	return s.deadline(time.Time{})
}

// deadline sets the write deadline of a connection that supports one.
func (s *stream) deadline(t time.Time) error {
	if err := s.out.SetWriteDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
