package httplimit

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/identity"
)

// A response is the ResponseWriter of one limited request: the one allocation beside that of its values, and small, since
// the allocation is most of what a limited request costs. A handler may keep it for longer than it should, so it is never
// used again. It has no optional interface of its own; writers.go adds those.
type response struct {
	http.ResponseWriter // the server's, or a middleware's before us

	ruling *ruling // nil once the handler has returned
	values fieldValues

	wrote    bool  // the header is written
	hijacked bool  // the connection is the handler's
	returned bool  // the handler returned
	trailers bool  // the header announced trailers
	fields   int32 // in the header when it was written: any more are trailers
}

// A ruling is what is asked, answered and known while one request is under way. It goes back to a pool at the end, unless a
// handler was shown its caller or its decision (CallerOf, DecisionOf): what somebody may hold on to is not used again.
type ruling struct {
	answer  Answer
	caller  identity.Caller
	request identity.HTTPRequest
	scratch weir.Scratch
	shown   bool
}

func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler, match weir.Match, a access) {
	if match.Limiter() == nil {
		m.pass(w, r, match)
		next.ServeHTTP(w, r)
		return
	}
	u := m.rulings.Get().(*ruling)
	x := &response{ResponseWriter: w, ruling: u}
	defer x.finish(m)
	u.request.Request = r
	u.answer.values = &x.values
	m.options.Identity.Start(&u.caller, &u.request)
	if err := m.judge(r.Context(), &match, 0, a, &u.caller, &u.answer, &u.scratch); err != nil {
		x.wrote = true // past us
		WriteError(w, http.StatusInternalServerError, "internal", "This request could not be judged.")
		return
	}
	if m.options.Judged != nil {
		m.options.Judged(w, &u.caller)
	}
	if u.answer.Status != 0 {
		x.refuse(r.Method)
		return
	}
	next.ServeHTTP(x.withInterfaces(&m.writers), r)
	x.returned = true
}

// pass notes a request that no limiter covers. What is only tried out may cover it all the same.
func (m *Middleware) pass(w http.ResponseWriter, r *http.Request, match weir.Match) {
	if match.Beside() {
		u := m.rulings.Get().(*ruling)
		u.request.Request = r
		m.options.Identity.Start(&u.caller, &u.request)
		// Nothing can be wrong with a request that spends what its limiters say, and this one has none.
		_ = m.decider.DecideInto(r.Context(), &weir.Request{Keys: &u.caller, Match: match, Scratch: &u.scratch}, &u.answer.Decision)
		if m.options.Judged != nil {
			m.options.Judged(w, &u.caller)
		}
		u.request.Request = nil
		m.rulings.Put(u)
	}
	if m.options.Observe != nil {
		m.options.Observe(Observation{})
	}
}

// refuse writes an answer of our own.
func (x *response) refuse(method string) {
	answer := &x.ruling.answer
	h := x.Header()
	x.take(h)
	x.put(h)
	fields := answer.refusal.fields
	values := make([]string, len(fields), len(fields)+1) // a handler outside may change what it is given
	for i, f := range fields {
		values[i] = f.Value
		if f.Name == "Vary" && len(h[f.Name]) > 0 {
			h[f.Name] = append(h[f.Name], f.Value)
		} else {
			h[f.Name] = values[i : i+1 : i+1]
		}
	}
	if answer.denial != "" {
		values = append(values, answer.denial)
		h[headers.Denial] = values[len(fields):]
	}
	x.wrote = true
	x.ResponseWriter.WriteHeader(answer.Status)
	x.fields = int32(len(h))
	if method != http.MethodHead {
		_, _ = x.ResponseWriter.Write(answer.Body()) // a client that is gone
	}
}

// finish is called when the request is answered, or its handler has panicked.
func (x *response) finish(m *Middleware) {
	switch {
	case x.hijacked:
	case x.wrote:
		if h := x.Header(); x.trailers || len(h) != int(x.fields) {
			x.take(h) // trailers that repeat our fields
		}
	case x.returned:
		x.WriteHeader(http.StatusOK)
	default:
		x.stamp(x.Header(), http.StatusInternalServerError) // should somebody outside recover, and answer
		x.wrote = true
	}
	m.release(x)
}

// release ends what is known of a request: whoever kept its writer learns nothing any more.
func (m *Middleware) release(x *response) {
	u := x.ruling
	x.ruling = nil
	if u.shown {
		return
	}
	u.request.Request, u.answer.values = nil, nil // all else is overwritten when it is used again
	m.rulings.Put(u)
}

