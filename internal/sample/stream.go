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
	// streamPage is how many events a stream reads at a time: what a client that is behind makes us keep, 4 KiB each.
	streamPage = 16
	// reconnect is how long a client is asked to wait before it comes back.
	reconnect = 2 * time.Second
)

// prefersStream reports whether an Accept field asks for text/event-stream by name, and for JSON, if by name, no more
// than that (RFC 9110, section 12.5.1). What stands for any media type stands for JSON.
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

// streamCursor is where a stream begins: where its client's last one ended, else where the query says.
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
		return last, refuse(http.StatusBadRequest, "Last-Event-ID is %s: want the id of an event as a stream shows it, CONVERSATION/NUMBER", show(given))
	}
	if asked.conversation != "" && asked.conversation != last.conversation {
		return last, refuse(http.StatusBadRequest, "Last-Event-ID names conversation %s and \"conversation_id\" %s: want the same, or one of them",
			show(last.conversation), show(asked.conversation))
	}
	return last, nil
}

// String is the cursor as the id of an event in a stream; parseCursor reads it.
func (c cursor) String() string { return c.conversation + "/" + strconv.FormatInt(c.after, 10) }

func parseCursor(s string) (c cursor, ok bool) {
	conversation, number, _ := strings.Cut(s, "/")
	n, ok := wholeNumber(number)
	return cursor{conversation, n}, ok && conversation != "" && len(conversation) <= mostID
}

// streamEvents answers with a conversation's feed as text/event-stream, from a cursor on, for as long as the session's
// token holds and this server serves.
func (b *Backend) streamEvents(r *request) error {
	from, err := r.streamCursor()
	if err != nil {
		return err
	}
	if r.Method != http.MethodHead {
		release, err := b.hold(r) // before anything is read: a crowd that is refused should cost little
		if err != nil {
			return err
		}
		defer release()
	}
	start, err := b.eventsAfter(r, from, 1) // or what is wrong with the cursor
	if err != nil {
		return err
	}
	from.conversation = start.Conversation
	h := r.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // or nginx would keep it to itself
	r.w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	s := &stream{Backend: b, request: r, at: from, out: http.NewResponseController(r.w)}
	switch err := s.run(); {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		panic(http.ErrAbortHandler) // nothing more can be said to this client
	case r.Context().Err() != nil: // it has left
	default:
		b.log.Warn("sample backend: event stream ended", "error", err) // its client comes back, and goes on where it was
	}
	return nil
}

// A stream is one client's view of a feed. It keeps a page of events while it is behind, and nothing but a cursor else.
type stream struct {
	*Backend
	request *request
	at      cursor // after what was written last
	out     *http.ResponseController
}

// run writes events until the stream is at its end, nil, or cannot go on.
func (s *stream) run() error {
	news := s.feed.listen(s.at.conversation)
	defer news.leave()
	beat := time.NewTicker(s.heartbeat)
	defer beat.Stop()
	expiry := time.NewTimer(s.left())
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
			expiry.Reset(s.left()) // should the clock not agree with the timer yet
		case <-s.feed.draining:
		case <-s.request.Context().Done():
			err = context.Cause(s.request.Context())
		}
		if over := s.over(); err != nil || over != "" {
			return errors.Join(err, s.send(over))
		}
	}
}

// left is how long the session's token holds. The clock may move otherwise than timers do: it is asked at each heartbeat.
func (s *stream) left() time.Duration { return s.request.session.Expires.Sub(s.now()) }

// over is the last that a stream says; empty while it goes on.
func (s *stream) over() string {
	select {
	case <-s.feed.draining:
		return ": the server restarts\n\n"
	default:
	}
	if s.left() <= 0 {
		return ": the session's token has expired\n\n"
	}
	return ""
}

// catchUp writes what there is after the cursor, page by page, and says whether that was anything.
func (s *stream) catchUp() (wrote bool, err error) {
	for s.over() == "" {
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

// send writes text, if there is any, and sees it off.
func (s *stream) send(text string) error {
	if text == "" {
		return nil
	}
	if err := s.write(text); err != nil {
		return err
	}
	return s.flush()
}

// write writes text within the time that a client has for that. A flush must follow soon.
func (s *stream) write(text string) error {
	if err := s.deadline(time.Now().Add(s.stall)); err != nil {
		return err
	}
	_, err := s.request.w.Write([]byte(text))
	return err
}

// flush sees off what was written, under the deadline of the last write, and leaves none behind: the next write may be a
// long time ahead.
func (s *stream) flush() error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	return s.deadline(time.Time{})
}

// deadline sets the connection's or stream's, where it can have one.
func (s *stream) deadline(t time.Time) error {
	if err := s.out.SetWriteDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
