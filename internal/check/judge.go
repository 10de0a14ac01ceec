package check

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/wire"
)

// An exchange is one question and its verdict. It is used again for others.
type exchange struct {
	rules.Record
	rules.Route
	sent   sent
	caller identity.Caller
	answer answer.Answer
	// Of the verdict.

	passes bool // the proxy forwards the request: the fields are for the backend's response
	fields rules.Fields
	body   []byte
}

func (d *Door) borrow() *exchange {
	x := d.pool.Get().(*exchange)
	x.Start = time.Now()
	return x
}

func (d *Door) giveBack(x *exchange) {
	clear(x.fields[:cap(x.fields)])
	x.sent.reset()
	x.Record, x.Route, x.caller = rules.Record{}, rules.Route{}, identity.Caller{}
	x.passes, x.fields, x.body = false, x.fields[:0], nil
	d.pool.Put(x)
}

// decide sets the verdict on x.sent. It never passes a request that it could not judge.
func (d *Door) decide(ctx context.Context, x *exchange) {
	defer func() {
		if failure := recover(); failure != nil {
			d.rules.Log.Error("deciding a request panicked", "method", x.sent.method, "panic", failure, "stack", string(debug.Stack()))
			x.CORS = nil
			d.reply(x, &rules.Panicked)
		}
	}()
	s := &x.sent
	x.Method, x.Host, x.Proto = s.method, s.host, s.proto
	if s.uri == "" || s.uri[0] != '/' || !wire.IsToken(s.method) {
		d.reply(x, d.rules.RejectMalformed(wire.BadTarget.Status, wire.BadTarget.Reason))
		return
	}
	u, err := target.Parse(s.method, s.uri)
	if err != nil {
		d.reply(x, d.rules.RejectMalformed(wire.BadTarget.Status, wire.BadTarget.Reason))
		return
	}
	s.query = u.RawQuery
	x.Asked = target.Request{
		Method: s.method, Host: s.host, Purpose: rules.Purpose(s.method, s.field), Methods: d.rules.Methods,
		Query: s.query, HasNoHealth: true,
		Ambiguous: s.query != "" && identity.AgentIsAmbiguous(s.query) && !identity.NamesAgent(s),
	}
	d.rules.Read(&x.Asked, s.uri, u)
	d.rules.Choose(&x.Route, s.field)
	x.Path = rules.PathOf(&x.Asked, u)
	if x.Asked.Sent != "" {
		x.Path = x.CountedPath()
	}
	d.rules.Identity.Start(&x.caller, s)
	x.caller.Arrived(x.Start)
	own := d.rules.Own(ctx, &x.Route, s.Header)
	// The backend answers preflights here: some proxies cannot be told to answer 204 themselves.
	isPreflight := x.IsPreflight()
	if !d.charge(ctx, x, own != nil) {
		return
	}
	if own != nil && !isPreflight {
		d.reply(x, own)
		return
	}
	x.Status, x.passes = d.asks.admits, true
	d.complete(x)
}

// charge asks the limiter, and reports whether it admits the request. public means that the request
// needs no credential.
func (d *Door) charge(ctx context.Context, x *exchange, public bool) (admitted bool) {
	x.CoverBy(&d.rules.Options, x.Choice.Match)
	err := d.judge.Answer(ctx, &answer.Question{
		Caller: &x.caller, Method: x.sent.method, Path: x.Asked.Path, Match: x.Choice.Match, Chosen: true, Public: public, Arrival: x.Start,
	}, &x.answer)
	if err != nil {
		d.reply(x, &rules.Unjudged)
		return false
	}
	x.NoteJudged(&d.rules.Options, &x.caller, &x.answer)
	if x.answer.Status == 0 {
		// No proxy reports the response: what was charged stays, and a slot is given back.
		d.judge.End(ctx, &x.answer)
		return true
	}
	x.Status, x.body = x.answer.Status, x.answer.Body()
	d.complete(x)
	if isPass(x.Status) && !d.asks.seals {
		// A limiter that answers usage itself. A proxy would forward the request.
		x.CORS = nil
		d.reply(x, &noUsage)
	}
	return false
}

var noUsage = rules.Answer{Status: http.StatusNotFound, Code: "not_found",
	Message: "This address reports usage, which the proxy in front of it cannot pass on."}

// reply makes one of the gateway's own answers the verdict.
func (d *Door) reply(x *exchange, a *rules.Answer) {
	x.fields, x.body = d.rules.Append(x.fields[:0], a, x.sent.Header("Accept"))
	x.Status, x.passes = a.Status, false
	if x.answer.Outcome != answer.Unlimited && x.Limiter != "" {
		own := len(x.fields)
		x.fields = x.answer.AppendFields(x.fields)
		// Those about the limiter's own body, which is not sent, are left out.
		x.fields = append(x.fields[:own], slices.DeleteFunc(x.fields[own:], func(f answer.Field) bool { return !x.answer.Owns(f.Name) })...)
	}
	if x.CORS != nil {
		x.CORS.Complete(&x.fields, x.Origin)
	}
}

// complete adds the fields of the limiter and those for browsers to the verdict.
func (d *Door) complete(x *exchange) {
	x.fields = x.fields[:0]
	if x.answer.Outcome != answer.Unlimited {
		x.fields = x.answer.AppendFields(x.fields)
	}
	if x.CORS != nil && !x.IsPreflight() && (!x.passes || !x.CORS.Shares()) {
		x.CORS.Complete(&x.fields, x.Origin)
	}
}

func isPass(status int) bool { return status >= 200 && status < 300 }

// finish reports the request, whose verdict was sent.
func (d *Door) finish(x *exchange) {
	if x.Path == "" {
		return
	}
	if d.rules.AccessLog != nil {
		x.Client = x.caller.Addr()
		for _, name := range [...]string{"User-Agent", "X-Request-Id", "Traceparent"} {
			for _, value := range x.sent.Header(name) {
				x.NoteField(d.rules.LogFields, name, value)
			}
		}
		x.NoteCost(&x.answer)
	}
	x.Written = int64(len(x.body))
	d.rules.Finish(&x.Record, nil, time.Now())
}

// The verdicts on questions that are not to be believed. They name no reason: the proxy passes them
// on to its client. The log has it.
var (
	stranger = rules.Answer{Status: http.StatusForbidden, Code: "forbidden", Message: "This address is not for you."}
	unclear  = rules.Answer{Status: http.StatusBadRequest, Code: "invalid_request",
		Message: "The request has a field that only a proxy may send."}
)

// reject makes the verdict on a question that cannot be read. A client can cause an errForeign
// alone: a proxy that is configured for this door replaces the other fields.
func (d *Door) reject(x *exchange, peer netip.Addr, err error) {
	kind, why, a := noticeFields, "a proxy's question about a request cannot be read, so the request is refused: check the proxy's configuration against docs/forward-auth.md", &rules.Unjudged
	if errors.Is(err, errForeign) {
		kind, why, a = noticeForeign, "a request with a field that only another proxy sends was refused: its client has made the field up, or --forward-auth-proxy names the wrong proxy", &unclear
	}
	d.note(kind, why, "proxy", string(d.asks.dialect), "peer", peer.String(), "error", err)
	d.reply(x, a)
}
