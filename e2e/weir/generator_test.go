package weir

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/weirlimit/weir/internal/openapitest"
)

// A generator makes requests of an OpenAPI document: good ones, and ones that are wrong in one way
// or several. It learns ids from the answers. Two with the same seed, given the same answers, make
// the same requests.
type generator struct {
	*rand.Rand
	operations []operation
	now        time.Time

	callers []*visitor
	tokens  []string // of several workspaces
	dead    []string // credentials that do not hold
	codes   []string
	rows    []string // ids of documents
	tags    map[string]string
}

// seedCoupons are some that will, and some that will not be taken; seeded is how many, the first of
// a generator's codes.
const (
	seedCoupons = `{"items":[{"code":"ALWAYS","percent":15},{"code":"CASH","amount":500,"currency":"EUR"},{"code":"OVER","percent":5,"ends_at":"2026-01-01T00:00:00Z"},
		{"code":"LATER","percent":5,"starts_at":"2027-01-01T00:00:00Z"},{"code":"ONCE","percent":5,"max_uses":1},{"code":"BIG","percent":5,"minimum":1000}]}`
	seeded = 6
)

// A visitor is a session with what it has seen.
type visitor struct {
	token         string
	conversations []string
	messages      []string
}

// An operation is one of the document's.
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

// needs is the security scheme of the operation, empty where anybody may ask.
func (o operation) needs() string {
	for _, requirement := range *o.Security {
		for name := range requirement {
			return name
		}
	}
	return ""
}

// A draft is a request that is being made.
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
		return nil, err // no server would have been asked
	}
	return &http.Request{
		Method: d.method, URL: u, RequestURI: target, Header: d.header, Host: "weir.example", RemoteAddr: "192.0.2.1:1234",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(d.body)),
	}, nil
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// one says yes once in n times.
func (g *generator) one(n int) bool { return g.IntN(n) == 0 }

// next makes a request. Half of them are as documented, so far as the document says it.
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
			query.Del("after") // or it would wait: the first event is always there
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
		panic(err) // what value makes always encodes
	}
	return b
}

// idFor is what stands in a path: mostly what the operation would like.
func (g *generator) idFor(o operation, v *visitor) string {
	known := v.conversations
	if strings.Contains(o.path, "/messages/") {
		known = v.messages
	}
	if len(known) > 0 && !g.one(10) {
		return known[len(known)-1-g.IntN(min(len(known), 8))]
	}
	return g.stranger()
}

// stranger is an id of somebody else, or of nobody.
func (g *generator) stranger() string {
	other := g.callers[g.IntN(len(g.callers))]
	all := append(slices.Clone(other.conversations), "cnv_AAAAAAAAAAAAAAAAAAAAAAAAAA", "msg_AAAAAAAAAAAAAAAAAAAAAAAAAA", "0", "' OR 1=1 --", "%", "…", strings.Repeat("x", 300))
	return all[g.IntN(len(all))]
}

func (g *generator) parameter(p *openapi3.Parameter, v *visitor) string {
	switch {
	case p.Name == "wait":
		return pick(g, "0", "0", "", "1", "25")
	case p.Name == "Last-Event-ID":
		return pick(g, g.conversation(v)+"/1", g.conversation(v)+"/0", g.conversation(v)+"/999999", "1", "", "a/b", g.stranger()+"/1")
	case p.Name == "conversation_id":
		return g.conversation(v)
	case p.Name == "agent_id" || p.Name == "X-Agent-Id":
		return pick(g, "demo", "demo", "demo", "nobody")
	case p.Name == "Accept-Language":
		return pick(g, "de", "fr;q=0.5, tlh", "*", "zh-Hant, en;q=0.1", ";;q=x")
	case p.Schema.Value.Type.Is(openapi3.TypeInteger):
		if p.Name == "after" && !g.one(3) {
			return pick(g, "0", "1")
		}
		return strconv.FormatInt(g.integer(p.Schema.Value), 10)
	}
	return pick(g, "", g.conversation(v), g.rows[g.IntN(len(g.rows))], g.codes[g.IntN(len(g.codes))])
}

func (g *generator) conversation(v *visitor) string {
	if len(v.conversations) == 0 || g.one(12) {
		return pick(g, "", g.stranger())
	}
	return v.conversations[g.IntN(len(v.conversations))]
}

