package httplimit

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/identity"
)

// A response is the ResponseWriter of one limited request. It and the digits of the fields are the
// only allocations for an admitted request, and it is small because allocating is most of what a
// limited request costs. A handler may keep its writer after it has returned, so a response is not
// reused. It has no optional interfaces; writers.go adds those.
type response struct {
	http.ResponseWriter // the server's, or that of an outer middleware

	exchange *exchange // nil after the handler has returned
	values   [4]string // the elements of the header's slices for the contract's fields and Date

	wrote    bool  // the header is written
	hijacked bool  // the handler has taken over the connection
	returned bool  // the handler has returned
	trailers bool  // the header announced trailers
	fields   int32 // in the header when it was written; any more are trailers
}

// An exchange is the state of one request while it is served. It comes from a pool and goes back
// there, unless the handler has asked for its caller or its decision (CallerOf, DecisionOf), or has
// hijacked its connection: a handler may keep those, so such an exchange is not reused.
type exchange struct {
	judge    *answer.Judge
	question answer.Question
	answer   answer.Answer
	caller   identity.Caller
	request  identity.HTTPRequest
	others   []answer.Field // what AppendOthers returned
	inner    innerAnswer    // of a limiter that this one is around
	ietf     bool           // the response has the fields of the IETF draft (agree)
	shown    bool
	held     bool  // the request ends with its hijacked connection
	reads    bool  // the body of the response is read for its cost
	left     int64 // bytes of it that are to come, if its end settles anything; negative: unknown

	mu sync.Mutex // guards answer if held
}

// begin returns an exchange for a request and its limiter.
func (m *Middleware) begin(r *http.Request, match weir.Match) *exchange {
	e := m.exchanges.Get().(*exchange)
	e.request.Request, e.reads, e.left = r, false, -1
	e.inner.written, e.inner.ietf, e.ietf = false, false, m.ietf
	m.identity.Start(&e.caller, &e.request)
	q := &e.question
	q.Caller, q.Method, q.Match, q.Chosen, q.Public, q.Misdirected = &e.caller, r.Method, match, true, false, false
	return e
}

// release returns e to the pool.
func (m *Middleware) release(e *exchange) {
	if e.shown {
		return
	}
	e.request.Request = nil // everything else is overwritten when e is used again
	m.exchanges.Put(e)
}

func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler, e *exchange) {
	if e.question.Match.Limiter() == nil {
		m.pass(w, r, e)
		next.ServeHTTP(w, r)
		return
	}
	x := &response{ResponseWriter: w, exchange: e}
	defer x.finish(m)
	if err := m.judge.Answer(r.Context(), &e.question, &e.answer); err != nil {
		x.wrote = true // writeError writes to w
		m.writeError(w, r, http.StatusInternalServerError, "internal", "The limits of this request could not be checked.")
		return
	}
	if m.judged != nil {
		m.judged(w, &e.caller, &e.answer)
	}
	if e.answer.Status != 0 {
		x.refuse(r.Method)
		return
	}
	if plain := e.answer.WantsPlain(); e.answer.Settles() && (plain || len(e.question.Match.Limiter().Notify) > 0) {
		own := ownRequest(r, plain)
		defer passBack(r, own)
		r = own
	}
	next.ServeHTTP(x.withInterfaces(&m.writers), r)
	x.returned = true
}

// pass observes a request that no limiter covers. A limiter in Shadow mode or a candidate policy
// may still evaluate it.
func (m *Middleware) pass(w http.ResponseWriter, r *http.Request, e *exchange) {
	// the question has the limiters' own cost, so there is no error
	_ = m.judge.Answer(r.Context(), &e.question, &e.answer)
	if m.judged != nil && e.question.Match.HasTrials() {
		m.judged(w, &e.caller, &e.answer)
	}
	m.release(e)
}

// refuse writes an answer that ends the request.
func (x *response) refuse(method string) {
	a := &x.exchange.answer
	h := x.Header()
	x.agree()
	x.take(h)
	x.put(h)
	x.wrote = true
	x.ResponseWriter.WriteHeader(a.Status)
	x.fields = int32(len(h))
	if method != http.MethodHead {
		_, _ = x.ResponseWriter.Write(a.Body()) // fails if the client is gone
	}
}

// finish is called when the request is answered, or its handler has panicked.
func (x *response) finish(m *Middleware) {
	switch {
	case x.hijacked:
	case x.wrote:
		if h := x.Header(); x.trailers || len(h) != int(x.fields) {
			x.take(h) // trailers that repeat fields of ours
		}
	case x.returned:
		x.WriteHeader(http.StatusOK)
	default:
		// an outer handler may recover and answer
		x.stamp(x.Header(), http.StatusInternalServerError)
		x.wrote = true
	}
	e := x.exchange
	x.exchange = nil // so that a writer that the handler keeps has no caller
	if !e.held && e.answer.Settles() {
		m.judge.End(e.request.Context(), &e.answer)
	}
	if m.ended != nil {
		e.mu.Lock()
		reserved, used, ok := e.answer.Cost()
		if e.mu.Unlock(); ok {
			m.ended(x.ResponseWriter, reserved, used)
		}
	}
	m.release(e)
}

// WriteHeader writes the handler's header with the fields of the answer, which replace the
// handler's own (D19).
func (x *response) WriteHeader(status int) {
	switch {
	case x.wrote || x.hijacked:
		x.ResponseWriter.WriteHeader(status) // the server logs the mistake
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		x.inform(status)
	default:
		x.wrote = true
		h := x.Header()
		x.stamp(h, status)
		x.ResponseWriter.WriteHeader(status)
		x.fields = int32(len(h)) // including what the writers under x added
	}
}

