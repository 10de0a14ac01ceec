package http2

import (
	"errors"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/wire"
)

// An exchange is one request under way, and its answer. It is used again for other requests, so
// nothing that it is passed to may keep any of it.
type exchange struct {
	rules.Record
	c *conn
	s *stream

	head wire.Request
	rules.Route
	refused  *wire.Refusal // why the head is no request; nil: it is one
	resets   bool          // the stream is reset after its answer: the head is malformed
	query    string        // raw, as it came
	onward   string        // the target that the upstream is asked for, without the base path
	admitted bool          // the upstream is to be asked
	decided  bool          // decide was called

	caller  identity.Caller
	values  []string // the results of Header, one after another
	answer  answer.Answer
	limited bool // the answer carries the fields of a limiter

	body   requestBody
	fields rules.Fields // of the answer
	unsent []byte       // of an answer of our own, which the client does not take yet
	pace   sender
	chain  []byte // the caller's address, and the trusted proxies after it
	call   *relay.Call
}

// begin starts the exchange of a head that is whole. What needs no wait is done at once, and the
// rest by a worker.
func (c *conn) begin(b *block) {
	x := b.x
	x.c, x.Start = c, time.Now()
	x.parse(b)
	c.mu.Lock()
	x.s = c.open(b.id, b.ends)
	x.s.length = x.head.Length
	if x.refused != nil || x.head.Protocol != "" {
		x.s.length = wire.Chunked // what comes is discarded, or a tunnel's
	}
	c.mu.Unlock()
	c.engine.Active.Add(1)
	x.body.begin(x)
	if x.isInstant(b.ends) {
		x.decideOnce()
		if !x.admitted && x.unsent == nil {
			x.conclude()
			return
		}
	}
	c.running.Add(1)
	c.engine.workers.run(x)
}

// isInstant reports whether the request can be decided without a wait: it has no body, its counts
// are in this process, and it does not ask for the backend's health.
func (x *exchange) isInstant(ends bool) bool {
	return ends && x.c.engine.Decider.InProcess() && !strings.HasPrefix(x.head.Target, "/readyz")
}

// parse reads the head.
func (x *exchange) parse(b *block) {
	var err error
	if b.large {
		err = wire.HeadTooLarge
	} else {
		err = x.head.ParseFields(x.head.Fields, b.ends)
	}
	if err == nil {
		return
	}
	var malformed *wire.MalformedError
	x.resets = errors.As(err, &malformed)
	errors.As(err, &x.refused)
}

// decideOnce decides the request, unless that was done.
func (x *exchange) decideOnce() {
	if x.decided {
		return
	}
	x.decided = true
	if !x.attempt(x.decide) {
		x.answerPanic()
	}
}

// work serves the request in a worker.
func (x *exchange) work() {
	c := x.c
	x.decideOnce()
	if x.admitted && !x.attempt(x.forward) {
		x.answerPanic()
	}
	if x.unsent != nil && x.send(x.unsent, true) != nil {
		x.Aborted = true
	}
	x.conclude()
	c.flushSoon()
	c.running.Done()
}

