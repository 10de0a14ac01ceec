package std

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/wire"
)

// forward sends a request of HTTP/2 to its upstream by the pool of its site, and passes the answer
// on. It does what serveUpstream does without net/http's transport and httputil's proxy, which cost
// more than the rest of such a request.
func (e *Engine) forward(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(w)
	c := relay.New()
	defer c.End()
	c.Pool, c.Method, c.Buffers, c.Log = x.Site.Pool, r.Method, &e.buffers, e.Log
	c.Inform = func(a *wire.Response) { x.inform(w, a) }
	target := e.targetOf(r, x.Site)
	if !isSendable(target) {
		write(w, e.RejectMalformed(wire.BadTarget.Status, wire.BadTarget.Reason))
		return
	}
	length, err := lengthOf(r)
	if err == nil {
		x.appendHead(c, r, target, length)
		err = addBody(c, r, length)
	}
	if err != nil {
		e.forwardFailed(w, r, &relay.BodyError{Err: err})
		return
	}
	now := time.Now()
	x.asked = now.Sub(x.Start)
	err = c.Do(r.Context(), now)
	x.noteUpstream()
	x.Upstream = c.At
	if err != nil {
		e.forwardFailed(w, r, err)
		return
	}
	announced := x.passHead(w, c)
	if !x.passBody(w, c) {
		panic(http.ErrAbortHandler) // as httputil's proxy ends an answer that broke off
	}
	x.passTrailers(w, c, announced)
}

// forwardFailed answers for an upstream that did not, or for a request whose body did not arrive.
func (e *Engine) forwardFailed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(w)
	var broke *relay.BodyError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &broke) && (errors.As(err, &large) || pace.IsTimeout(err)):
		write(w, rules.BodyFailed(broke.Err))
	case r.Context().Err() != nil:
		x.Gone = x.Status == 0 // the stream is reset then
	case broke != nil:
		write(w, rules.BodyFailed(broke.Err))
	default:
		write(w, e.NoUpstream(x.Site, r.Method, x.Upstream, err))
	}
}

// targetOf returns the target that the upstream is asked for.
func (e *Engine) targetOf(r *http.Request, site *rules.Site) string {
	path, query := e.Target(r.RequestURI, r.URL)
	target := site.EscapedBase + path
	if query != "" || r.URL.ForceQuery {
		target += "?" + query
	}
	return target
}

// isSendable reports whether a target can stand in a request line. HTTP/2 could carry blanks and
// control characters in one.
func isSendable(target string) bool {
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// lengthOf returns the length of the request's body; wire.Chunked if that is not known. A client
// may send the end of its stream apart from the head also if there is no body. The beginning is
// awaited then if the method gives a body no meaning: few such requests have one, and it has its
// price (see rules.Onward).
func lengthOf(r *http.Request) (int64, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return 0, nil
	case r.ContentLength >= 0:
		return r.ContentLength, nil
	case rules.ExpectsBody(r.Method):
		return wire.Chunked, nil
	}
	var begin [1]byte
	if _, err := io.ReadFull(r.Body, begin[:]); errors.Is(err, io.EOF) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	r.Body = &begun{io.MultiReader(strings.NewReader(string(begin[:])), r.Body), r.Body}
	return wire.Chunked, nil
}

// begun is a body whose first byte was read already.
type begun struct {
	io.Reader
	io.Closer
}

// appendHead appends the head that the upstream receives: the target that was counted, the fields
// that are forwarded, and what rules.Onward adds.
func (x *exchange) appendHead(c *relay.Call, r *http.Request, target string, length int64) {
	e := x.engine
	head := headOf(r)
	head.Length, head.Upgrade = length, nil // there are no upgrades of HTTP/2
	onward := e.Onward(&head, x.Site)
	c.Alone = onward.Alone

	b := append(append(append(c.Request[:0], r.Method...), ' '), target...)
	b = wire.AppendField(append(b, " HTTP/1.1\r\n"...), "Host", onward.Host)
	b = e.appendForwarded(b, r.Header)
	b = e.AppendForwarding(b, &onward, x.chain)
	switch {
	case length == wire.Chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		if trailers := e.trailersOf(r); len(trailers) > 0 {
			b = wire.AppendField(b, "Trailer", strings.Join(trailers, ", "))
			c.Trailers = func() []wire.Field { return fieldsOf(r.Trailer, trailers) }
		}
	case length > 0 || rules.ExpectsBody(r.Method):
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), length, 10), "\r\n"...)
	}
	if onward.Alone {
		b = append(b, "Connection: close\r\n"...)
	}
	c.Request = append(b, "\r\n"...)
}

// appendForwarded appends the fields that are forwarded as they came, by name.
func (e *Engine) appendForwarded(b []byte, h http.Header) []byte {
	var room [32]string
	names := room[:0]
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := h[name]
		switch {
		case name == "Te" && slices.ContainsFunc(values, func(v string) bool { return rules.Names(v, "trailers") }):
			b = append(b, "Te: trailers\r\n"...)
		case !rules.IsForwarded(name) || slices.ContainsFunc(values, func(v string) bool { return e.HidesField(name, v) }):
		default:
			for _, v := range values {
				b = wire.AppendField(b, name, strings.Trim(v, " \t")) // as HTTP/1.1 reads it
			}
		}
	}
	return b
}

// trailersOf returns the names of the trailers that the request announces and that are forwarded.
func (e *Engine) trailersOf(r *http.Request) (names []string) {
	for name := range r.Trailer {
		if e.passesTrailer(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fieldsOf returns the fields of a header that have one of the names.
func fieldsOf(h http.Header, names []string) (fields []wire.Field) {
	for _, name := range names {
		for _, v := range h[name] {
			fields = append(fields, wire.Field{Name: name, Value: strings.Trim(v, " \t")})
		}
	}
	return fields
}

// maxGathered is the size of the largest body that is awaited whole before the request is sent, so
// that it is sent in one write.
const maxGathered = 16 << 10

// addBody adds the body to the request: whole if it is short, else as it comes.
func addBody(c *relay.Call, r *http.Request, length int64) error {
	switch {
	case length == 0:
		return nil
	case length < 0:
		c.How = relay.Chunked
		fallthrough
	case length > maxGathered:
		c.Body, c.Length = r.Body, max(length, 0)
		return nil
	}
	n := len(c.Request)
	c.Request = slices.Grow(c.Request, int(length))[:n+int(length)]
	if _, err := io.ReadFull(r.Body, c.Request[n:]); err != nil {
		return err
	}
	// HTTP/2 may send the end apart from the last byte
	var more [1]byte
	if _, err := r.Body.Read(more[:]); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
