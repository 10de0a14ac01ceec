package fast

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/wire"
)

// A fastExchange is one request under way, and its answer. It is used again for others: nothing of it may be kept by what it is
// shown to.
type fastExchange struct {
	record
	c    *fastConn
	over time.Time // when the answer was complete
	tick int64     // of the engine, when the request began

	head   wire.Request
	asked  target.Request
	choice target.Choice
	query  string // raw, as it came
	onward string // the target that the upstream is asked for

	caller  identity.Caller
	answer  httplimit.Answer
	limited bool // the answer carries the fields of a limiter

	cors      *crossOrigin // nil: not a surface that browsers call
	origin    string       // the Origin that the answer allows
	preflight bool         // the answer is one to a preflight, complete as it is

	body   callerBody
	closes bool // the connection ends with this exchange

	fields fieldList // of the answer
	out    []byte    // on its way out, either side

	relayed
	heard      []byte        // the head of the upstream's answer
	res        wire.Response // its parts; they are gone with the exchange, and nobody else is shown them
	answerBody wire.Body
}

// serve answers one request, whose head it is given. It reports whether another may follow on the connection.
func (x *fastExchange) serve(c *fastConn, head string) (more bool) {
	x.begin(c)
	e := c.engine
	e.active.add(1)
	defer x.end(&more)
	if err := x.head.Parse(head); err != nil {
		var refusal *wire.Refusal
		errors.As(err, &refusal)
		x.refuse(refusal)
		x.closes = true
		return false // end decides
	}
	x.method, x.host, x.proto = x.head.Method, x.head.Host, "HTTP/1.1"
	if x.head.Minor == 0 {
		x.proto = "HTTP/1.0"
	}
	x.closes = x.head.Close
	x.body.reset(c, &x.head)
	for i := range x.head.Fields {
		if wire.EqualFold(x.head.Fields[i].Name, forwardedFor) {
			e.tellForwarded(c.peer)
			break
		}
	}
	if !x.readTarget() {
		x.refuse(&wire.Refusal{Status: http.StatusBadRequest, Reason: "the request target is not one"})
		x.closes = true
		return false
	}
	x.route()
	return false
}

func (x *fastExchange) begin(c *fastConn) {
	x.c, x.record, x.over = c, record{start: time.Now()}, time.Time{}
	x.limited, x.cors, x.origin, x.preflight, x.closes = false, nil, "", false, false
	x.fields, x.out = x.fields[:0], x.out[:0]
	x.relayed = relayed{}
	x.tick = c.engine.tick.Load()
}

// release gives the exchange back, with nothing in it of the connection, or of the one that it was for.
func (x *fastExchange) release() {
	e := x.c.engine
	x.head.Reset()
	x.res.Reset()
	x.body.reset(nil, &x.head)
	x.caller, x.c = identity.Caller{}, nil
	x.answerBody.Reset(nil, 0)
	x.record, x.asked, x.query, x.onward = record{}, target.Request{}, "", ""
	clear(x.fields[:cap(x.fields)])
	x.fields = x.fields[:0]
	if cap(x.out) > mostKept {
		x.out = nil
	}
	if cap(x.heard) > mostKept {
		x.heard, x.fields = nil, nil
	}
	e.exchanges.Put(x)
}

// mostKept is the largest buffer that an exchange keeps for the next one.
const mostKept = gathered + 8<<10

// end is the last thing of an exchange: what was read in vain is done away with, the line is logged, and nothing gets out that
// a handler or a bug threw.
func (x *fastExchange) end(more *bool) {
	c := x.c
	failure := recover()
	defer x.close(more)
	defer c.engine.active.add(-1)
	if failure != nil {
		c.engine.log.Error("serving a request panicked", "method", x.method, "path", x.path, "panic", failure, "stack", string(debug.Stack()))
		x.giveUp(nil)
		if x.status == 0 {
			x.closes = true
			x.fail(&failed)
		} else {
			x.aborted = true
		}
	}
	_, _ = x.quiet()
	if x.over.IsZero() {
		x.over = time.Now()
	}
	if x.path != "" && c.engine.options.AccessLog != nil {
		x.client = x.caller.Addr()
		x.noteAgent(&c.engine.options, &x.caller)
		x.addTo(c.engine.options.AccessLog, x.over)
	}
}

// close sees to the connection, once the exchange is over and logged: whether another request may follow.
func (x *fastExchange) close(more *bool) {
	switch {
	case x.tunnelled, x.aborted, x.gone:
	case x.closes || !x.body.dispose():
		x.c.linger()
	default:
		*more = true
	}
}

var failed = failure{http.StatusInternalServerError, "internal", internalMessage}

