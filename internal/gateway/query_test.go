package gateway

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// A query is forwarded byte for byte, from HTTP/1.1 and HTTP/2. Only bytes from
// 0x80 on are percent-encoded (D10).
func TestAQueryIsForwardedUnchanged(t *testing.T) {
	heads := make(chan string, 1)
	o := newOrigin(t, func(s *served) {
		head, _ := readHead(s.Conn)
		heads <- head
		s.answers("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	})
	e := open(t, nil, o.use)
	client := h2c(t)
	var printable bytes.Buffer
	for c := byte('!'); c < 0x7f; c++ {
		if c != '#' {
			printable.WriteByte(c)
		}
	}
	for query, want := range map[string]string{
		"a;b":                       "a;b",
		"q=100%":                    "q=100%",
		"a=%zz&b=1":                 "a=%zz&b=1",
		"a=1;b=2&c=3":               "a=1;b=2&c=3",
		"b=2&a=1":                   "b=2&a=1", // parameters are not sorted
		"a=%2f+%20&&=":              "a=%2f+%20&&=",
		"":                          "",
		"agent_id=a;agent_id=b":     "agent_id=a;agent_id=b", // not counted by agent
		"caf\xc3\xa9;%":             "caf%C3%A9;%",
		"\x80\xff&a=\xfe":           "%80%FF&a=%FE",
		printable.String():          printable.String(),
		strings.Repeat("%;", 5_000): strings.Repeat("%;", 5_000),
	} {
		// A canonical path, and another one.
		for _, path := range []string{"/v1/wp/x", "/v1/wp//x"} {
			e.ask("GET " + path + "?" + query)
			if head := <-heads; !strings.HasPrefix(head, "GET /v1/wp/x?"+want+" HTTP/1.1\r\n") {
				t.Errorf("%.60q arrives as %.100q, want %.60q", query, head, want)
			}
		}
		u, err := url.Parse(e.url("/v1/wp/x"))
		if err != nil {
			t.Fatal(err)
		}
		u.RawQuery, u.ForceQuery = query, true
		res, err := client.Do(&http.Request{Method: "GET", URL: u, Header: http.Header{}})
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if head := <-heads; !strings.HasPrefix(head, "GET /v1/wp/x?"+want+" HTTP/1.1\r\n") {
			t.Errorf("HTTP/2: %.60q arrives as %.100q, want %.60q", query, head, want)
		}
	}
}

// If a limiter counts by agent, and parsers could find different agents in the
// query, the answer is 400, charged to the surface's fallback (D10). If no limiter
// counts by agent, the query is not checked.
func TestAnAmbiguousAgentIsRefused(t *testing.T) {
	seen := new(recorder)
	policy := testPolicy(t)
	for i := range policy.Limiters {
		if l := &policy.Limiters[i]; l.Name == "widget-init" {
			l.Windows[0].Key = weir.Key{{"ip"}, {"agent"}}
		}
	}
	e := open(t, nil, func(o *Options) {
		behind(t, seen.ServeHTTP)(o)
		o.Decider = testDecider(t, policy)
	})
	for _, query := range []string{"agent_id=a&agent_id=b", "agent_id=a;agent_id=b", "agent_id=%zz", "agent.id=a", "x=1;agent_id=b", "AGENT_ID=a"} {
		want(t, e.ask("POST /api/v1/widget/init?"+query, "Content-Length: 0"), http.StatusBadRequest, "invalid_request", other)
		if s, reached := seen.last(); reached {
			t.Errorf("%q reached the backend: %v", query, s)
		}
		for line, limit := range map[string]string{
			"POST /api/v1/widget/leads?" + query: leads, // counts only by address
			"GET /elsewhere?" + query:            "",
		} {
			want(t, e.ask(line, "Content-Length: 0"), http.StatusOK, "", limit)
			if s, reached := seen.last(); !reached || s.query != query {
				t.Errorf("%q: the backend saw %v", line, s)
			}
		}
		// The field names the agent before the query does.
		want(t, e.ask("POST /api/v1/widget/init?"+query, "X-Agent-Id: a", "Content-Length: 0"), http.StatusOK, "", initLimit)
		seen.last()
	}
	for _, query := range []string{"agent_id=a", "agent_id=a&agent_id=a", "agent_id=a&x=1;y=2", "q=100%"} {
		want(t, e.ask("POST /api/v1/widget/init?"+query, "Content-Length: 0"), http.StatusOK, "", initLimit)
		seen.last()
	}
}
