package weir

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/weirlimit/weir/internal/openapitest"
)

// badBody breaks one value of the body: another type, a missing or unknown field,
// or a value out of range.
func (g *generator) badBody(o operation, v *visitor, d *draft) {
	if o.RequestBody == nil {
		return
	}
	schema := o.RequestBody.Value.Content["application/json"].Schema.Value
	value := g.value("", schema, v)
	d.header.Set("Content-Type", "application/json")
	d.body = text(g.spoil(value, schema))
}

// anything returns a value of a random type.
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

// badBytes sends invalid JSON, or too much of it.
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
			more = p.Name + "=" + pick(g, "", "-1", "1.5", "x", "99999999999999999999", "26", "501", "+1", "007", "1&"+p.Name+"=2", "%F0%9F%91%8B", "%ff", url.QueryEscape(g.foreignID()))
			if p.Name == "wait" && strings.Contains(d.query, "after") {
				more = "wait=-1"
			}
		}
	}
	d.query = strings.Trim(d.query+"&"+more, "&")
	// It would wait for an event that never comes.
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
		parts[5] = pick(g, "", "%F0%9F%91%8B", "%25", "%2525", "%00", "..", ".", "%ff", "a%20b", url.PathEscape(g.foreignID()))
	}
	d.path = strings.Join(parts, "/")
}

func (g *generator) oddFields(_ operation, _ *visitor, d *draft) {
	name := pick(g, "Accept", "Accept-Encoding", "Accept-Language", "Origin", "Range", "If-Match", "If-None-Match", "X-Forwarded-For", "User-Agent", "X-Agent-Id", "Expect", "Content-Language")
	d.header.Set(name, pick(g, "*/*", "x", "", "bytes=0-0", "\"x\"", "gzip;q=0", "https://example.com", "text/html", strings.Repeat("a,", 500), "é"))
}
