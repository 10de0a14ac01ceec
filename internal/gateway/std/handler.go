package std

import (
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/wire"
)

// serve is one request from end to end.
func (e *Engine) serve(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, engine: e, request: r, Record: rules.Record{Start: time.Now()}, http2: r.ProtoMajor == 2}
	e.Active.Add(1)
	defer e.Active.Add(-1)
	for _, field := range [...]string{rules.ForwardedFor, rules.Forwarded} {
		if r.Header[field] != nil {
			e.NoteForwarder(identity.ParsePeer(r.RemoteAddr), field)
			break
		}
	}
	err := errExited
	defer func() { x.end(err) }()
	err = x.attempt(x.paceBody(r))
}

// end completes the answer, after err, writes the access log, and ends the body.
func (x *exchange) end(err error) {
	switch {
	case x.Gone || errors.Is(err, http.ErrAbortHandler):
		x.Aborted = true
		x.Gone = x.Gone || x.Status == 0 && x.hasLeft()
	case err == errExited || err != nil && x.Status != 0:
		x.Aborted = true
	case err != nil:
		write(x, &rules.Panicked)
	}
	x.finish()
	x.report()
	x.settle()
	if x.Aborted && !x.isHijacked {
		// this is how a handler has net/http end the connection, or the stream, at once
		panic(http.ErrAbortHandler)
	}
}

// errExited is why attempt has not returned: a handler has called runtime.Goexit, as the FailNow of
// a test does.
var errExited = errors.New("a handler ended its goroutine")

var errPanicked = errors.New("a handler panicked")

// attempt has the request answered. The error is http.ErrAbortHandler if a handler panicked with
// that, and errPanicked after any other panic, which is logged unless the client is gone.
func (x *exchange) attempt(r *http.Request) (err error) {
	defer func() {
		switch failure := recover(); failure {
		case nil:
		case http.ErrAbortHandler:
			err = http.ErrAbortHandler
		default:
			if err = errPanicked; !x.Gone {
				x.logPanic(failure)
			}
		}
	}()
	x.engine.route(x, r)
	return nil
}

// logPanic must be called by the deferred function that recovered.
func (x *exchange) logPanic(failure any) {
	x.engine.Log.Error("a handler panicked", "method", x.request.Method, "path", x.Path, "panic", failure, "stack", string(debug.Stack()))
}

// route finds what covers the request. Either the gateway answers it itself, or the backend does if
// the limiter admits it.
func (e *Engine) route(x *exchange, r *http.Request) {
	stripNominated(r.Header)
	if !wire.ValidHost(r.Host) {
		// net/http would accept it, and send the upstream another: the ASCII form of a name, an
		// address without its zone, or none
		write(x, e.RejectMalformed(wire.BadHost.Status, wire.BadHost.Reason))
		return
	}
	x.Asked = target.Request{Method: r.Method, Host: r.Host, Purpose: rules.Purpose(r.Method, r.Header.Get), Methods: e.Methods}
	e.Read(&x.Asked, r.RequestURI, r.URL)
	x.Asked.Query = r.URL.RawQuery
	if query := x.Asked.Query; query != "" && identity.AgentIsAmbiguous(query) {
		x.Asked.Ambiguous = !identity.NamesAgent(&identity.HTTPRequest{Request: r})
	}
	x.Path = rules.PathOf(&x.Asked, r.URL)
	e.Choose(&x.Route, r.Header.Get)
	if r.TLS != nil && e.IsOutdated(r.TLS.VerifiedChains, x.Start) {
		x.Outdated = true
		r.TLS = withoutCertificate(r.TLS)
	}
	if x.Asked.Sent != "" {
		x.Path = x.CountedPath()
	}
	x.Foreign = r.TLS != nil && e.IsForeign(identity.ParsePeer(r.RemoteAddr), r.TLS.ServerName, x.Asked.Host)
	own := e.Own(r.Context(), &x.Route, r.Header.Values)
	if own != nil && !x.IsLimited() {
		write(x, own)
		return
	}
	path := x.Path
	if x.CoverBy(&e.Options, x.Choice.Match); x.Path != path && e.options.TracePath != nil {
		e.options.TracePath(r.Context(), x.Path)
	}
	if own != nil {
		charge := e.Limit.Charge
		if x.Misdirected = own.Misdirects(); x.Misdirected {
			charge = e.Limit.Misdirect
		}
		charge(x, r, x.Choice.Match, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, own) }))
		return
	}
	e.Limit.Serve(x, r, x.Choice.Match, e.backend)
}

// Judged notes what the access log has of the limiter's decision, and who is calling, for the
// upstream: to ask for the caller later would keep the limiter from using its memory again
// (httplimit.CallerOf). It is the rules' Options.Judged; w is the exchange that the limiter was
// given.
func Judged(w http.ResponseWriter, c *identity.Caller, a *answer.Answer) {
	if x, ok := w.(*exchange); ok {
		x.NoteJudged(&x.engine.Options, c, a)
		x.noteCaller(c)
	}
}

// Ended notes what a request has cost, for the access log. It is the rules' Options.Ended.
func Ended(w http.ResponseWriter, reserved, used int64) {
	if x, ok := w.(*exchange); ok {
		x.Cost = rules.Cost{Reserved: reserved, Used: used}
	}
}

// write answers with one of the gateway's own answers.
func write(w http.ResponseWriter, a *rules.Answer) {
	h := w.Header()
	for _, f := range a.Fields {
		h.Add(f.Name, f.Value)
	}
	if a.Closes {
		h.Set("Connection", "close")
	}
	if a.Code != "" {
		x := exchangeOf(w)
		fields, body := x.engine.Append(nil, &rules.Answer{Status: a.Status, Code: a.Code, Message: a.Message}, x.request.Header["Accept"])
		httplimit.WriteAnswer(w, a.Status, fields, body)
		return
	}
	w.WriteHeader(a.Status)
	if a.Text != "" {
		_, _ = io.WriteString(w, a.Text)
	}
}

// serveBackend has the backend answer what is admitted. A panic of the backend becomes a 500 with
// the fields of the limiter, if no answer has begun.
func (e *Engine) serveBackend(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(w)
	if !e.attemptBackend(w, r, x) {
		clear(w.Header())
		write(w, &rules.Panicked)
	}
}

// attemptBackend has the backend answer. It reports false after a panic that can still be answered,
// which it logs; every other panic, and http.ErrAbortHandler, it passes on.
func (e *Engine) attemptBackend(w http.ResponseWriter, r *http.Request, x *exchange) (ok bool) {
	defer func() {
		if x.Status != 0 || x.isHijacked {
			return // it is too late for another answer
		}
		switch failure := recover(); failure {
		case nil:
		case http.ErrAbortHandler:
			panic(failure)
		default:
			x.logPanic(failure)
		}
	}()
	x.Reached = true
	x.identify(w)
	if limit := e.Limits.Body; limit > 0 && r.ContentLength != 0 {
		if r.ContentLength > limit {
			write(w, rules.BodyTooLarge(limit))
			return true
		}
		closes := x.ResponseWriter
		if e.isBeforeSites() {
			closes = nil // it would change the header from the goroutine that reads the body
		}
		r.Body = http.MaxBytesReader(closes, r.Body, limit)
	}
	if e.isBeforeSites() {
		e.forward(w, r)
	} else {
		e.options.Backend.ServeHTTP(w, r)
	}
	return true
}
