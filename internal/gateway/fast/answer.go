package fast

import (
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/wire"
)

// reply answers with one of the gateway's own answers.
func (x *exchange) reply(a *rules.Answer) {
	var body []byte
	x.fields, body = x.c.engine.Append(x.fields[:0], a, x.Header("Accept"))
	x.closes = x.closes || a.Closes
	x.complete(a.Status)
	x.send(a.Status, body)
}

// refuse answers a message that HTTP does not allow.
func (x *exchange) refuse(r *wire.Refusal) {
	x.limited, x.CORS = false, nil
	x.reply(x.c.engine.RejectMalformed(r.Status, r.Reason))
}

// complete reports an answer to the limiter, and puts into its header the limiter's fields,
// instead of the backend's own, the fields for browsers, and a Date.
func (x *exchange) complete(status int) {
	e := x.c.engine
	x.reportHead(status)
	if x.limited {
		x.stamp(status)
	}
	if (!x.limited || x.answer.Outcome == answer.Denied) && !x.fields.Has("Date") {
		x.fields = append(x.fields, answer.Field{Name: "Date", Value: e.Date(time.Now().Unix())})
	}
	if x.CORS != nil && !x.IsPreflight() {
		x.CORS.Complete(&x.fields, x.Origin)
	}
	if e.Lingering.Load() || e.ending.Load() {
		x.closes = true
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

// send writes an answer of our own, whose header is complete. If the client has ended its half of
// the connection, a failure is logged as 499, for that may be its cause. It is written all the
// same: a client that has only ended its half still reads.
func (x *exchange) send(status int, body []byte) {
	x.Status = status
	if status >= http.StatusInternalServerError && x.c.hasLeft() {
		x.Gone = true
		x.closes = true
	}
	x.beginHead(status, "")
	if !x.fields.Has("Content-Length") && status != http.StatusNoContent {
		x.out = append(strconv.AppendInt(append(x.out, "Content-Length: "...), int64(len(body)), 10), "\r\n"...)
	}
	if x.body.isTooMuch() {
		x.closes = true
	}
	x.appendConnection()
	x.out = append(x.out, "\r\n"...)
	if x.head.Method != http.MethodHead {
		x.out = append(x.out, body...)
		x.Written = int64(len(body))
	}
	x.reportServed()
	if _, err := x.c.Write(x.out); err != nil {
		x.closes = true
	}
}

// beginHead starts the answer's head with the status line and the fields.
func (x *exchange) beginHead(status int, reason string) {
	x.out = wire.AppendStatus(x.out[:0], status, reason)
	for i := range x.fields {
		x.out = wire.AppendField(x.out, x.fields[i].Name, x.fields[i].Value)
	}
}

// appendConnection appends whether the connection continues.
func (x *exchange) appendConnection() {
	switch {
	case x.closes:
		x.out = append(x.out, "Connection: close\r\n"...)
	case x.head.Minor == 0:
		x.out = append(x.out, "Connection: keep-alive\r\n"...)
	}
}