// readTarget reads the request's target. Nearly all are canonical as they stand.
func (x *fastExchange) readTarget() bool {
	raw := x.head.Target
	x.asked = target.Request{Method: x.head.Method}
	if isPreflight(x.head.Method, x.field) {
		x.asked.Purpose = target.CORSPreflight
	}
	path, query, _ := strings.Cut(raw, "?")
	if target.IsPlain(path) && target.IsPlainQuery(query) && target.Query(query) == query {
		x.asked.Path, x.path, x.query, x.onward = path, path, query, raw
		if base := x.c.engine.basePath; base != "" {
			x.onward = base + raw
		}
		return true
	}
	u, err := target.Parse(x.head.Method, raw)
	if err != nil {
		return false
	}
	x.asked.Read(u)
	x.path, x.query = pathOf(&x.asked, u), u.RawQuery
	x.onward = x.c.engine.basePath + u.EscapedPath()
	if query := target.Query(u.RawQuery); query != "" || u.ForceQuery {
		x.onward += "?" + query
	}
	return true
}

// field returns the first value of a field of the request; empty where there is none.
func (x *fastExchange) field(name string) string {
	if values := x.Header(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// route finds out what is asked for, and who answers.
func (x *fastExchange) route() {
	e := x.c.engine
	x.asked.Ambiguous = x.query != "" && identity.AgentIsAmbiguous(x.query) && !identity.NamesAgent(x)
	target.Choose(e.options.Decider, &x.asked, &x.choice)
	if x.choice.Surface == target.Widget {
		x.cors, x.origin = e.cors, e.cors.allow(x.field("Origin"))
	}
	e.options.Identity.Start(&x.caller, x)
	switch x.choice.Kind {
	case target.Asterisk:
		x.handle(allowAll)
	case target.Unreadable:
		x.charge(refusePath)
	case target.AmbiguousAgent:
		x.charge(refuseAgent)
	case target.Health:
		x.handle(e.serveHealth)
	case target.Preflight:
		x.preflight = true
		x.charge(x.cors.answer)
	case target.UnknownMethod:
		x.charge(refuseMethod)
	default:
		if x.judge(false) {
			x.forward()
		}
	}
}

// judge asks the limiter, and answers where it does not admit the request.
func (x *fastExchange) judge(public bool) (admitted bool) {
	x.coverBy(x.choice.Match)
	if x.head.Length == 0 {
		x.c.beginWatch() // the limiter may wait for its store
	}
	err := x.c.engine.limit.Judge(&x.c.ctx, httplimit.Question{
		Request: x, Method: x.head.Method, Path: x.asked.Path, Match: x.choice.Match, Chosen: true, Public: public, Arrival: x.start,
	}, &x.caller, &x.answer)
	if err != nil {
		x.fail(&failure{http.StatusInternalServerError, "internal", "This request could not be judged."})
		return false
	}
	x.limited = x.answer.Outcome != httplimit.Unlimited
	if x.answer.Status == 0 {
		x.gone = x.c.isGone()
		return !x.gone
	}
	x.complete(x.answer.Status)
	x.send(x.answer.Status, x.answer.Body())
	return false
}

// charge lets an answer of the gateway's own, which needs no credential, go out under its limiter.
func (x *fastExchange) charge(next http.HandlerFunc) {
	if x.judge(true) {
		x.handle(next)
	}
}

// handle answers by one of the gateway's own handlers, which are net/http's.
func (x *fastExchange) handle(h http.HandlerFunc) {
	w := &ownAnswer{header: make(http.Header)}
	r := &http.Request{Method: x.head.Method, URL: &url.URL{Path: x.asked.Path}, Header: make(http.Header), Host: x.head.Host, RemoteAddr: x.c.peer}
	for _, f := range x.head.Fields {
		r.Header.Add(f.Name, f.Value)
	}
	h(w, r.WithContext(&x.c.ctx))
	x.answerAs(w)
}

// fail answers with an error of ours.
func (x *fastExchange) fail(f *failure) {
	w := &ownAnswer{header: make(http.Header)}
	f.write(w)
	x.answerAs(w)
}

// answerAs answers what was written to w.
func (x *fastExchange) answerAs(w *ownAnswer) {
	x.fields = x.fields[:0]
	for name, values := range w.header {
		if name == "Connection" {
			x.closes = true
			continue
		}
		for _, v := range values {
			x.fields = append(x.fields, httplimit.Field{Name: name, Value: v})
		}
	}
	x.complete(w.status)
	x.send(w.status, w.body.Bytes())
}

// An ownAnswer collects what a handler says.
type ownAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *ownAnswer) Header() http.Header { return w.header }

func (w *ownAnswer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *ownAnswer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}
