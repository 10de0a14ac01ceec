package http2

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/wire"
)

// reply answers with one of the gateway's own answers.
func (x *exchange) reply(a *rules.Answer) {
	var body []byte
	x.fields, body = x.c.engine.Append(x.fields[:0], a, x.Header("Accept"))
	x.complete(a.Status)
	x.write(a.Status, body)
}

// refuse answers a message that HTTP does not allow.
func (x *exchange) refuse(r *wire.Refusal) {
	x.limited, x.CORS = false, nil
	x.reply(x.c.engine.RejectMalformed(r.Status, r.Reason))
}

// complete reports an answer to the limiter, and puts into its header the limiter's fields, instead
// of the backend's own, the fields for browsers, and a Date.
func (x *exchange) complete(status int) {
	x.reportHead(status)
	if x.limited {
		x.stamp(status)
	}
	if (!x.limited || x.answer.Outcome == answer.Denied) && !x.fields.Has("Date") {
		x.fields = append(x.fields, answer.Field{Name: "Date", Value: x.c.engine.Date(time.Now().Unix())})
	}
	if x.CORS != nil && !x.IsPreflight() {
		x.CORS.Complete(&x.fields, x.Origin)
	}
}

// stamp puts the limiter's fields into the header.
func (x *exchange) stamp(status int) {
	var retryAfter []string
	kept := x.fields[:0]
	for _, f := range x.fields {
		if !x.answer.Owns(f.Name) {
			kept = append(kept, f)
		} else if status == http.StatusTooManyRequests && wire.EqualFold(f.Name, "Retry-After") {
			retryAfter = append(retryAfter, f.Value)
		}
	}
	x.fields = kept
	admitted := x.answer.Status == 0 // so the backend answers, or the gateway
	if admitted && status == http.StatusTooManyRequests {
		x.answer.BackendRefused(retryAfter)
	}
	x.fields = x.answer.AppendFields(x.fields)
}

// write appends an answer of our own, whose header is complete, to what goes to the client.
func (x *exchange) write(status int, body []byte) {
	c, s := x.c, x.s
	x.Status = status
	if status != http.StatusNoContent && !x.fields.Has("Content-Length") {
		x.fields = append(x.fields, answer.Field{Name: "Content-Length", Value: strconv.Itoa(len(body))})
	}
	if x.head.Method == http.MethodHead {
		body = nil
	}
	x.Written = int64(len(body))
	x.reportServed()
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.gone || c.broken != nil {
		x.noteGone()
		return
	}
	x.appendHead(status, len(body) == 0)
	switch n, err := s.sendable(len(body)); {
	case err != nil:
		x.Aborted = true
		return
	case len(body) > 0 && n < len(body):
		x.unsent = body
		return
	case len(body) > 0:
		c.appendData(s.id, body, true)
		c.window -= int64(n)
		s.window -= int64(n)
	}
	x.end()
}

// endsUnanswered reports whether the stream has ended, and then records why, unless its answer has
// begun.
func (x *exchange) endsUnanswered() bool {
	x.s.c.mu.Lock()
	defer x.s.c.mu.Unlock()
	if x.s.gone && x.Status == 0 {
		x.noteGone()
	}
	return x.s.gone
}

// noteGone records why a stream that has ended gets no answer: its client left, or its stream was
// reset because its body is malformed, for which the log has the status of malformed requests. The
// mutex is held.
func (x *exchange) noteGone() {
	if x.s.isMalformed() {
		x.Status = http.StatusBadRequest
		return
	}
	x.Gone = true
}

// appendHead appends the head of the answer. The connection ends after it if it is to go elsewhere.
// The mutex of the connection is held.
func (x *exchange) appendHead(status int, ends bool) {
	c := x.c
	c.appendHead(x.s.id, status, x.fields, ends)
	x.s.begun = true
	if x.Outdated || c.engine.Lingering.Load() {
		c.announce()
	}
}

// end records that the last frame of the answer was appended. The mutex of the connection is held.
func (x *exchange) end() {
	x.c.bounds.done()
	x.s.complete()
	if x.resets {
		x.c.reset(x.s, http2.ErrCodeProtocol)
	}
}

// takeFields takes from the upstream's answer the fields that are meant for the client.
func (x *exchange) takeFields(a *wire.Response) {
	x.fields = x.fields[:0]
	named := len(a.Values("Connection")) > 0
	for _, f := range a.Fields {
		if rules.IsHop(f.Name) || wire.EqualFold(f.Name, "Content-Length") || named && a.Names(f.Name) {
			continue
		}
		x.fields = append(x.fields, answer.Field(f))
	}
}

// dropReserved drops the fields that only the limiter may send.
func (x *exchange) dropReserved() {
	x.fields = slices.DeleteFunc(x.fields, func(f answer.Field) bool { return x.c.engine.IsReserved(f.Name) })
}