// Write implements http.ResponseWriter.
func (x *response) Write(p []byte) (int, error) {
	x.begin()
	if x.isRead() {
		x.read(p)
	}
	return x.ResponseWriter.Write(p)
}

// WriteString implements io.StringWriter. It makes no copy if the server's writer makes none.
func (x *response) WriteString(s string) (int, error) {
	x.begin()
	if x.isRead() {
		x.readString(s)
	}
	return io.WriteString(x.ResponseWriter, s)
}

// FlushError implements what http.ResponseController flushes with; http.Flusher is in writers.go.
func (x *response) FlushError() error {
	if !reaches[http.Flusher](x.ResponseWriter) && !reaches[interface{ FlushError() error }](x.ResponseWriter) {
		return fmt.Errorf("flush: %w", http.ErrNotSupported)
	}
	x.begin()
	if e := x.exchange; e != nil && e.left == 0 {
		e.served() // the head is the whole response
	}
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// Unwrap returns the writer under x, for http.ResponseController.
func (x *response) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *response) limited() *response { return x }

func (x *response) begin() {
	if !x.wrote && !x.hijacked {
		x.WriteHeader(http.StatusOK)
	}
}

// stamp puts the fields of the answer into the header of the handler's response.
func (x *response) stamp(h http.Header, status int) {
	if x.exchange.answer.Settles() {
		x.exchange.settleHead(h, status)
	}
	x.agree()
	if e := x.exchange; e.bindsInner(h) {
		x.announce(e.inner.binding)
		return
	}
	retryAfter := x.take(h)
	if status == http.StatusTooManyRequests {
		x.exchange.answer.BackendRefused(retryAfter)
	}
	x.put(h)
}

// take removes every field that the answer owns, also from trailers, and returns the lines of the
// handler's Retry-After.
func (x *response) take(h http.Header) (retryAfter []string) {
	if len(h) == 0 {
		return nil
	}
	a := &x.exchange.answer
	for name, values := range h {
		bare := name
		if name[:min(1, len(name))] == "T" {
			x.trailers = x.trailers || name == "Trailer"
			bare = strings.TrimPrefix(name, http.TrailerPrefix)
		}
		if !a.Owns(bare) {
			continue
		}
		if strings.EqualFold(name, headers.RetryAfter) {
			retryAfter = append(retryAfter, values...)
		}
		delete(h, name)
	}
	return retryAfter
}

// put sets the fields of the answer, in the contract's spelling: the server writes the map's keys
// as they are.
func (x *response) put(h http.Header) {
	e := x.exchange
	contract := e.answer.Values()
	if contract[0] != "" { // else the caller is denied, or the handler or the store has panicked
		for i, v := range contract {
			x.values[i] = v // a copy, because the server reads the header after e is released
			h[answer.Names[i]] = x.values[i : i+1 : i+1]
		}
		x.announce(e.answer.Decision.Binding())
	}
	e.others = e.answer.AppendOthers(e.others[:0])
	if len(e.others) == 0 {
		return
	}
	values := make([]string, len(e.others))
	for i := range e.others {
		f := &e.others[i]
		values[i] = f.Value
		if f.Name == "Vary" && len(h[f.Name]) > 0 {
			h[f.Name] = append(h[f.Name], f.Value)
		} else {
			h[f.Name] = values[i : i+1 : i+1]
		}
	}
}

// inform writes an informational response, without the fields that belong in the final one.
func (x *response) inform(status int) {
	h := x.Header()
	var held []answer.Field
	for name, values := range h {
		if x.exchange.answer.Owns(name) {
			for _, v := range values {
				held = append(held, answer.Field{Name: name, Value: v})
			}
			delete(h, name)
		}
	}
	x.ResponseWriter.WriteHeader(status)
	for _, f := range held {
		h[f.Name] = append(h[f.Name], f.Value)
	}
}

// CallerOf returns the sender of a request that a Middleware has admitted. w is the ResponseWriter
// of the request's handler, or one around it that has Unwrap. It returns false if no limiter covers
// the request, or if the handler has returned. One goroutine at a time may use the caller, until
// the handler returns.
func CallerOf(w http.ResponseWriter) (*identity.Caller, bool) {
	if e := exchangeOf(w); e != nil {
		return &e.caller, true
	}
	return nil, false
}

// DecisionOf returns the decision on a request, under the same conditions as CallerOf. It is read
// only.
func DecisionOf(w http.ResponseWriter) (*weir.Decision, bool) {
	if e := exchangeOf(w); e != nil {
		return &e.answer.Decision, true
	}
	return nil, false
}

// exchangeOf returns the exchange of the request that w answers, or nil. It marks the exchange as
// shown, so that it is not reused.
func exchangeOf(w http.ResponseWriter) *exchange {
	e := exchangeUnder(w)
	if e != nil {
		e.shown = true
	}
	return e
}

// exchangeUnder returns the exchange of the request that w answers, or nil.
func exchangeUnder(w http.ResponseWriter) *exchange {
	if x := responseUnder(w); x != nil {
		return x.exchange
	}
	return nil
}

// responseUnder returns the response that w writes, or nil.
func responseUnder(w http.ResponseWriter) *response {
	for {
		switch x := w.(type) {
		case interface{ limited() *response }:
			return x.limited()
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return nil
		}
	}
}

// reaches reports whether w, or a writer that it unwraps to, has the interface T. That is how
// http.ResponseController looks for it.
func reaches[T any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(T); ok {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
}
