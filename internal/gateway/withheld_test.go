package gateway

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/gateway/rules"
)

// separators are the bytes of field names other than letters, digits and dashes.
const separators = "_.~!*'|^$%&+#`"

// withheldNames returns a name for each entry of the table, in three cases, and in
// the spellings that some backends take for it.
func withheldNames() (lists [][]string) {
	var all []string
	for _, f := range rules.WithheldFamilies {
		for _, name := range f.Names {
			all = append(all, strings.Replace(name, "*", "-Made-Up", 1))
		}
	}
	spell := func(how func(string) string) {
		var list []string
		for _, name := range all {
			// The name has no dash.
			if spelled := how(name); spelled != "Proxy" || len(lists) == 0 {
				list = append(list, spelled)
			}
		}
		lists = append(lists, list)
	}
	spell(func(s string) string { return s })
	spell(strings.ToLower)
	spell(strings.ToUpper)
	for _, c := range separators {
		spell(func(s string) string { return strings.ReplaceAll(s, "-", string(c)) })
		spell(func(s string) string { return strings.Replace(s, "-", string(c), 1) })
	}
	return lists
}

// upgrading are the fields of a websocket request.
var upgrading = []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}

// No field of the table reaches the backend, in any case or spelling, over HTTP/1.1
// or HTTP/2, or with a websocket (D10, D12).
func TestNoWithheldFieldIsForwarded(t *testing.T) {
	heads := make(chan string, 1)
	o := newOrigin(t, func(s *served) {
		head, _ := readHead(s.Conn)
		heads <- head
		s.answers("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	})
	e := open(t, nil, o.use)
	client := h2c(t)
	check := func(door string, names []string) {
		t.Helper()
		head := within(t, patience, "the upstream is asked", heads)
		for line := range strings.SplitSeq(head, "\r\n") {
			if strings.HasSuffix(line, ": evil") {
				t.Errorf("%s: the upstream receives %q", door, line)
			}
		}
		if !strings.Contains(strings.ToLower(head), "\r\nx-own: kept\r\n") || !strings.Contains(head, "\r\nX-Forwarded-For: 127.0.0.1\r\n") {
			t.Errorf("%s, with %q: the upstream does not receive its own fields\n%s", door, names[0], head)
		}
	}
	for _, names := range withheldNames() {
		header := []string{"X-Own: kept"}
		for _, name := range names {
			header = append(header, name+": evil")
		}
		e.ask("GET /v1/wp/x", header...)
		check("HTTP/1.1", names)

		e.send("GET /v1/wp/x HTTP/1.1\r\nHost: weir.test\r\n" + strings.Join(append(header, upgrading...), "\r\n") + "\r\n\r\n")
		check("a websocket", names)

		req, err := http.NewRequest("GET", e.url("/v1/wp/x"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header["X-Own"] = []string{"kept"}
		for _, name := range names {
			if rules.IsHop(name) { // HTTP/2 has none
				continue
			}
			req.Header[name] = []string{"evil"}
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		check("HTTP/2", names)
	}
}

// A trailer is a field, too, in either protocol (D10).
func TestNoWithheldTrailerIsForwarded(t *testing.T) {
	e := open(t, nil, behind(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Trailer)
	}))
	for _, client := range []*http.Client{{Transport: new(http.Transport)}, h2c(t)} {
		for _, names := range withheldNames() {
			req, err := http.NewRequest("POST", e.url("/v1/wp/x"), io.MultiReader(strings.NewReader("x")))
			if err != nil {
				t.Fatal(err)
			}
			req.Trailer = http.Header{"X-Sum": {"1"}}
			// The fast engine accepts that many.
			for _, name := range names[:min(len(names), 30)] {
				lower := strings.ReplaceAll(strings.ToLower(name), "_", "-")
				if strings.HasPrefix(lower, "x-forwarded-") || strings.HasPrefix(lower, "proxy-") || lower == "x-real-ip" || lower == "forwarded" {
					continue // it rejects the request for these
				}
				req.Trailer[name] = []string{"evil"}
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if got := text(t, res); res.StatusCode != http.StatusOK || got != "map[X-Sum:[1]]" {
				t.Errorf("%d, the upstream gets the trailers %s", res.StatusCode, got)
			}
		}
	}
}

// A request is counted only by fields that the backend gets, so not by one that
// Connection names, or one with another name (D13).
func TestWithheldFieldsAreNotCountedBy(t *testing.T) {
	agents := make(chan []string, 1)
	e := open(t, nil, func(o *Options) {
		behind(t, func(_ http.ResponseWriter, r *http.Request) { agents <- r.Header["X-Agent-Id"] })(o)
		allowing(t, "2 per hour by ip+agent")(o)
	})
	ask := func(status int, header ...string) []string {
		t.Helper()
		if res := e.send("GET /x HTTP/1.1\r\nHost: weir.test\r\n" + strings.Join(header, "\r\n") + "\r\n\r\n"); res.StatusCode != status {
			t.Fatalf("%q: status %d, want %d", header, res.StatusCode, status)
		}
		if status != http.StatusOK {
			return nil
		}
		return <-agents
	}
	for n := range 2 {
		got := ask(http.StatusOK, "User-Agent: me", fmt.Sprintf("X-Agent-Id: invented-%d", n), "Connection: close, x-agent-id")
		if got != nil {
			t.Errorf("the backend gets %q, want nothing", got)
		}
	}
	ask(http.StatusTooManyRequests, "User-Agent: me", "X-Agent-Id: invented-3", "Connection: X-Agent-Id")
	ask(http.StatusTooManyRequests, "User-Agent: me", "X_Agent_Id: invented-4")
	if got := ask(http.StatusOK, "User-Agent: me", "x-agent-id: other"); !slices.Equal(got, []string{"other"}) {
		t.Errorf("the backend gets %q, want the agent", got)
	}
}

// If a trusted proxy's Connection names its field, the field is still trusted
// (D12).
func TestConnectionDoesNotRemoveATrustedProxysFields(t *testing.T) {
	chains := make(chan []string, 1)
	e := open(t, nil, func(o *Options) {
		behind(t, func(_ http.ResponseWriter, r *http.Request) { chains <- r.Header["X-Forwarded-For"] })(o)
		o.TrustedProxies = loopback
	})
	e.send("GET /x HTTP/1.1\r\nHost: weir.test\r\nConnection: close, X-Forwarded-For\r\nX-Forwarded-For: 203.0.113.7\r\n\r\n")
	if got := <-chains; !slices.Equal(got, []string{"203.0.113.7, 127.0.0.1"}) {
		t.Errorf("X-Forwarded-For %q", got)
	}
}