func (g *generator) integer(s *openapi3.Schema) int64 {
	least, most := int64(0), int64(1_000_000)
	if s.Min != nil {
		least = int64(*s.Min)
	}
	if s.Max != nil {
		most = int64(*s.Max)
	}
	return pick(g, least, most, least+g.Int64N(most-least+1), least+g.Int64N(min(most-least, 2000)+1))
}

// value makes a value of a schema. name is the field's, empty for the whole body.
func (g *generator) value(name string, s *openapi3.Schema, v *visitor) any {
	if s.Type.Includes(openapi3.TypeNull) && g.one(10) {
		return nil
	}
	switch {
	case s.Type.Includes(openapi3.TypeBoolean):
		return g.one(2)
	case s.Type.Includes(openapi3.TypeInteger):
		return g.integer(s)
	case s.Type.Includes(openapi3.TypeString):
		return g.string(name, s, v)
	case s.Type.Includes(openapi3.TypeArray):
		items := make([]any, pick(g, 0, 1, 1, 2, 3, 5))
		if g.one(40) {
			items = make([]any, int(*s.MaxItems))
		}
		for i := range items {
			items[i] = g.value(name, s.Items.Value, v)
		}
		return items
	}
	fields := map[string]any{}
	for _, field := range sorted(s.Properties) {
		if slices.Contains(s.Required, field) || g.one(3) {
			fields[field] = g.value(field, s.Properties[field].Value, v)
		}
	}
	if _, coupon := s.Properties["max_uses"]; coupon { // which have either of two
		delete(fields, pick(g, "percent", "amount"))
		if fields["percent"] == nil && fields["amount"] == nil {
			fields["percent"] = 1 + g.IntN(100)
		}
		if fields["percent"] != nil && fields["minimum"] == nil && !g.one(10) {
			delete(fields, "currency")
		}
	}
	if len(s.Properties) == 0 && s.AdditionalProperties.Schema == nil && name == "data" {
		fields["url"], fields[g.letters(3)] = "/"+g.letters(5), []any{1.5, nil, map[string]any{"deep": g.letters(4)}}
	}
	return fields
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// string makes what a field of that name is likely to be, or any text of the schema's length.
func (g *generator) string(name string, s *openapi3.Schema, v *visitor) string {
	switch name {
	case "conversation_id":
		return g.conversation(v)
	case "agent_id":
		return pick(g, "demo", "demo", "demo", "", "nobody", g.letters(256))
	case "code":
		if g.one(3) {
			g.codes = append(g.codes, strings.ToUpper(g.letters(6)))
		}
		return pick(g, strings.ToLower, strings.ToUpper)(g.codes[g.IntN(min(len(g.codes), pick(g, seeded, len(g.codes))))])
	case "currency":
		return pick(g, "EUR", "EUR", "EUR", "USD", "")
	case "email":
		return pick(g, "ann@example.org", "o'hara+x@sub.example.co", `"a b"@example.org`, "ünï@exämple.org", g.letters(64)+"@example.org", "no address", "Ann <ann@example.org>", "a@b@c")
	case "url":
		return pick(g, "https://example.org/"+g.letters(5), "HTTP://EXAMPLE.org", "https://exämple.org/ü?q=1#f", "https://[2001:db8::1]:8/", "https://example.org/"+g.letters(2028), "https:///x", "https://u:p@example.org", "https://example.org/%zz", "http://:80")
	case "type":
		return pick(g, "page.view", "a", "cart:add-1", "conversation.closed", g.letters(64), "9")
	case "starts_at", "ends_at":
		at := g.now.Add(time.Duration(g.IntN(100)-50) * time.Hour)
		return pick(g, at.Format(time.RFC3339), at.In(time.FixedZone("", 19800)).Format(time.RFC3339Nano), at.Format("2006-01-02T15:04:05.000Z"), "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "2026-02-30T00:00:00Z", "2026-03-01T12:00:00")
	case "id":
		if g.one(2) {
			g.rows = append(g.rows, g.letters(8))
		}
		return pick(g, g.rows[g.IntN(len(g.rows))], g.rows[g.IntN(len(g.rows))], "ß/ü 👋", g.letters(200))
	}
	if s.Pattern != "" && !strings.Contains(s.Pattern, "{Cc}") {
		return g.letters(5)
	}
	most := 100
	if s.MaxLength != nil {
		most = int(*s.MaxLength)
	}
	switch g.IntN(12) {
	case 0:
		return g.letters(most)
	case 1:
		return g.letters(int(s.MinLength))
	case 2:
		return strings.Repeat("é", most/2)
	case 3:
		return strings.Repeat("👩‍👩‍👧", most/50+1)
	}
	return pick(g, "How long does delivery take?", "Où est ma commande ?", "مرحبا", "e\u0301\u200d\ufeff", "NEAR(\"a\" OR b*", "\u00a0", "<script>alert(1)</script>", "a'b\"c\\d", "ı ſ K ß ŉ", "\U0010ffff") + g.letters(1+g.IntN(5))
}

func (g *generator) letters(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + g.IntN(26))
	}
	return string(b)
}

