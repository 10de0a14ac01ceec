package std

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/wire"
)

// passInterim passes an informational answer on, without the limiter's fields, which only a final
// answer has.
func (x *exchange) passInterim(w http.ResponseWriter, a *wire.Response) {
	h := w.Header()
	for _, f := range a.Fields {
		if !rules.IsHop(f.Name) && !rules.IsFraming(f.Name) && !a.Names(f.Name) && !x.engine.IsReserved(f.Name) {
			h.Add(f.Name, f.Value)
		}
	}
	w.WriteHeader(a.Status)
	clear(h) // the final answer has its own
}

// passHead writes the head of the upstream's answer, and returns the trailers that it announces.
func (x *exchange) passHead(w http.ResponseWriter, c *relay.Call) (announced []string) {
	a := &c.Answer
	h := w.Header()
	putFields(h, a)
	if !x.http2 && !c.HasBody() {
		x.endEarly() // the rest of the request will not be read
	}
	if a.Length == 0 {
		c.EndUpload() // nothing is sent to the upstream when the client has the whole answer
	}
	length := a.Length
	if length == 0 {
		length = a.Declared // of a HEAD or a 304, or 0
	}
	if length >= 0 && a.Status != http.StatusNoContent { // which has none (RFC 9110, section 8.6)
		h["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	}
	if a.Length < 0 && !x.http2 {
		// net/http would give a short body a length
		h["Transfer-Encoding"] = []string{"chunked"}
	}
	if a.Length == wire.Chunked && x.request.ProtoAtLeast(1, 1) {
		for list := range strings.SplitSeq(strings.Join(a.Values("Trailer"), ","), ",") {
			if name := strings.Trim(list, " \t"); wire.IsToken(name) && !x.engine.IsReserved(name) {
				announced = append(announced, http.CanonicalHeaderKey(name))
			}
		}
		if len(announced) > 0 {
			h["Trailer"] = []string{strings.Join(announced, ", ")}
		}
	}
	w.WriteHeader(a.Status)
	if len(announced) > 0 {
		// Else net/http gives a short body a length, and curl reads no trailers after one. An error
		// of the connection returns with the next write.
		_ = http.NewResponseController(w).Flush()
	}
	for _, name := range announced {
		delete(h, name) // net/http would take a field of the head for a trailer
	}
	return announced
}

// putFields puts the fields of an upstream's answer that are meant for the client into a header.
func putFields(h http.Header, a *wire.Response) {
	values := make([]string, len(a.Fields))
	named := len(a.Values("Connection")) > 0
	for i, f := range a.Fields {
		if rules.IsHop(f.Name) || wire.EqualFold(f.Name, "Content-Length") || named && a.Names(f.Name) {
			continue
		}
		name := http.CanonicalHeaderKey(f.Name)
		if earlier, ok := h[name]; ok {
			h[name] = append(earlier, f.Value)
			continue
		}
		values[i] = f.Value
		h[name] = values[i : i+1 : i+1]
	}
}

// passBody copies the body of the upstream's answer. A body without a length, and a stream of
// events, is passed on as it comes. The error is why not all of it came, or the client did not take
// it. What came is passed on all the same.
func (x *exchange) passBody(w http.ResponseWriter, c *relay.Call) error {
	if c.Answer.Length == 0 {
		return nil
	}
	// an early answer is passed on as it comes, because its client may wait for it
	streams := c.Answer.Length < 0 || x.isEarly || !c.HasBody() || slices.ContainsFunc(c.Answer.Values("Content-Type"), isEventStream)
	flush := http.NewResponseController(w).Flush
	if streams && !c.HasCome() {
		if err := flush(); err != nil {
			return err
		}
	}
	p := x.engine.buffers.Borrow()
	defer func() { p.GiveBack() }()
	for {
		n, err := c.Read(p.Room())
		if err != nil {
			c.EndUpload() // nothing is sent to the upstream when the client has the whole answer
		}
		if n > 0 {
			if _, err := w.Write(p.Room()[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			_ = flush()
			return err
		}
		if streams {
			if err := flush(); err != nil {
				return err
			}
		}
		p = p.After(n)
	}
}

// isEventStream reports whether a Content-Type is that of a stream of events.
func isEventStream(value string) bool {
	kind, _, _ := strings.Cut(value, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}

// passTrailers passes the trailers of the upstream's answer on, also those that it has not
// announced.
func (x *exchange) passTrailers(w http.ResponseWriter, c *relay.Call, announced []string) {
	for _, f := range c.AnswerTrailers() {
		if x.engine.IsReserved(f.Name) {
			continue
		}
		name := http.CanonicalHeaderKey(f.Name)
		if !slices.Contains(announced, name) {
			name = http.TrailerPrefix + name
		}
		h := w.Header()
		h[name] = append(h[name], f.Value)
	}
}