// WriteHeader writes our fields with the handler's, in place of its own ones (D19).
func (x *response) WriteHeader(status int) {
	switch {
	case x.wrote || x.hijacked:
		x.ResponseWriter.WriteHeader(status) // the server says what is wrong with that
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		x.inform(status)
	default:
		x.wrote = true
		h := x.Header()
		x.stamp(h, status)
		x.ResponseWriter.WriteHeader(status)
		x.fields = int32(len(h)) // with what the writers under this one added
	}
}

// Write implements http.ResponseWriter.
func (x *response) Write(p []byte) (int, error) {
	x.begin()
	return x.ResponseWriter.Write(p)
}

// WriteString implements io.StringWriter: without a copy where the server's writer can.
func (x *response) WriteString(s string) (int, error) {
	x.begin()
	return io.WriteString(x.ResponseWriter, s)
}

// FlushError is how http.ResponseController flushes; http.Flusher is in writers.go.
func (x *response) FlushError() error {
	if !reaches[http.Flusher](x.ResponseWriter) && !reaches[interface{ FlushError() error }](x.ResponseWriter) {
		return fmt.Errorf("flush: %w", http.ErrNotSupported)
	}
	x.begin()
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (x *response) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *response) limited() *response { return x }

func (x *response) begin() {
	if !x.wrote && !x.hijacked {
		x.WriteHeader(http.StatusOK)
	}
}

// stamp puts our fields into the header of the handler's response.
func (x *response) stamp(h http.Header, status int) {
	retryAfter := x.take(h)
	if status == http.StatusTooManyRequests {
		x.ruling.answer.BackendRefused(retryAfter)
	}
	x.put(h)
}

// take removes every field that is ours, and returns the lines of Retry-After among them. A trailer that repeats one of
// ours is no better than a field.
func (x *response) take(h http.Header) (retryAfter []string) {
	if len(h) == 0 {
		return nil
	}
	for name, values := range h {
		bare := name
		if name[:min(1, len(name))] == "T" {
			x.trailers = x.trailers || name == "Trailer"
			bare = strings.TrimPrefix(name, http.TrailerPrefix)
		}
		switch x.ruling.answer.owned(bare) {
		case -1:
			continue
		case fieldRetryAfter:
			if bare == name {
				retryAfter = append(retryAfter, values...)
			}
		}
		delete(h, name)
	}
	return retryAfter
}

// put sets our fields, in the spelling of the contract: the map's keys go to the wire as they are.
func (x *response) put(h http.Header) {
	values := &x.values
	if values[0] == "" {
		return // nothing was decided: something below has panicked
	}
	for i := range values {
		h[fieldNames[i]] = values[i : i+1 : i+1]
	}
	if after := x.ruling.answer.retryAfter; after != "" {
		h[headers.RetryAfter] = []string{after}
	}
	if ietf := x.ruling.answer.ietf; ietf != nil {
		for i := range ietf {
			h[fieldNames[fieldRateLimit+i]] = ietf[i : i+1 : i+1]
		}
	}
}

// inform passes an informational answer on, without what only a final one can say of the limit.
func (x *response) inform(status int) {
	h := x.Header()
	var held []Field
	for name, values := range h {
		if x.ruling.answer.Owns(name) {
			for _, v := range values {
				held = append(held, Field{name, v})
			}
			delete(h, name)
		}
	}
	x.ResponseWriter.WriteHeader(status)
	for _, f := range held {
		h[f.Name] = append(h[f.Name], f.Value)
	}
}

// CallerOf returns who is calling, to a handler that the middleware has let a request through to: w is the handler's
// ResponseWriter, or one around it that has Unwrap. It is false where no limiter covered the request. The caller may be
// used until the handler returns, by one goroutine at a time.
func CallerOf(w http.ResponseWriter) (*identity.Caller, bool) {
	if u := rulingOf(w); u != nil {
		return &u.caller, true
	}
	return nil, false
}

// DecisionOf returns what was decided about the request, as CallerOf does. It is read only.
func DecisionOf(w http.ResponseWriter) (*weir.Decision, bool) {
	if u := rulingOf(w); u != nil {
		return &u.answer.Decision, true
	}
	return nil, false
}

// rulingOf returns the ruling of the request that w answers, which is somebody's from now on; nil where there is none.
func rulingOf(w http.ResponseWriter) *ruling {
	for {
		switch x := w.(type) {
		case interface{ limited() *response }:
			u := x.limited().ruling
			if u != nil {
				u.shown = true
			}
			return u
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return nil
		}
	}
}

// reaches reports whether w, or a writer that it unwraps to, has the interface T: what http.ResponseController finds.
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
