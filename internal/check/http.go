package check

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/fast"
	"github.com/weirlimit/weir/internal/gateway/rules"
)

// answerPath is where nginx brings a sealed refusal to, to get it as it is.
const answerPath = "/answer"

// A reply is what a question over HTTP is answered with.
type reply struct {
	status int
	fields []answer.Field
	body   []byte
	closes bool // the connection
}

// answer answers one question over HTTP/1.
func (d *Door) answer(a fast.Asked) {
	x := d.borrow()
	defer d.giveBack(x)
	head := a.Head()
	s := &x.sent
	s.head, s.method, s.uri, s.host, s.proto = head, head.Method, head.Target, head.Host, "HTTP/1.1"
	if head.Minor == 0 {
		s.proto = "HTTP/1.0"
	}
	if strings.HasPrefix(head.Target, "/readyz") {
		a.Detach()
	}
	r := d.ask(a.Context(), x, a.Peer())
	if r.closes {
		a.Close()
	}
	a.Write(r.status, r.fields, r.body)
	d.finish(x)
}

// ServeHTTP implements http.Handler: it answers one question over HTTP/2.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.rules.Active.Add(1)
	defer d.rules.Active.Add(-1)
	x := d.borrow()
	defer d.giveBack(x)
	s := &x.sent
	s.fields, s.method, s.uri, s.host, s.proto = r.Header, r.Method, r.RequestURI, r.Host, r.Proto
	a := d.ask(r.Context(), x, identity.ParsePeer(r.RemoteAddr))
	h := w.Header()
	for _, f := range a.fields {
		h[f.Name] = append(h[f.Name], f.Value)
	}
	if _, ok := h["Content-Length"]; !ok && a.status != http.StatusNoContent {
		h["Content-Length"] = []string{strconv.Itoa(len(a.body))}
	}
	if a.closes {
		h.Set("Connection", "close")
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the proxy may have gone
	d.finish(x)
}

// ask judges the question that x.sent has, and returns what it is answered with.
func (d *Door) ask(ctx context.Context, x *exchange, peer netip.Addr) reply {
	s := &x.sent
	if !d.believes(peer) {
		d.note(noticePeer, "a question about a request came from an address that is none of the proxies, and was answered 403: add it to --forward-auth-peers if it is one",
			"peer", peer.String())
		d.reply(x, &stranger)
		return reply{status: x.Status, fields: x.fields, body: x.body, closes: true}
	}
	path, _, _ := strings.Cut(s.uri, "?")
	switch {
	case d.asks.hasHealth && (path == "/healthz" || path == "/readyz"):
		return d.health(ctx, path)
	case d.asks.seals && path == answerPath:
		return d.refusal(x)
	}
	err := d.asks.read(s)
	switch {
	case errors.Is(err, errForeign):
		d.reject(x, peer, err)
	case err != nil: // it is not sealed: the proxy's configuration is wrong
		d.reject(x, peer, err)
		return reply{status: x.Status, fields: x.fields, body: x.body}
	default:
		d.decide(ctx, x)
	}
	if x.passes || !d.asks.seals {
		return reply{status: x.Status, fields: x.fields, body: x.body}
	}
	return reply{status: http.StatusForbidden, fields: []answer.Field{{Name: sealedField, Value: d.seal(x.Status, x.fields, x.body)}}}
}

// health answers what looks whether this server wants questions.
func (d *Door) health(ctx context.Context, path string) reply {
	status, text := http.StatusOK, "ok\n"
	if path == "/readyz" {
		status, text = d.rules.Readyz(ctx)
	}
	return reply{status: status, fields: []answer.Field{{Name: "Content-Type", Value: "text/plain; charset=utf-8"}, {Name: "Cache-Control", Value: "no-store"}}, body: []byte(text)}
}

// refusal returns the refusal that a question has brought back.
func (d *Door) refusal(x *exchange) reply {
	var sealed string
	if values := x.sent.asked(sealedField); len(values) == 1 {
		sealed = values[0]
	}
	status, fields, body, ok := d.open(sealed)
	if !ok {
		// Something else than this door has refused the request, such as a deny of nginx.
		d.note(noticeSealed, "nginx asks for a refusal that is none of this server's, and its client is answered 403: does something else in its configuration answer 403, "+
			"or do several servers that it asks not share a store?", "length", len(sealed))
		d.reply(x, &refusedElsewhere)
		status, fields, body = x.Status, x.fields, x.body
	}
	return reply{status: status, fields: fields, body: body}
}

var refusedElsewhere = rules.Answer{Status: http.StatusForbidden, Code: "forbidden", Message: "This request is not allowed."}