// badBody changes one value of the body: another type, a missing or unknown field, one beyond what
// is allowed.
func (g *generator) badBody(o operation, v *visitor, d *draft) {
	if o.RequestBody == nil {
		return
	}
	schema := o.RequestBody.Value.Content["application/json"].Schema.Value
	value := g.value("", schema, v)
	d.header.Set("Content-Type", "application/json")
	d.body = text(g.spoil(value, schema))
}

// anything is of no type in particular.
func (g *generator) anything() any {
	return pick[any](g, nil, true, -1, 0, 1.5, 1e300, "", "x", []any{}, map[string]any{}, []any{nil}, map[string]any{"": 0}, "5", int64(1)<<62)
}

func (g *generator) spoil(value any, s *openapi3.Schema) any {
	if g.one(8) {
		return g.anything()
	}
	switch value := value.(type) {
	case map[string]any:
		names := sorted(s.Properties)
		if g.one(4) || len(names) == 0 {
			value[pick(g, "surprise", "Text", "__proto__", "", "id ", "\u0000")] = g.anything()
			return value
		}
		name := names[g.IntN(len(names))]
		if field, ok := value[name]; ok && !g.one(4) {
			value[name] = g.spoil(field, s.Properties[name].Value)
		} else if ok {
			delete(value, name)
		} else {
			value[name] = g.anything()
		}
	case []any:
		if len(value) == 0 || g.one(10) {
			return make([]any, pick(g, 1, 500, 501))
		}
		if at := g.IntN(len(value)); g.one(6) {
			return append(value, value[at])
		} else {
			value[at] = g.spoil(value[at], s.Items.Value)
		}
	case string:
		most := 64
		if s.MaxLength != nil {
			most = int(*s.MaxLength)
		}
		return pick(g, "", " \n\t", g.letters(most+1), strings.Repeat("é", most/2+1), "a\x00b", "a\u2028b", "a\nb", "\x7f", "\u0085", "two words", "é", "Ä-1", "ıſ")
	case int64:
		return pick[any](g, -1, 0, int64(1)<<62, json.Number("99999999999999999999"), 1.5, json.Number("1.0"), json.Number("1e2"), json.Number("-0"), strconv.FormatInt(value, 10), g.beyond(s))
	}
	return g.anything()
}

func (g *generator) beyond(s *openapi3.Schema) int64 {
	if s.Max != nil && g.one(2) {
		return int64(*s.Max) + 1
	}
	if s.Min != nil {
		return int64(*s.Min) - 1
	}
	return -1
}

// badBytes sends what is no such JSON, or too much of it.
func (g *generator) badBytes(o operation, _ *visitor, d *draft) {
	if o.RequestBody == nil {
		d.body = []byte(pick(g, "x", "{}", strings.Repeat(" ", 1<<10)))
		return
	}
	most, _ := o.RequestBody.Value.Extensions[openapitest.MaxBytes].(float64)
	pad := func(n int) []byte { return append(slices.Clone(d.body), strings.Repeat(" ", max(n-len(d.body), 0))...) }
	switch g.IntN(9) {
	case 0:
		d.body = d.body[:len(d.body)*2/3]
	case 1:
		d.body = append(d.body, pick(g, "{}", "x", "\x00", "]", " null")...)
	case 2:
		d.body = pad(int(most))
	case 3, 4:
		d.body = pad(int(most) + 1)
	case 5:
		d.body = []byte(strings.Replace(string(d.body), `"`, "\"\xff", 1))
	case 6:
		d.body = []byte(strings.Replace(string(d.body), `:"`, `:"`+pick(g, `\ud800`, `\udc00\ud800`, `\u0000`, `\u001b`, `\x`, "\u2029"), 1))
	case 7:
		if len(d.body) > 2 {
			d.body = append(d.body[:len(d.body)-1], ","+string(d.body[1:])...) // every field twice
		}
	case 8:
		d.body = []byte(pick(g, "", " ", "null", "[]", "0", `""`, strings.Repeat("[", 20000), "\ufeff{}", `{"items":[`+strings.Repeat("{},", 600)+`{}]}`))
	}
}