// attempt has f answer the request, or a part of it. It reports false if that panicked, which it
// logs.
func (x *exchange) attempt(f func()) (ok bool) {
	defer func() {
		if failure := recover(); failure != nil {
			x.c.engine.Log.Error("serving a request panicked", "method", x.Method, "path", x.Path, "panic", failure, "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}

// answerPanic ends an exchange that panicked, with a 500 if no answer has begun.
func (x *exchange) answerPanic() {
	x.admitted = false
	x.endCall()
	if x.Status != 0 {
		x.Aborted = true
		return
	}
	x.reply(&rules.Panicked)
}

// conclude ends the exchange, writes its line in the access log, and releases it.
func (x *exchange) conclude() {
	e := x.c.engine
	x.reportEnd()
	x.s.release()
	x.s = nil
	if x.Path != "" {
		if e.AccessLog != nil {
			x.Client = x.caller.Addr()
			for i := range x.head.Fields {
				x.NoteField(e.LogFields, x.head.Fields[i].Name, x.head.Fields[i].Value)
			}
			if x.limited {
				x.NoteCost(&x.answer)
			}
		}
		e.Finish(&x.Record, x.Site, x.Start.Add(time.Since(x.Start)))
	}
	e.Active.Add(-1)
	x.release()
}

// How much memory an exchange keeps for the next one.
const (
	maxKept   = 24 << 10
	maxValues = 64 // results of Header, and fields of an answer
)

// release returns the exchange to its pool, without anything of the connection or of the request.
func (x *exchange) release() {
	e := x.c.engine
	x.head.Reset()
	x.body.end()
	x.Record, x.Route, x.pace = rules.Record{}, rules.Route{}, sender{}
	x.c, x.s, x.refused, x.query, x.onward, x.caller, x.unsent = nil, nil, nil, "", "", identity.Caller{}, nil
	x.limited, x.resets, x.admitted, x.decided = false, false, false, false
	clear(x.fields[:cap(x.fields)])
	clear(x.values[:cap(x.values)])
	x.fields, x.values, x.chain = x.fields[:0], x.values[:0], x.chain[:0]
	if cap(x.values) > maxValues {
		x.values = nil
	}
	if cap(x.fields) > maxValues {
		x.fields = nil
	}
	e.exchanges.Put(x)
}

// decide reads the target, and answers the request if the gateway does, or the limiter refuses it.
func (x *exchange) decide() {
	if x.refused != nil {
		x.refuse(x.refused)
		return
	}
	x.Method, x.Record.Host, x.Proto = x.head.Method, x.head.Host, "HTTP/2.0"
	for i := range x.head.Fields {
		if name := x.head.Fields[i].Name; rules.IsForwarder(name) {
			x.c.engine.NoteForwarder(x.c.addr, name)
			break
		}
	}
	if !x.readTarget() {
		x.refuse(wire.BadTarget)
		return
	}
	x.route()
}

// readTarget reads the request's target. Most are canonical as they are.
func (x *exchange) readTarget() bool {
	raw := x.head.Target
	e := x.c.engine
	x.Asked = target.Request{Method: x.head.Method, Host: x.head.Host, Purpose: rules.Purpose(x.head.Method, x.field), Methods: e.Methods}
	path, query, _ := strings.Cut(raw, "?")
	if e.IsPlain(path, query) {
		x.Asked.Path, x.Path, x.query, x.onward = path, path, query, raw
		return true
	}
	u, err := target.Parse(x.head.Method, raw)
	if err != nil {
		return false
	}
	e.Read(&x.Asked, raw, u)
	x.Path, x.query = rules.PathOf(&x.Asked, u), u.RawQuery
	x.onward, query = e.Target(raw, u)
	if query != "" || u.ForceQuery {
		x.onward += "?" + query
	}
	return true
}

// route finds what covers the request. Either the gateway answers it itself, or the upstream does
// if the limiter admits it.
func (x *exchange) route() {
	e := x.c.engine
	x.Asked.Query = x.query
	x.Asked.Ambiguous = x.query != "" && identity.AgentIsAmbiguous(x.query) && !identity.NamesAgent(x)
	e.Choose(&x.Route, x.field)
	x.Outdated = e.IsOutdated(x.c.chains, x.Start)
	if x.Asked.Sent != "" {
		x.Path = x.CountedPath()
	}
	e.Identity.Start(&x.caller, x)
	if x.head.Length == 0 { // else its body may be awaited before a credential is judged
		x.caller.Arrived(x.Start)
	}
	x.Foreign = x.c.secure && x.c.isForeign(x.Asked.Host)
	own := e.Own(&x.c.ctx, &x.Route, x.Header)
	x.Misdirected = own.Misdirects()
	switch {
	case own == nil:
		x.admitted = x.judge(own)
	case !x.IsLimited() || x.judge(own):
		x.reply(own)
	}
}

// isForeign reports whether the connection was made for another host than that of a request.
func (c *conn) isForeign(host string) bool {
	return c.engine.Covers != nil && c.engine.IsForeign(c.addr, c.serverName, host)
}

// judge asks the limiter, and answers a request that it does not admit. own is an answer of our
// own, which needs no credential; nil: the upstream answers.
func (x *exchange) judge(own *rules.Answer) (admitted bool) {
	x.CoverBy(&x.c.engine.Options, x.Choice.Match)
	err := x.c.engine.Limit.Judge().Answer(&x.c.ctx, &answer.Question{
		Caller: &x.caller, Method: x.head.Method, Path: x.Asked.Path, Match: x.Choice.Match, Chosen: true,
		Public: own != nil, Misdirected: x.Misdirected, Arrival: x.Start,
	}, &x.answer)
	if err != nil {
		x.reply(&rules.Unjudged)
		return false
	}
	x.limited = x.answer.Outcome != answer.Unlimited
	x.NoteJudged(&x.c.engine.Options, &x.caller, &x.answer)
	if x.answer.Status == 0 {
		return !x.endsUnanswered()
	}
	x.complete(x.answer.Status)
	x.write(x.answer.Status, x.answer.Body())
	return false
}

// Peer implements identity.Request.
func (x *exchange) Peer() netip.Addr { return x.c.addr }

// Certificate implements identity.Request.
func (x *exchange) Certificate() *identity.Certificate {
	if x.Outdated {
		return nil
	}
	return x.c.cert
}

// Header implements identity.Request. The results are in memory that is used again for the next
// request.
func (x *exchange) Header(name string) []string {
	n := len(x.values)
	if x.values = x.head.AppendValues(x.values, name); len(x.values) == n {
		return nil
	}
	return x.values[n:len(x.values):len(x.values)] // an append to it does not change the next
}

// field returns the first value of a field of the request; empty if it has none.
func (x *exchange) field(name string) string {
	if values := x.Header(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Host implements identity.Request.
func (x *exchange) Host() string { return x.head.Host }

// RawQuery implements identity.Request.
func (x *exchange) RawQuery() string { return x.query }

// Body implements identity.Request.
func (x *exchange) Body(limit int) []byte {
	if x.head.Length == 0 {
		return nil
	}
	return x.body.look(limit)
}
