package http2

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/wire"
)

// inform passes an informational answer on, without the limiter's fields, which only a final answer
// has.
func (x *exchange) inform(a *wire.Response) {
	x.fields = x.fields[:0]
	for _, f := range a.Fields {
		if !rules.IsHop(f.Name) && !rules.IsFraming(f.Name) && !a.Names(f.Name) && !x.answer.Owns(f.Name) && !x.c.engine.IsReserved(f.Name) {
			x.fields = append(x.fields, answer.Field(f))
		}
	}
	c := x.c
	c.mu.Lock()
	if !x.s.gone && a.Status != http.StatusSwitchingProtocols {
		c.appendHead(x.s.id, a.Status, x.fields, false)
	}
	c.mu.Unlock()
	c.flush()
}

// pass passes the upstream's answer on, after its head has come.
func (x *exchange) pass(c *relay.Call) {
	a := &c.Answer
	if err := rules.CheckAnswer(a.Status, false, nil); err != nil {
		x.forwardFailed(err)
		return
	}
	x.takeFields(a)
	length := a.Length
	if length == 0 {
		length = a.Declared // of a HEAD or a 304, or 0
	}
	if length >= 0 && a.Status != http.StatusNoContent { // which has none (RFC 9110, section 8.6)
		x.fields = append(x.fields, answer.Field{Name: "Content-Length", Value: strconv.FormatInt(length, 10)})
	}
	if a.Length == wire.Chunked {
		x.announce(a)
	}
	x.complete(a.Status)
	x.Status = a.Status
	if x.passBody(c) {
		return
	}
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	if !x.s.begun && x.s.isMalformed() { // its client has been told that, and no status
		x.noteGone()
		return
	}
	x.Aborted = true
	x.c.reset(x.s, http2.ErrCodeInternal)
}

// announce announces the trailers of the upstream's answer that are passed on.
func (x *exchange) announce(a *wire.Response) {
	if len(a.Values("Trailer")) == 0 {
		return
	}
	var names []string
	for name := range strings.SplitSeq(strings.Join(a.Values("Trailer"), ","), ",") {
		if name = strings.Trim(name, " \t"); wire.IsToken(name) && !x.dropsTrailer(name) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		x.fields = append(x.fields, answer.Field{Name: "Trailer", Value: strings.Join(names, ", ")})
	}
}

// dropsTrailer reports whether a trailer is one of the limiter's fields.
func (x *exchange) dropsTrailer(name string) bool {
	return x.c.engine.IsReserved(name) || x.limited && x.answer.Owns(name)
}

// passBody writes the head of the answer, and copies its body as it comes. What has come with the
// head is written with it. It reports whether all of it came, and the client took it.
func (x *exchange) passBody(c *relay.Call) bool {
	if c.Answer.Length == 0 {
		x.reportServed()
		return x.sendHead(true, true)
	}
	headSent := false
	if !c.HasCome() {
		if !x.sendHead(false, false) {
			return false
		}
		headSent = true
		x.c.flush()
	}
	p := x.c.engine.copies.Borrow()
	defer func() { p.GiveBack() }()
	for {
		n, err := c.Read(p.Room())
		x.reportBody(p.Room()[:n])
		whole := errors.Is(err, io.EOF)
		var trailers rules.Fields
		if whole {
			trailers = x.answerTrailers(c)
			x.reportServed()
		} else if err != nil {
			c.EndUpload()
		}
		if !headSent && !x.sendHead(false, false) {
			return false
		}
		headSent = true
		if n > 0 || whole && len(trailers) == 0 {
			if x.send(p.Room()[:n], whole && len(trailers) == 0) != nil {
				return false
			}
			x.Written += int64(n)
		}
		if err != nil {
			return whole && x.sendTrailers(trailers)
		}
		x.c.flush()
		p = p.After(n)
	}
}

// sendHead appends the head of the answer, and its end if that is all.
func (x *exchange) sendHead(ends, whole bool) bool {
	c := x.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.s.gone || c.broken != nil {
		return false
	}
	x.appendHead(x.Status, ends)
	if whole {
		x.end()
	}
	return true
}

// answerTrailers returns the trailers of the answer that are passed on.
func (x *exchange) answerTrailers(c *relay.Call) (all rules.Fields) {
	for _, f := range c.AnswerTrailers() {
		if !x.dropsTrailer(f.Name) {
			all = append(all, answer.Field(f))
		}
	}
	return all
}

// sendTrailers ends the answer with its trailers, if it has some.
func (x *exchange) sendTrailers(all rules.Fields) bool {
	if len(all) == 0 {
		return true
	}
	c := x.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.s.gone || c.broken != nil {
		return false
	}
	c.appendHead(x.s.id, 0, all, true)
	x.end()
	return true
}
