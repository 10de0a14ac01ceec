package check

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/rules"
)

// answerPath is where nginx brings a sealed refusal to, to get it as it is.
const answerPath = "/answer"

// ServeHTTP implements http.Handler: it answers one question.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		// Nothing reads a body here. Without this, the answer would wait for one that never comes.
		_ = http.NewResponseController(w).EnableFullDuplex() // a recorder in tests cannot
	}
	x := d.borrow()
	defer d.giveBack(x)
	peer := identity.ParsePeer(r.RemoteAddr)
	if !d.believes(peer) {
		d.note(noticePeer, "a question about a request came from an address that is none of the proxies, and was answered 403: add it to --forward-auth-peers if it is one",
			"peer", peer.String())
		d.reply(x, &stranger)
		w.Header().Set("Connection", "close")
		write(w, x.Status, x.fields, x.body)
		return
	}
	if d.asks.hasHealth && (r.URL.Path == "/healthz" || r.URL.Path == "/readyz") {
		d.serveHealth(w, r)
		return
	}
	if d.asks.seals && r.URL.Path == answerPath {
		d.serveAnswer(w, r, x)
		return
	}
	err := d.asks.read(&x.sent, r.Header, r.Method, r.RequestURI, r.Host)
	x.sent.proto = r.Proto
	switch {
	case errors.Is(err, errForeign):
		d.reject(x, peer, err, &unclear)
	case err != nil:
		d.reject(x, peer, err, &rules.Unjudged)
		write(w, x.Status, x.fields, x.body) // unsealed: the proxy's configuration is wrong
		return
	default:
		d.decide(r.Context(), x)
	}
	d.send(w, x)
	d.finish(x)
}

// send answers a question with the verdict.
func (d *Door) send(w http.ResponseWriter, x *exchange) {
	if x.passes || !d.asks.seals {
		write(w, x.Status, x.fields, x.body)
		return
	}
	w.Header()[sealedField] = []string{d.seal(x.Status, x.fields, x.body)}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusForbidden)
}

// write writes an answer whole. A HEAD gets it without its body.
func write(w http.ResponseWriter, status int, fields []answer.Field, body []byte) {
	h := w.Header()
	for _, f := range fields {
		h[f.Name] = append(h[f.Name], f.Value)
	}
	if _, ok := h["Content-Length"]; !ok && status != http.StatusNoContent {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the proxy may have gone
}

// serveHealth answers what looks whether this server wants questions.
func (d *Door) serveHealth(w http.ResponseWriter, r *http.Request) {
	status, text := http.StatusOK, "ok\n"
	if r.URL.Path == "/readyz" {
		status, text = d.rules.Readyz(r.Context())
	}
	write(w, status, []answer.Field{{Name: "Content-Type", Value: "text/plain; charset=utf-8"}, {Name: "Cache-Control", Value: "no-store"}}, []byte(text))
}

// serveAnswer answers with the refusal that a question has brought back.
func (d *Door) serveAnswer(w http.ResponseWriter, r *http.Request, x *exchange) {
	var sealed string
	if values := r.Header[sealedField]; len(values) == 1 {
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
	write(w, status, fields, body)
}

var refusedElsewhere = rules.Answer{Status: http.StatusForbidden, Code: "forbidden", Message: "This request is not allowed."}
