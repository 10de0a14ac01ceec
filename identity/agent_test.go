package identity_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/identity"
)

// asking returns a request with that target and body. fields are alternating names
// and values.
func asking(target, body string, fields ...string) *identity.HTTPRequest {
	r := httptest.NewRequest("POST", target, strings.NewReader(body))
	r.Header.Set("User-Agent", "browser")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return &identity.HTTPRequest{Request: r}
}

// The order is field, query, body, User-Agent (D13).
func TestAnAgentIsFoundInItsOrder(t *testing.T) {
	const j = "application/json"
	for _, c := range []struct {
		name string
		req  *identity.HTTPRequest
		want string
	}{
		{"the field wins", asking("/?agent_id=q", `{"agent_id":"b"}`, "X-Agent-Id", "h", "Content-Type", j), "h"},
		{"then the query", asking("/?agent_id=q", `{"agent_id":"b"}`, "Content-Type", j), "q"},
		{"then the body", asking("/", `{"agent_id":"b"}`, "Content-Type", j), "b"},
		{"then the User-Agent", asking("/", `{}`, "Content-Type", j), "browser"},
		{"the first of several lines", asking("/", "", "X-Agent-Id", "h1", "X-Agent-Id", "h2"), "h1"},
		{"an empty field is none", asking("/?agent_id=q", "", "X-Agent-Id", ""), "q"},
		{"an empty parameter is none", asking("/?agent_id=", `{"agent_id":"b"}`, "Content-Type", j), "b"},
		{"an empty member is none", asking("/", `{"agent_id":""}`, "Content-Type", j), "browser"},
		{"the first of several parameters", asking("/?agent_id=q1&agent_id=q2", ""), "q1"},
		{"a parameter by its exact case", asking("/?Agent_Id=q", ""), "browser"},
		{"an escaped parameter", asking("/?agent%5Fid=a%20b", ""), "a b"},
		{"a query that is half broken", asking("/?x=%zz&agent_id=q;y", "", "X", ""), "browser"},
		{"a query whose other half is broken", asking("/?x=%zz&agent_id=q", ""), "q"},
		{"parameters of the content type", asking("/", `{"agent_id":"b"}`, "Content-Type", "Application/JSON; charset=utf-8"), "b"},
		{"text is not read", asking("/", `{"agent_id":"b"}`, "Content-Type", "text/plain"), "browser"},
		{"a suffix is not read", asking("/", `{"agent_id":"b"}`, "Content-Type", "application/problem+json"), "browser"},
		{"no type is not read", asking("/", `{"agent_id":"b"}`), "browser"},
		{"a broken type is not read", asking("/", `{"agent_id":"b"}`, "Content-Type", j+"; ="), "browser"},
		{"two types are not read", asking("/", `{"agent_id":"b"}`, "Content-Type", j, "Content-Type", j), "browser"},
		{"an encoded body is not read", asking("/", `{"agent_id":"b"}`, "Content-Type", j, "Content-Encoding", "gzip"), "browser"},
		{"within the first 16 KiB", asking("/", `{"x":"`+strings.Repeat("x", 16<<10-32)+`","agent_id":"b"}`, "Content-Type", j), "b"},
		{"behind the first 16 KiB", asking("/", `{"x":"`+strings.Repeat("x", 16<<10)+`","agent_id":"b"}`, "Content-Type", j), "browser"},
		{"the last within 16 KiB", asking("/", `{"agent_id":"b","x":"`+strings.Repeat("x", 16<<10)+`","agent_id":"c"}`, "Content-Type", j), "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := caller(resolver(t, identity.Options{}), c.req).Agent(); got != c.want {
				t.Errorf("the agent is %q, want %q", got, c.want)
			}
		})
	}
}

func TestWithoutAnythingTheAgentIsEmpty(t *testing.T) {
	who := caller(resolver(t, identity.Options{}), request("203.0.113.7:1"))
	if got, ok := key(who, identity.Agent); got != "" || !ok {
		t.Errorf("the agent is %q, %v: an empty value is a value", got, ok)
	}
}

// The backend calls the same function (D13).
func TestTheWholeBodyHasTheAgentThatWasCounted(t *testing.T) {
	for _, padding := range []int{0, 16 << 10, 64 << 10} {
		body := []byte(`{"agent_id":"early","x":"` + strings.Repeat("x", padding) + `","agent_id":"late"}`)
		seen := body[:min(len(body), 16<<10)]
		if whole, counted := identity.AgentInJSON(body), identity.AgentInJSON(seen); whole != counted {
			t.Errorf("%d bytes: %q of the whole body, %q of the part that is read", len(body), whole, counted)
		}
	}
}

