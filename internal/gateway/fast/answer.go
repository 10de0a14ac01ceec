package fast

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/internal/wire"
)

// A fieldList is the header of an answer.
type fieldList []httplimit.Field

func (l *fieldList) values(name string) (values []string) {
	for i := range *l {
		if f := &(*l)[i]; wire.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

func (l *fieldList) has(name string) bool {
	for i := range *l {
		if f := &(*l)[i]; wire.EqualFold(f.Name, name) {
			return true
		}
	}
	return false
}

func (l *fieldList) put(name string, values []string) {
	l.remove(name)
	for _, v := range values {
		*l = append(*l, httplimit.Field{Name: name, Value: v})
	}
}

func (l *fieldList) remove(name string) {
	if !l.has(name) {
		return
	}
	*l = slices.DeleteFunc(*l, func(f httplimit.Field) bool { return wire.EqualFold(f.Name, name) })
}

// complete makes the header of an answer what it must be: with the limiter's fields in place of the backend's own, with what
// browsers need, with a Date.
func (x *fastExchange) complete(status int) {
	if x.limited {
		x.stamp(status)
	} else if !x.fields.has("Date") {
		x.fields = append(x.fields, httplimit.Field{Name: "Date", Value: x.c.engine.dates.At(time.Now().Unix())})
	}
	if x.cors != nil && !x.preflight {
		x.cors.complete(&x.fields, x.origin)
	}
	if x.c.engine.lingering.Load() || x.c.engine.ending.Load() {
		x.closes = true
	}
}

// stamp puts the limiter's fields into the header.
func (x *fastExchange) stamp(status int) {
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
	own := x.answer.Status == 0 // the backend's, or the gateway's
	if own && status == http.StatusTooManyRequests {
		x.answer.BackendRefused(retryAfter)
	}
	x.fields = x.answer.AppendFields(x.fields)
}

// send writes an answer of our own, whose header is complete. If the client has ended its half of the
// connection, a failure is logged as 499, for it may be a consequence of that. It is written all the
// same: a client that has only ended its half still reads.
func (x *fastExchange) send(status int, body []byte) {
	x.status = status
	if status >= http.StatusInternalServerError && x.c.hasLeft() {
		x.gone = true
		x.closes = true
	}
	x.beginHead(status, "")
	if !x.fields.has("Content-Length") && status != http.StatusNoContent {
		x.out = append(strconv.AppendInt(append(x.out, "Content-Length: "...), int64(len(body)), 10), "\r\n"...)
	}
	if x.body.isTooMuch() {
		x.closes = true
	}
	x.appendConnection()
	x.out = append(x.out, "\r\n"...)
	if x.head.Method != http.MethodHead {
		x.out = append(x.out, body...)
		x.written = int64(len(body))
	}
	if _, err := x.c.Write(x.out); err != nil {
		x.closes = true
	}
}

// beginHead begins what goes out with the status line and the fields of the answer.
func (x *fastExchange) beginHead(status int, reason string) {
	x.out = wire.AppendStatus(x.out[:0], status, reason)
	for i := range x.fields {
		x.out = wire.AppendField(x.out, x.fields[i].Name, x.fields[i].Value)
	}
}

// appendConnection says whether the connection goes on.
func (x *fastExchange) appendConnection() {
	switch {
	case x.closes:
		x.out = append(x.out, "Connection: close\r\n"...)
	case x.head.Minor == 0:
		x.out = append(x.out, "Connection: keep-alive\r\n"...)
	}
}

// refuse answers what HTTP does not allow.
func (x *fastExchange) refuse(r *wire.Refusal) {
	x.closes, x.limited, x.cors = true, false, nil
	x.c.engine.malformed.add(r.Status)
	x.fail(&failure{r.Status, "invalid_request", "This request cannot be taken: " + r.Reason + "."})
}