func (g *generator) badMedia(_ operation, _ *visitor, d *draft) {
	switch g.IntN(4) {
	case 0:
		d.header.Del("Content-Type")
	case 1:
		d.header.Set("Content-Encoding", pick(g, "gzip", "identity", "br"))
	case 2:
		d.header.Add("Content-Type", "application/json")
	case 3:
		d.header.Set("Content-Type", pick(g, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "application/json;;", "application/problem+json", "é", ""))
	}
}

func (g *generator) badQuery(o operation, v *visitor, d *draft) {
	more := pick(g, "x=1", "%zz", "agent_id=demo", "agent_id=a&agent_id=b", ";", "=", "&&", "a;b=c", "%00=1", "limit=1", "after=", "conversation_id=&conversation_id=")
	for _, p := range o.parameters() {
		if p.In == openapi3.ParameterInQuery && g.one(2) {
			more = p.Name + "=" + pick(g, "", "-1", "1.5", "x", "99999999999999999999", "26", "501", "+1", "007", "1&"+p.Name+"=2", "%F0%9F%91%8B", "%ff", url.QueryEscape(g.stranger()))
			if p.Name == "wait" && strings.Contains(d.query, "after") {
				more = "wait=-1"
			}
		}
	}
	d.query = strings.Trim(d.query+"&"+more, "&")
	// Or it would wait for what never comes.
	if strings.Contains(d.query, "wait") && strings.Contains(d.query, "after") {
		d.query = more
	}
}

func (g *generator) badCredential(_ operation, v *visitor, d *draft) {
	credential := pick(g, "", "Bearer", "Bearer ", "Basic ZGVtbzpkZW1v", "bearer "+v.token, "Bearer "+v.token+"x", "Bearer "+g.tokens[0], "Bearer "+v.token,
		"Bearer  "+v.token, "Bearer wpt_a_b", "Bearer "+strings.Repeat("a", 9000), "Bearer "+g.dead[g.IntN(len(g.dead))])
	d.header.Del("Authorization")
	if credential != "" {
		d.header.Set("Authorization", credential)
	}
	if g.one(6) {
		d.header.Add("Authorization", "Bearer "+v.token)
	}
}

func (g *generator) badMethod(_ operation, _ *visitor, d *draft) {
	d.method = pick(g, "GET", "HEAD", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "post", "BREW")
	if d.method == http.MethodOptions && g.one(2) {
		d.header.Set("Origin", "https://example.com")
		d.header.Set("Access-Control-Request-Method", "POST")
	}
}

func (g *generator) badPath(_ operation, _ *visitor, d *draft) {
	switch g.IntN(3) {
	case 0:
		d.path += pick(g, "/", "/x", ".json", ";v=1", "%2f", "%00", "%5c", "/../x", "//", "%20", "%3f", "%e2%80%a8", "%ff")
	case 1:
		d.path = strings.Replace(d.path, "/v1/", pick(g, "/v2/", "//v1/", "/V1/", "/./v1/", "/%76%31/", "/v1%2f", "/x/../v1/"), 1)
	case 2:
		d.path = pick(g, "/", "/api/v1/widget", "/v1/wp", "/v1/wp/x", "/api/v1/widget/messages/a/b/c", "/docs/", "/nothing", "/api/v1/widget/conversations/")
	}
}

func (g *generator) badID(_ operation, _ *visitor, d *draft) {
	parts := strings.Split(d.path, "/")
	if len(parts) > 5 {
		parts[5] = pick(g, "", "%F0%9F%91%8B", "%25", "%2525", "%00", "..", ".", "%ff", "a%20b", url.PathEscape(g.stranger()))
	}
	d.path = strings.Join(parts, "/")
}

func (g *generator) oddFields(_ operation, _ *visitor, d *draft) {
	name := pick(g, "Accept", "Accept-Encoding", "Accept-Language", "Origin", "Range", "If-Match", "If-None-Match", "X-Forwarded-For", "User-Agent", "X-Agent-Id", "Expect", "Content-Language")
	d.header.Set(name, pick(g, "*/*", "x", "", "bytes=0-0", "\"x\"", "gzip;q=0", "https://example.com", "text/html", strings.Repeat("a,", 500), "é"))
}

// learn takes what later requests can name from an answer.
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