// The name is at the top level with exact case, the value is a string, and the last
// duplicate wins (D13).
func TestTheAgentOfABody(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"plain", `{"agent_id":"a"}`, "a"},
		{"behind others", ` {"x":[1,{"y":null}],"agent_id":"a"} `, "a"},
		{"another case", `{"Agent_ID":"a"}`, ""},
		{"nested", `{"x":{"agent_id":"a"}}`, ""},
		{"nested behind", `{"agent_id":"a","x":{"agent_id":"b"}}`, "a"},
		{"the last duplicate", `{"agent_id":"a","agent_id":"b"}`, "b"},
		{"the last is no string", `{"agent_id":"a","agent_id":7}`, ""},
		{"an escaped name", `{"agent\u005fid":"a"}`, "a"},
		{"an escaped value", `{"agent_id":"\u00e4\n"}`, "ä\n"},
		{"broken UTF-8", "{\"agent_id\":\"\xff\"}", "\ufffd"},
		{"a number", `{"agent_id":7}`, ""},
		{"null", `{"agent_id":null}`, ""},
		{"an object", `{"agent_id":{"agent_id":"a"}}`, ""},
		{"an array around", `[{"agent_id":"a"}]`, ""},
		{"a string alone", `"agent_id"`, ""},
		{"empty", ``, ""},
		{"cut behind it", `{"agent_id":"a","x":"y`, "a"},
		{"cut within it", `{"agent_id":"a`, ""},
		{"broken behind it", `{"agent_id":"a"!`, "a"},
		{"a colon that lacks", `{"agent_id" "a"}`, ""},
		{"a comma that lacks", `{"x":1 "agent_id":"a"}`, ""},
		{"a value as its name", `{"x":"agent_id","y":"a"}`, ""},
		{"a byte order mark", "\ufeff" + `{"agent_id":"a"}`, ""},
		{"a second document", `{"agent_id":"a"}{"agent_id":"b"}`, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := identity.AgentInJSON([]byte(c.body)); got != c.want {
				t.Errorf("%s: %s has the agent %q, want %q", c.name, c.body, got, c.want)
			}
		})
	}
}

func TestABodyReachesTheNextReaderUnchanged(t *testing.T) {
	for _, length := range []int{0, 1, 16<<10 - 1, 16 << 10, 16<<10 + 1, 100 << 10} {
		body := strings.Repeat("[", length)
		req := asking("/", body, "Content-Type", "application/json")
		who := caller(resolver(t, identity.Options{}), req)
		who.Agent()
		if got := string(req.Body(1 << 10)); got != body[:min(length, 1<<10)] {
			t.Errorf("%d bytes: the second reading returns %d others", length, len(got))
		}
		got, err := io.ReadAll(req.Request.Body)
		if string(got) != body || err != nil {
			t.Errorf("%d bytes: %d come behind, error %v", length, len(got), err)
		}
	}
}

// The body's errors reach the next reader, too (D13).
func TestAnErrorInABodyReachesTheNextReader(t *testing.T) {
	body := &closes{Reader: &torn{text: `{"agent_id":"a",`}}
	req := asking("/", "", "Content-Type", "application/json")
	req.Request.Body = body
	if got := caller(resolver(t, identity.Options{}), req).Agent(); got != "a" {
		t.Errorf("the agent is %q: what came before the error counts", got)
	}
	got, err := io.ReadAll(req.Request.Body)
	if string(got) != `{"agent_id":"a",` || !errors.Is(err, errTorn) {
		t.Errorf("the next reader meets %q, %v; want the error", got, err)
	}
	req.Request.Body.Close()
	if !body.closed {
		t.Error("the body was not closed")
	}
}

type closes struct {
	io.Reader
	closed bool
}

func (c *closes) Close() error { c.closed = true; return nil }

func TestABodyIsNotReadIfTheFieldOrTheQueryNamesTheAgent(t *testing.T) {
	for _, req := range []*identity.HTTPRequest{
		asking("/?agent_id=q", "{}", "Content-Type", "application/json"),
		asking("/", "{}", "Content-Type", "application/json", "X-Agent-Id", "h"),
		asking("/", "{}", "Content-Type", "text/plain"),
	} {
		before := req.Request.Body
		caller(resolver(t, identity.Options{}), req).Agent()
		if req.Request.Body != before {
			t.Errorf("the body of %v was read", req.Request.Header)
		}
	}
}

// For a whole valid document, encoding/json is the oracle: there the last duplicate
// wins, too.
func FuzzTheAgentOfAValidDocumentIsEncodingJSONs(f *testing.F) {
	for _, s := range []string{`{"agent_id":"a"}`, `{"agent_id":"a","agent_id":null}`, `{"Agent_id":"a"}`, `[]`, `{"a":{"agent_id":"x"}}`, `{"agent\u005Fid":"\ud800"}`, "{\"agent_id\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := identity.AgentInJSON(body) // never panics, for any input
		var object map[string]any
		if !json.Valid(body) || json.Unmarshal(body, &object) != nil {
			return
		}
		want, _ := object["agent_id"].(string)
		if got != want {
			t.Fatalf("%q has the agent %q, encoding/json has %q", body, got, want)
		}
	})
}
