package accesslog_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

// one returns the only line of a log, or the reason why it is malformed.
func one(t *testing.T, o accesslog.Options, text string) (line accesslog.Line, malformed string) {
	t.Helper()
	o.Stdin = strings.NewReader(text)
	o.Malformed = func(m accesslog.Malformed) { malformed = m.Reason }
	r, err := accesslog.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Next(&line); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return line, malformed
}

func TestCombinedLinesAsTheyAreWrittenInTheWild(t *testing.T) {
	const stamp = "[10/Oct/2000:13:55:36 -0700]"
	at := time.Date(2000, 10, 10, 20, 55, 36, 0, time.UTC).UnixNano()
	for _, test := range []struct {
		name, text                  string
		peer, method, target, agent string
		status                      int
	}{
		{"plain", `192.0.2.1 - - ` + stamp + ` "GET /a?b=c HTTP/1.1" 200 12 "-" "curl/8"`, "192.0.2.1", "GET", "/a?b=c", "curl/8", 200},
		{"an IPv6 peer", `2001:db8::1 - - ` + stamp + ` "GET / HTTP/2.0" 304 0 "-" "-"`, "2001:db8::1", "GET", "/", "", 304},
		{"nginx's escapes", `192.0.2.1 - - ` + stamp + ` "GET /\xC3\xA4\x22 HTTP/1.1" 200 1 "-" "a \x22b\x22 \x5Cc"`, "192.0.2.1", "GET", "/ä\"", `a "b" \c`, 200},
		{"Apache's escapes", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 - "-" "a \"b\" \\"`, "192.0.2.1", "GET", "/", `a "b" \`, 200},
		{"a user of many words", `192.0.2.1 - x [01/Jan/2000:00:00:00 +0000] y ` + stamp + ` "GET / HTTP/1.1" 401 1 "-" "-"`, "192.0.2.1", "GET", "/", "", 401},
		{"no user but quotes", `192.0.2.1 - "" ` + stamp + ` "GET / HTTP/1.1" 401 1 "-" "-"`, "192.0.2.1", "GET", "/", "", 401},
		{"a handshake", `192.0.2.1 - - ` + stamp + ` "\x16\x03\x01\x02" 400 157 "-" "-"`, "192.0.2.1", "", "", "", 400},
		{"a time-out", `192.0.2.1 - - ` + stamp + ` "-" 408 0 "-" "-"`, "192.0.2.1", "", "", "", 408},
		{"an empty request", `192.0.2.1 - - ` + stamp + ` "" 400 0 "-" "-"`, "192.0.2.1", "", "", "", 400},
		{"another protocol", `192.0.2.1 - - ` + stamp + ` "t3 12.1.2" 400 0 "-" "-"`, "192.0.2.1", "", "", "", 400},
		{"HTTP/0.9", `192.0.2.1 - - ` + stamp + ` "GET /old" 200 5 "-" "-"`, "192.0.2.1", "GET", "/old", "", 200},
		{"blanks in the target", `192.0.2.1 - - ` + stamp + ` "GET /a b HTTP/c HTTP/1.1" 200 5 "-" "-"`, "192.0.2.1", "GET", "/a b HTTP/c", "", 200},
		{"absolute form", `192.0.2.1 - - ` + stamp + ` "GET http://example.com/a?b HTTP/1.1" 200 5 "-" "-"`, "192.0.2.1", "GET", "/a?b", "", 200},
		{"absolute form, no path", `192.0.2.1 - - ` + stamp + ` "GET HTTPS://example.com HTTP/1.1" 200 5 "-" "-"`, "192.0.2.1", "GET", "/", "", 200},
		{"absolute form, a query", `192.0.2.1 - - ` + stamp + ` "GET http://example.com?a HTTP/1.1" 200 5 "-" "-"`, "192.0.2.1", "GET", "/?a", "", 200},
		{"asterisk form", `192.0.2.1 - - ` + stamp + ` "OPTIONS * HTTP/1.1" 200 5 "-" "-"`, "192.0.2.1", "OPTIONS", "*", "", 200},
		{"more at the end", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 5 "-" "x" "198.51.100.1, 192.0.2.9"`, "192.0.2.1", "GET", "/", "x", 200},
		{"a virtual host", `example.com:443 192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 5 "-" "x"`, "192.0.2.1", "GET", "/", "x", 200},
		{"the common format", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 5`, "192.0.2.1", "GET", "/", "", 200},
		{"Traefik's", `198.51.100.1, 192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 5 "-" "x" 17 "web@file" "http://10.0.0.1:80" 3ms`, "192.0.2.1", "GET", "/", "x", 200},
		{"a byte order mark, blank lines, CRLF", "\xef\xbb\xbf\r\n\r\n" + `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 5` + "\r\n", "192.0.2.1", "GET", "/", "", 200},
		{"NUL bytes of a crash", "\x00\x00\x00" + `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 5` + "\n", "192.0.2.1", "GET", "/", "", 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, malformed := one(t, accesslog.Options{}, test.text)
			if malformed != "" {
				t.Fatalf("malformed: %s", malformed)
			}
			if string(l.Peer) != test.peer || string(l.Method) != test.method || string(l.Target) != test.target ||
				string(l.UserAgent) != test.agent || l.Status != test.status || l.Time != at {
				t.Errorf("peer %q method %q target %q agent %q status %d time %d, want %q %q %q %q %d %d",
					l.Peer, l.Method, l.Target, l.UserAgent, l.Status, l.Time,
					test.peer, test.method, test.target, test.agent, test.status, at)
			}
		})
	}
}
