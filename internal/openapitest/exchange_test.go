package openapitest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const greeting = `
openapi: 3.1.0
info: {title: Greetings, version: "1"}
servers: [{url: /}]
paths:
  /greetings/{name}:
    post:
      security: [{key: []}]
      parameters:
        - {name: name, in: path, required: true, schema: {type: string}}
        - {name: times, in: query, schema: {type: integer, minimum: 1, maximum: 3}}
      requestBody:
        required: true
        x-weir-max-bytes: 40
        content: {application/json: {schema: {$ref: '#/components/schemas/Words'}, example: {words: hello}}}
      responses:
        '201':
          description: Greeted.
          headers: {X-Left: {required: true, schema: {type: integer, minimum: 0}, example: 1}}
          content: {application/json: {schema: {$ref: '#/components/schemas/Words'}, example: {words: hello}}}
        '204': {description: Nobody listened.}
        '400': {description: Not like that.}
components:
  securitySchemes: {key: {type: http, scheme: bearer}}
  schemas:
    Words:
      type: object
      additionalProperties: false
      required: [words]
      properties: {words: {type: [string, 'null'], maxLength: 5}}
`

// Check notices every way in which an exchange can differ from its document.
func TestAnExchangeThatIsNotAsDescribedIsNoticed(t *testing.T) {
	d, err := Read([]byte(greeting))
	if err != nil {
		t.Fatal(err)
	}
	as := http.Header{"Content-Type": {"application/json"}, "X-Left": {"2"}}
	for name, c := range map[string]struct {
		target, sent string
		change       func(x *Exchange)
		want         string // empty: all is well
	}{
		"as described":           {"/greetings/ann?times=3", `{"words":"hello"}`, nil, ""},
		"null":                   {"/greetings/ann", `{"words":null}`, nil, ""},
		"no header":              {"/greetings/ann", `{"words":"hello"}`, func(x *Exchange) { delete(x.Header, "X-Left") }, "X-Left is there 0 times"},
		"two headers":            {"/greetings/ann", `{"words":"hello"}`, func(x *Exchange) { x.Header["X-Left"] = []string{"1", "2"} }, "X-Left is there 2 times"},
		"a header of words":      {"/greetings/ann", `{"words":"hello"}`, func(x *Exchange) { x.Header["X-Left"] = []string{"many"} }, `X-Left is "many"`},
		"a header too many":      {"/greetings/ann", `{"words":"hello"}`, func(x *Exchange) { x.Header["Retry-After"] = []string{"1"} }, "Retry-After is there"},
		"another status":         {"/greetings/ann", `{"words":"hello"}`, func(x *Exchange) { x.Status = 200 }, "the status is not documented"},
		"another type":           {"/greetings/ann", `{"words":"hello"}`, func(x *Exchange) { x.Header["Content-Type"] = []string{"text/html"} }, `"text/html" is not documented`},
		"no JSON":                {"/greetings/ann", `{"words":"hello"}`, func(x *Exchange) { x.Body = []byte("hello") }, "no JSON"},
		"a field too many":       {"/greetings/ann", `{"words":"hello"}`, func(x *Exchange) { x.Body = []byte(`{"words":"hello","more":1}`) }, "additional"},
		"a body with a 204":      {"/greetings/ann", `{"words":"hello"}`, func(x *Exchange) { x.Status = 204 }, "no body is documented"},
		"accepted: too long":     {"/greetings/ann", `{"words":"hello!"}`, nil, "does not say that it may"},
		"accepted: too large":    {"/greetings/ann", `{"words":"hello"}` + strings.Repeat(" ", 40), nil, "57 bytes"},
		"accepted: unknown":      {"/greetings/ann", `{"word":"hello"}`, nil, "does not say that it may"},
		"accepted: no body":      {"/greetings/ann", ``, nil, "the body is missing"},
		"accepted: query":        {"/greetings/ann?tmes=3", `{"words":"hello"}`, nil, `no parameter "tmes"`},
		"accepted: out of range": {"/greetings/ann?times=4", `{"words":"hello"}`, nil, `times is "4"`},
		"accepted: twice":        {"/greetings/ann?times=1&times=1", `{"words":"hello"}`, nil, "times is there 2 times"},
		"accepted: as a form":    {"/greetings/ann", `{"words":"hello"}`, func(x *Exchange) { x.Request.Header.Set("Content-Type", "text/plain") }, `"text/plain" is not documented`},
		"accepted: by anybody":   {"/greetings/ann", `{"words":"hello"}`, func(x *Exchange) { x.Request.Header.Del("Authorization") }, "the credential is missing"},
		"refused: as described":  {"/greetings/ann", `{"words":7}`, func(x *Exchange) { x.Status, x.Header, x.Body = 400, nil, nil }, ""},
		"elsewhere":              {"/greetings", `{}`, nil, "there is no such operation"},
		"elsewhere, refused": {"/greetings/ann/", `{}`, func(x *Exchange) {
			x.Status, x.Body = 404, []byte(`{"error":{"code":"not_found","message":"no"}}`)
		}, ""},
		"elsewhere, no error": {"/greetings", `{}`, func(x *Exchange) { x.Status = 404 }, "not of the shape"},
		"elsewhere, no Allow": {"/greetings", `{}`, func(x *Exchange) { x.Status = 405 }, "no Allow"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("POST", c.target, nil)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer x")
			x := Exchange{Request: r, Sent: []byte(c.sent), Status: 201, Header: as.Clone(), Body: []byte(`{"words":"hello"}`)}
			if c.change != nil {
				c.change(&x)
			}
			err := d.Check(x)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Check says %v, want %q", err, c.want)
			}
		})
	}
	if err := d.Without("X-Left").Check(Exchange{Request: authorized(), Sent: []byte(`{"words":"hello"}`), Status: 201,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"words":"hello"}`)}); err != nil {
		t.Errorf("without what would add the header: %v", err)
	}
}

func authorized() *http.Request {
	r := httptest.NewRequest("POST", "/greetings/ann", nil)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer x")
	return r
}

// An invalid document checks nothing, so Read rejects it.
func TestADocumentThatIsWrongIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"an example":   {"example: {words: hello}}}\n      responses", "example: {words: 5}}}\n      responses", "greetings"},
		"a header's":   {"example: 1}", "example: -1}", "X-Left"},
		"a reference":  {"schema: {$ref: '#/components/schemas/Words'}", "schema: {$ref: '#/components/schemas/Word'}", "Word"},
		"a type":       {"type: integer", "type: number of times", "number of times"},
		"a key":        {"maxLength: 5", "longest: 5", "longest"},
		"its version":  {"openapi: 3.1.0", "openapi: 3.0.3", "want 3.1"},
		"its own YAML": {"paths:", "paths", "read OpenAPI document"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := strings.Replace(greeting, c.old, c.new, 1)
			if wrong == greeting {
				t.Fatal("nothing is wrong with it")
			}
			if _, err := Read([]byte(wrong)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Read says %v, want %q", err, c.want)
			}
		})
	}
}
