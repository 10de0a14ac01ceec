package weir

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/weirlimit/weir/internal/openapitest"
)

// A generator makes requests from an OpenAPI document: valid ones, and ones with
// one fault or several. It learns ids from the answers. With the same seed and the
// same answers it makes the same requests.
type generator struct {
	*rand.Rand
	operations []operation
	now        time.Time

	callers []*visitor
	tokens  []string // of several workspaces
	dead    []string // invalid credentials
	codes   []string
	rows    []string // ids of documents
	tags    map[string]string
}

// seedCoupons are coupons, valid and invalid ones. seeded is their number; a
// generator's codes start with them.
const (
	seedCoupons = `{"items":[{"code":"ALWAYS","percent":15},{"code":"CASH","amount":500,"currency":"EUR"},{"code":"OVER","percent":5,"ends_at":"2026-01-01T00:00:00Z"},
		{"code":"LATER","percent":5,"starts_at":"2027-01-01T00:00:00Z"},{"code":"ONCE","percent":5,"max_uses":1},{"code":"BIG","percent":5,"minimum":1000}]}`
	seeded = 6
)

// A visitor is a session with the ids it has seen.
type visitor struct {
	token         string
	conversations []string
	messages      []string
}

// An operation is an operation of the document.
type operation struct {
	method, path string
	item         *openapi3.PathItem
	*openapi3.Operation
}

func operationsOf(d *openapitest.Document) []operation {
	var all []operation
	for path, item := range d.Spec.Paths.Map() {
		for method, o := range item.Operations() {
			all = append(all, operation{method, path, item, o})
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return all
}

func (o operation) parameters() []*openapi3.Parameter {
	var all []*openapi3.Parameter
	for _, p := range slices.Concat(o.item.Parameters, o.Operation.Parameters) {
		all = append(all, p.Value)
	}
	return all
}

// needs is the security scheme of the operation; it is empty if anyone may call it.
func (o operation) needs() string {
	for _, requirement := range *o.Security {
		for name := range requirement {
			return name
		}
	}
	return ""
}

// A draft is a request under construction.
type draft struct {
	method, path, query string
	header              http.Header
	body                []byte
}

func (d *draft) request() (*http.Request, error) {
	target := d.path
	if d.query != "" {
		target += "?" + d.query
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err // the request would not reach a server
	}
	return &http.Request{
		Method: d.method, URL: u, RequestURI: target, Header: d.header, Host: "weir.example", RemoteAddr: "192.0.2.1:1234",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(d.body)),
	}, nil
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// one returns true once in n times.
func (g *generator) one(n int) bool { return g.IntN(n) == 0 }

// next makes a request. Half of them are valid, as far as the document defines
// that.
func (g *generator) next() (*visitor, draft) {
	o := g.operations[g.IntN(len(g.operations))]
	if o.needs() == "" && !g.one(4) { // a page
		o = g.operations[g.IntN(len(g.operations))]
	}
	v := g.callers[g.IntN(len(g.callers))]
	d := g.good(o, v)
	for range pick(g, 0, 0, 0, 0, 1, 1, 1, 2) {
		mistakes := []func(o operation, v *visitor, d *draft){
			g.badBody, g.badBody, g.badBody, g.badBytes, g.badBytes, g.badMedia, g.badQuery, g.badQuery, g.badCredential, g.badMethod, g.badPath, g.badID, g.oddFields,
		}
		mistakes[g.IntN(len(mistakes))](o, v, &d)
	}
	return v, d
}

func (g *generator) good(o operation, v *visitor) draft {
	d := draft{method: o.method, path: o.path, header: http.Header{}}
	switch o.needs() {
	case "session":
		d.header.Set("Authorization", "Bearer "+v.token)
	case "token":
		d.header.Set("Authorization", "Bearer "+g.tokens[g.IntN(len(g.tokens))])
	}
	query := url.Values{}
	for _, p := range o.parameters() {
		switch p.In {
		case openapi3.ParameterInPath:
			d.path = strings.ReplaceAll(d.path, "{"+p.Name+"}", url.PathEscape(g.idFor(o, v)))
		case openapi3.ParameterInQuery:
			if g.one(3) {
				query.Set(p.Name, g.parameter(p, v))
			}
		case openapi3.ParameterInHeader:
			if g.one(4) {
				d.header.Set(p.Name, g.parameter(p, v))
			}
		}
	}
	if tag := g.tags[o.path]; tag != "" && g.one(2) {
		d.header.Set("If-None-Match", tag)
	}
	if o.path == "/api/v1/widget/events" && o.method == http.MethodGet {
		if g.one(4) {
			d.header.Set("Accept", "text/event-stream")
			if !g.one(8) {
				query.Del("limit")
				query.Del("wait")
			}
		}
		if query.Get("wait") != "0" && query.Get("wait") != "" {
			query.Del("after") // it would wait otherwise; the first event is always there
		}
	}
	d.query = query.Encode()
	if o.RequestBody != nil && (o.RequestBody.Value.Required || !g.one(3)) {
		d.header.Set("Content-Type", pick(g, "application/json", "application/json", "application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"))
		d.body = text(g.value("", o.RequestBody.Value.Content["application/json"].Schema.Value, v))
	}
	return d
}

func text(value any) []byte {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // the output of value can always be encoded
	}
	return b
}

// learn takes ids for later requests from an answer.
func (g *generator) learn(v *visitor, r *http.Request, status int, header http.Header, body []byte) {
	if status >= 400 {
		return
	}
	if tag := header.Get("Etag"); tag != "" {
		g.tags[r.URL.Path] = tag
	}
	var a struct {
		Token, ID, Status string
		Conversation      string `json:"conversation_id"`
		Message, Reply    struct{ ID string }
	}
	if json.Unmarshal(body, &a) != nil {
		return
	}
	switch {
	case a.Token != "" && len(g.callers) < 12:
		g.callers = append(g.callers, &visitor{token: a.Token, conversations: []string{a.Conversation}})
	case a.Token != "":
		*g.callers[g.IntN(len(g.callers))] = visitor{token: a.Token, conversations: []string{a.Conversation}}
	case a.Status == "open" && strings.HasSuffix(r.URL.Path, "/conversations"):
		v.conversations = append(v.conversations, a.ID)
	case a.Reply.ID != "":
		v.messages = append(v.messages, a.Reply.ID, a.Reply.ID, a.Message.ID)
	}
}

func (d draft) String() string {
	body := string(d.body)
	if len(body) > 200 {
		body = body[:200] + "…"
	}
	return fmt.Sprintf("%s %s?%s %v %q", d.method, d.path, d.query, d.header, body)
}
