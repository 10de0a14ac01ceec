package std

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/rules"
)

// An exchange is one request under way: the ResponseWriter that handlers write to, the request's
// body, and its record for the access log. It is the only allocation that the gateway makes for a
// request.
type exchange struct {
	http.ResponseWriter // the server's own
	engine              *Engine
	request             *http.Request // as the handlers get it
	rules.Record
	rules.Route

	isHijacked bool
	leave      func()   // closes the upstream's connection of a websocket; nil: there is none
	isEarly    bool     // HTTP/1: the answer came before the request's body was whole
	identified bool     // Client is known
	chain      []byte   // before an upstream: the X-Forwarded-For that it gets
	addresses  [48]byte // of chain, mostly

	http2    bool
	explicit atomic.Bool    // the handler has set a write deadline of its own
	pending  int            // HTTP/2: an upper bound of the bytes that the server buffers
	taken    pace.Allowance // HTTP/2: of a client that takes the answer
	conn     *pace.Conn     // HTTP/2: of the answer, once it is written; nil: not known

	body requestBody
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader completes the header with the fields for browsers. Informational answers pass as they
// are; HTTP/1.0, which has none, gets none.
func (x *exchange) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		x.inform(status)
		return
	}
	if status >= 200 && x.Status == 0 {
		x.Status = status
		if status >= http.StatusInternalServerError && x.hasLeft() {
			x.Gone = true // which may be why it failed
		}
		h := x.Header()
		if x.CORS != nil && !x.IsPreflight() {
			x.CORS.Complete(header(h), x.Origin)
		}
		if _, typed := h["Content-Type"]; !typed && x.engine.isBeforeSites() {
			h["Content-Type"] = nil // net/http would guess what the upstream did not declare
		}
		x.farewell()
	}
	x.ResponseWriter.WriteHeader(status)
}

// inform writes an informational answer.
func (x *exchange) inform(status int) {
	switch {
	case !x.request.ProtoAtLeast(1, 1):
	case !x.http2:
		x.ResponseWriter.WriteHeader(status)
	default:
		// The server encodes the header in another goroutine, and does not wait for that if the
		// stream is reset, so a later change would be a concurrent one. It copies a header with a
		// length, which it leaves out of such an answer.
		h := x.Header()
		length, ok := h["Content-Length"]
		h["Content-Length"] = []string{"0"}
		x.ResponseWriter.WriteHeader(status)
		if delete(h, "Content-Length"); ok {
			h["Content-Length"] = length
		}
	}
}

// hasLeft reports whether the client has ended the request. (A body that comes too slowly, or is
// not read any more, ends HTTP/1's context as well.)
func (x *exchange) hasLeft() bool {
	return x.request.Context().Err() != nil && !x.body.isCut() && !pace.IsTimeout(x.body.failure())
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.Status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	var n int
	var err error
	if x.http2 {
		n, err = x.writeStream(p)
	} else {
		n, err = x.ResponseWriter.Write(p)
	}
	if x.request.Method != http.MethodHead {
		x.Written += int64(n)
	}
	return n, err
}

// Flush implements http.Flusher.
func (x *exchange) Flush() { _ = x.FlushError() }

// FlushError is for http.ResponseController.
func (x *exchange) FlushError() error {
	if x.Status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	if x.http2 {
		x.pending = 0
		defer x.paceStream()()
	}
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// farewell makes the server close the connection after this answer, if the gateway lingers. On
// HTTP/2 the server sends GOAWAY, and ends the connection when its streams have ended.
func (x *exchange) farewell() {
	if x.engine.Lingering.Load() {
		x.Header()["Connection"] = []string{"close"}
	}
}

// finish is called when the handlers have returned.
func (x *exchange) finish() {
	if x.http2 {
		// What the server has buffered goes out later, under this deadline. The deadline ends with
		// the stream.
		_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(time.Now().Add(x.engine.Limits.Take))
	}
	if x.Status == 0 {
		x.farewell() // the server answers 200 by itself
	}
	if !x.isHijacked {
		x.body.finish()
	}
	if !x.Reached && !x.Aborted {
		x.body.discard()
	}
	if form := x.request.MultipartForm; form != nil {
		_ = form.RemoveAll() // the server cannot: the form is on our copy of the request
	}
}

// endEarly has HTTP/1's server end the connection after an answer that comes before the request's
// body was whole.
func (x *exchange) endEarly() {
	x.isEarly = true
	endAfterAnswer(x.ResponseWriter)
}

// settle ends a body that is not wanted any more, after the request's line is in the access log:
// the answer broke off, or came before the body.
func (x *exchange) settle() {
	switch {
	case x.isHijacked || !x.body.isLeft():
	case x.Aborted:
		x.body.settle(0)
	case x.isEarly || x.request.Header["Expect"] != nil && x.request.ProtoAtLeast(1, 1):
		x.body.settle(discardPatience)
	}
}

// report reports the request, whose answer is complete.
func (x *exchange) report() {
	if e := x.engine; e.AccessLog != nil {
		x.identify(x)
		x.Method, x.Host, x.Proto = x.request.Method, x.request.Host, x.request.Proto
		for _, name := range [...]string{"User-Agent", "X-Request-Id", "Traceparent"} {
			for _, value := range x.request.Header[name] {
				x.NoteField(e.LogFields, name, value)
			}
		}
		if trace := e.options.Traceparent; trace != nil && e.LogFields&rules.LogTraceparent != 0 {
			x.Joined.Traceparent = trace(x.request.Context())
		}
	}
	x.engine.Finish(&x.Record, x.Site, time.Now())
}

// exchangeOf returns the exchange under w, which others may have wrapped; nil if there is none.
func exchangeOf(w http.ResponseWriter) *exchange {
	for {
		if x, ok := w.(*exchange); ok {
			return x
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = u.Unwrap()
	}
}

// identify records the client's address, if the limiter's judgement has not (Judged). w is the
// writer that the innermost handler was given, which knows the caller, or x if no handler was
// reached.
func (x *exchange) identify(w http.ResponseWriter) {
	if x.identified {
		return
	}
	caller, ok := httplimit.CallerOf(w)
	if !ok {
		caller = new(identity.Caller)
		x.engine.Identity.Start(caller, &identity.HTTPRequest{Request: x.request})
	}
	x.noteCaller(caller)
}

// noteCaller records who is calling, and keeps nothing of c.
func (x *exchange) noteCaller(c *identity.Caller) {
	x.identified = true
	x.Client = c.Addr()
	if x.engine.isBeforeSites() {
		x.chain = c.AppendChain(x.addresses[:0])
	}
}
