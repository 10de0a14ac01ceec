package fast

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
	c    *conn
	over time.Time // when the answer was complete
	tick int64     // of the engine, when the request began

	head wire.Request
	rules.Route
	query  string // raw, as it came
	onward string // the target that the upstream is asked for, without the base path

	caller  identity.Caller
	values  []string // the results of Header, one after another
	answer  answer.Answer
	limited bool // the answer carries the fields of a limiter

	body   requestBody
	closes bool // the connection ends with this exchange

	fields rules.Fields // of the answer
	out    []byte       // on its way out, to either side
	chain  []byte       // the caller's address, and the trusted proxies after it

	relayed
	heads relay.Heads // of the upstream's answer
	// the parts of the last one; they are gone with the exchange, and nothing else is given them
	res        wire.Response
	answerBody wire.Body
}

// serve answers one request, whose head it is given. It reports whether another may follow on the
// connection.
func (x *exchange) serve(c *conn, head string) (more bool) {
	x.begin(c)
	x.answerAndLog(head)
	return x.settle()
}

// begin prepares for a request on c.
func (x *exchange) begin(c *conn) {
	x.c, x.Start = c, time.Now()
	x.tick = c.engine.tick.Load()
}

// answerAndLog is one request, from its head to its line in the access log. What follows it, such
// as reading the rest of a body, does not count as a request under way.
func (x *exchange) answerAndLog(head string) {
	e := x.c.engine
	e.Active.Add(1)
	defer e.Active.Add(-1)
	if !x.attempt(head) {
		x.answerPanic()
	}
	_, _ = x.quiet()
	x.reportEnd()
	if x.over.IsZero() {
		x.over = x.now()
	}
	if x.Path == "" {
		return
	}
	if e.AccessLog != nil {
		x.Client = x.caller.Addr()
		for i := range x.head.Fields {
			x.NoteField(e.LogFields, x.head.Fields[i].Name, x.head.Fields[i].Value)
		}
		if x.limited {
			x.NoteCost(&x.answer)
		}
	}
	e.Finish(&x.Record, x.Site, x.over)
}

// now returns the time by the monotonic clock, from when the request began. time.Now would read the
// wall clock too.
func (x *exchange) now() time.Time { return x.Start.Add(time.Since(x.Start)) }

// attempt answers the request. It reports false if that panicked, which it logs.
func (x *exchange) attempt(head string) (ok bool) {
	defer func() {
		if failure := recover(); failure != nil {
			x.c.engine.Log.Error("serving a request panicked", "method", x.Method, "path", x.Path, "panic", failure, "stack", string(debug.Stack()))
		}
	}()
	x.read(head)
	return true
}

// answerPanic ends an exchange that panicked, with a 500 if no answer has begun.
func (x *exchange) answerPanic() {
	x.giveUp(nil)
	if x.Status != 0 {
		x.Aborted = true
		return
	}
	x.closes = true
	x.reply(&rules.Panicked)
}

// settle reads what is left of the request's body, or lingers, and reports whether another request
// may follow on the connection.
func (x *exchange) settle() (more bool) {
	switch {
	case x.tunnelled, x.Aborted, x.Gone:
		return false
	case x.closes || !x.body.dispose():
		x.c.linger()
		return false
	}
	return true
}

// maxKept is the size of the largest buffer that an exchange keeps for the next one.
const maxKept = maxGathered + 8<<10

// maxValues is how many results of Header, and fields of an answer, an exchange keeps the memory
// of.
const maxValues = 64

// release returns the exchange to its pool, without anything of the connection or of the request.
func (x *exchange) release() {
	e := x.c.engine
	x.head.Reset()
	x.res.Reset()
	x.body.reset(nil, &x.head)
	x.answerBody.Reset(nil, 0)
	x.Record, x.Route, x.relayed = rules.Record{}, rules.Route{}, relayed{}
	x.c, x.over, x.query, x.onward, x.caller = nil, time.Time{}, "", "", identity.Caller{}
	x.limited, x.closes = false, false
	clear(x.fields[:cap(x.fields)])
	clear(x.values[:cap(x.values)])
	x.fields, x.values, x.out, x.chain = x.fields[:0], x.values[:0], x.out[:0], x.chain[:0]
	if cap(x.out) > maxKept {
		x.out = nil
	}
	if cap(x.values) > maxValues {
		x.values = nil
	}
	if cap(x.body.seen) > maxKept {
		x.body.seen = nil
	}
	x.heads.Reset(maxKept)
	if cap(x.fields) > maxValues {
		x.fields = nil
	}
	e.exchanges.Put(x)
}

// read parses the head and its target, and continues with what they ask for.
func (x *exchange) read(head string) {
	if err := x.head.Parse(head); err != nil {
		var refusal *wire.Refusal
		errors.As(err, &refusal)
		x.refuse(refusal)
		return
	}
	x.Method, x.Record.Host, x.Proto = x.head.Method, x.head.Host, "HTTP/1.1"
	if x.head.Minor == 0 {
		x.Proto = "HTTP/1.0"
	}
	x.closes = x.head.Close
	x.body.reset(x.c, &x.head)
	if x.c.engine.answer != nil {
		x.c.detachForStore()
		x.c.engine.answer(Asked{x})
		return
	}
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
	x.Foreign = e.secure != nil && x.c.isForeign(x.Asked.Host)
	if x.Choice.Kind == target.Health {
		x.c.detach() // the store may be asked
	}
	own := e.Own(&x.c.ctx, &x.Route, x.Header)
	x.Misdirected = own.Misdirects()
	switch {
	case own == nil:
		if x.judge(own) {
			x.forward()
		}
	case !x.IsLimited() || x.judge(own):
		x.reply(own)
	}
}

// judge asks the limiter, and answers a request that it does not admit. own is an answer of our
// own, which needs no credential; nil: the upstream answers.
func (x *exchange) judge(own *rules.Answer) (admitted bool) {
	x.CoverBy(&x.c.engine.Options, x.Choice.Match)
	x.c.detachForStore()
	if x.head.Length == 0 {
		x.c.beginWatch() // the limiter may wait for its store
	}
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
		x.Gone = x.c.isGone()
		return !x.Gone
	}
	x.complete(x.answer.Status)
	x.send(x.answer.Status, x.answer.Body())
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

// Header implements identity.Request. The backend does not get a field that Connection names, so it
// names no caller either (compare std's stripNominated). The results are in memory that is used
// again for the next request.
func (x *exchange) Header(name string) []string {
	if x.head.Names(name) && !rules.IsWithheld(name) {
		return nil
	}
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
