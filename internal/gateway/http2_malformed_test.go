package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
)

// What becomes of a request.
const (
	passedOn = "passed on" // the upstream has received it, whole
	// 400 or 501, or in HTTP/2 a stream's PROTOCOL_ERROR: no upstream has received it whole
	refused = "refused"
	// or another status that it is answered with, without an upstream
)

// A bothCase is one request as HTTP/1.1 and as HTTP/2 spell it.
type bothCase struct {
	name string
	one  string   // HTTP/1.1's head without its last line breaks; empty: it has no such request
	two  []string // HTTP/2's fields; none: it has no such request
	body string

	want    string // what becomes of it in both versions
	wantTwo string // in HTTP/2, if that is another; RFC 9113 is stricter in a few things
	std     string // with net/http, in both versions, if it is another one
	stdTwo  string // with net/http, in HTTP/2, if it is another one
}

const line, hosted = "POST /v1/wp/x HTTP/1.1\r\n", "POST /v1/wp/x HTTP/1.1\r\nHost: weir.test\r\n"

// asked returns HTTP/2's fields of the same request, and more.
func asked(more ...string) []string {
	return append([]string{":method: POST", ":scheme: http", ":authority: weir.test", ":path: /v1/wp/x"}, more...)
}

// path is a case that is about the path alone.
func path(name, path, want string) bothCase {
	return bothCase{name: name, want: want, one: "GET " + path + " HTTP/1.1\r\nHost: weir.test",
		two: []string{":method: GET", ":scheme: http", ":authority: weir.test", ":path: " + path}}
}

// method is a case that is about the method alone.
func method(name, method, want string) bothCase {
	return bothCase{name: name, want: want, one: method + " /v1/wp/x HTTP/1.1\r\nHost: weir.test",
		two: []string{":method: " + method, ":scheme: http", ":authority: weir.test", ":path: /v1/wp/x"}}
}

// host is a case that is about the host alone.
func host(name, host, want string) bothCase {
	return bothCase{name: name, want: want, one: line + "Host: " + host, two: []string{":method: POST", ":scheme: http", ":authority: " + host, ":path: /v1/wp/x"}}
}

// field is a case with one more field.
func field(name, field, want string) bothCase {
	n, value, _ := strings.Cut(field, ": ")
	return bothCase{name: name, want: want, one: hosted + field, two: asked(strings.ToLower(n) + ": " + value)}
}

func (b bothCase) inTwo(want string) bothCase  { b.wantTwo = want; return b }
func (b bothCase) inStd(want string) bothCase  { b.std = want; return b }
func (b bothCase) inStd2(want string) bothCase { b.stdTwo = want; return b }

var bothCases = []bothCase{
	method("a method", "GET", passedOn),
	method("a method in small letters", "get", "405"),
	method("an unknown method", "BREW", "405"),
	method("TRACE", "TRACE", "405"),
	method("an empty method", "", refused),
	method("a method with a slash", "GET/", refused).inStd2("405"),
	method("a method with a control character", "GE\x00T", refused),
	method("a method beyond ASCII", "G\xc9T", refused).inStd2("405"),
	{name: "CONNECT", one: "CONNECT weir.test:443 HTTP/1.1\r\nHost: weir.test:443", two: []string{":method: CONNECT", ":authority: weir.test:443"}, want: refused, std: "405", wantTwo: "405"},

	path("a path", "/v1/wp/x", passedOn),
	path("a path with a query", "/v1/wp/x?a=b&c=%zz;d", passedOn),
	path("dot segments", "/v1/../v1/wp/./x", passedOn),
	path("unnecessary escapes", "/v1/wp/%78", passedOn),
	path("empty segments", "/v1//wp///x", passedOn),
	path("bytes beyond ASCII", "/v1/wp/\xc3\xa9", passedOn),
	path("bytes beyond ASCII in the query", "/v1/wp/x?\xc3\xa9", passedOn),
	path("an escaped slash", "/v1/wp%2fx", refused),
	path("an escaped NUL", "/v1/wp/x%00", refused),
	path("an invalid escape", "/v1/wp/%zz", refused),
	path("a backslash", "/v1/wp\\x", refused),
	path("a fragment", "/v1/wp/x#y", refused),
	path("a space", "/v1/wp/x y", refused),
	path("a space in the query", "/v1/wp/x?y z", refused),
	path("a NUL", "/v1/wp/x\x00", refused),
	path("a tab", "/v1/wp/x\ty", refused),
	path("a line break", "/v1/wp/x\r\nx: y", refused),
	path("a path without its slash", "v1/wp/x", refused),
	path("an empty path", "", refused),
	path("an URL as the path", "http://weir.test/v1/wp/x", refused).inStd(passedOn).inStd2(passedOn),
	path("an asterisk", "*", refused),

	host("a host", "weir.test", passedOn),
	host("a host in capitals", "WEIR.test", passedOn),
	host("a host with a port", "weir.test:8080", passedOn),
	host("an address", "[2001:db8::1]:80", passedOn),
	host("userinfo", "user@weir.test", refused),
	host("a host with a path", "weir.test/x", refused),
	host("a host with a query", "weir.test?x", refused),
	host("two hosts in one value", "weir.test, evil.test", refused),
	host("a host with a space", "weir.test evil.test", refused),
	host("a port that is no number", "weir.test:8o", refused),
	host("a port above 65535", "weir.test:65536", refused),
	host("a host beyond ASCII", "w\xc3\xa9ir.test", refused),
	host("a host with a NUL", "weir.test\x00", refused),
	host("half an address", "[2001:db8::1", refused),
	{name: "no host", one: "POST /v1/wp/x HTTP/1.1", two: []string{":method: POST", ":scheme: http", ":path: /v1/wp/x"}, want: refused, wantTwo: passedOn + " | " + refused},
	{name: "two hosts", one: hosted + "Host: evil.test", two: []string{":method: POST", ":scheme: http", ":path: /v1/wp/x", "host: weir.test", "host: evil.test"}, want: refused, stdTwo: passedOn},
	{name: "the host twice", one: hosted + "Host: weir.test", two: []string{":method: POST", ":scheme: http", ":path: /v1/wp/x", "host: weir.test", "host: weir.test"}, want: refused, stdTwo: passedOn},
	{name: "a Host that is not the :authority", two: asked("host: evil.test"), want: refused, stdTwo: passedOn},
	{name: "an empty Host beside the :authority", two: asked("host: "), want: refused, stdTwo: passedOn},
	{name: "a Host that is the :authority", two: asked("host: weir.test"), want: passedOn},
	{name: "a Host that is the :authority in capitals", two: asked("host: WEIR.TEST"), want: passedOn + " | " + refused},
	{name: "a Host that is the :authority, twice", two: asked("host: weir.test", "host: weir.test"), want: refused, stdTwo: passedOn},
	{name: "a Host that is the :authority, and another one", two: asked("host: weir.test", "host: evil.test"), want: refused, stdTwo: passedOn},
	{name: "a Host alone", one: hosted, two: []string{":method: POST", ":scheme: http", ":path: /v1/wp/x", "host: weir.test"}, want: passedOn},

	field("a field", "X-Test: a", passedOn),
	field("an empty value", "X-Test: ", passedOn),
	field("a tab in a value", "X-Test: a\tb", passedOn),
	field("a value beyond ASCII", "X-Test: \xe9", passedOn),
	field("a NUL in a value", "X-Test: a\x00b", refused),
	field("a CR in a value", "X-Test: a\rb", refused),
	{name: "a LF in a value", two: asked("x-test: a\nb"), want: refused},
	{name: "a line break in a value", two: asked("x-test: a\r\nhost: evil.test"), want: refused},
	field("a control character in a value", "X-Test: a\x01b", refused),
	field("a DEL in a value", "X-Test: a\x7fb", refused),
	field("spaces around a value", "X-Test:   a ", passedOn).inTwo(refused).inStd2(passedOn),
	field("a name with a space", "X Test: a", refused),
	field("a name with a space behind it", "X-Test : a", refused),
	field("a name with a control character", "X-\x01: a", refused),
	field("a name beyond ASCII", "X-\xe9: a", refused),
	field("an empty name", ": a", refused),
	field("Transfer_Encoding", "Transfer_Encoding: chunked", refused).inStd(passedOn).inStd2(passedOn),
	field("Content_Length", "Content_Length: 5", refused).inStd(passedOn).inStd2(passedOn),
	{name: "a name in capitals", two: asked("X-Test: a"), want: refused},
	{name: "a pseudo-field twice", two: asked()[:1:1], want: refused},
	{name: "a pseudo-field after a field", two: []string{":method: POST", ":scheme: http", "x-test: a", ":authority: weir.test", ":path: /v1/wp/x"}, want: refused},
	{name: "an unknown pseudo-field", two: asked(":test: a"), want: refused},

	field("Connection", "Connection: keep-alive", passedOn).inTwo(refused),
	field("Connection that names a field", "Connection: x-test", passedOn).inTwo(refused),
	field("Keep-Alive", "Keep-Alive: timeout=5", passedOn).inTwo(refused),
	field("Proxy-Connection", "Proxy-Connection: close", passedOn).inTwo(refused),
	field("TE: trailers", "TE: trailers", passedOn),
	field("TE of more", "TE: trailers, deflate", passedOn).inTwo(refused),
	field("Upgrade", "Upgrade: h2c", passedOn).inTwo(refused),
	field("an unknown expectation", "Expect: 200-ok", "417").inStd2(passedOn),

	{name: "a length", one: hosted + "Content-Length: 2", two: asked("content-length: 2"), body: "xx", want: passedOn},
	{name: "a length above the body", two: asked("content-length: 3"), body: "xx", want: refused},
	{name: "a length below the body", two: asked("content-length: 1"), body: "xx", want: refused},
	{name: "a length without a body", two: asked("content-length: 1"), want: refused, stdTwo: passedOn},
	{name: "two lengths", one: hosted + "Content-Length: 2\r\nContent-Length: 3", two: asked("content-length: 2", "content-length: 3"), body: "xx", want: refused, stdTwo: passedOn},
	{name: "two lengths in one value", one: hosted + "Content-Length: 2, 3", two: asked("content-length: 2, 3"), body: "xx", want: refused, stdTwo: passedOn + " | " + refused},
	{name: "the length twice", one: hosted + "Content-Length: 2\r\nContent-Length: 2", two: asked("content-length: 2", "content-length: 2"), body: "xx", want: refused, stdTwo: passedOn, std: passedOn},
	{name: "a length with a sign", one: hosted + "Content-Length: +2", two: asked("content-length: +2"), body: "xx", want: refused, stdTwo: passedOn + " | " + refused},
	{name: "a length below 0", one: hosted + "Content-Length: -2", two: asked("content-length: -2"), body: "xx", want: refused, stdTwo: passedOn + " | " + refused},
	{name: "a length of letters", one: hosted + "Content-Length: 0x2", two: asked("content-length: 0x2"), body: "xx", want: refused, stdTwo: passedOn + " | " + refused},
	{name: "an empty length", one: hosted + "Content-Length: ", two: asked("content-length: "), body: "xx", want: refused, stdTwo: passedOn + " | " + refused},
	{name: "a length beyond 64 bits", one: hosted + "Content-Length: 18446744073709551618", two: asked("content-length: 18446744073709551618"), body: "xx", want: refused, stdTwo: passedOn + " | " + refused},
	{name: "chunks", one: hosted + "Transfer-Encoding: chunked", two: asked("transfer-encoding: chunked"), body: "0\r\n\r\n", want: passedOn, wantTwo: refused},
	{name: "chunks and a length", one: hosted + "Transfer-Encoding: chunked\r\nContent-Length: 5", two: asked("transfer-encoding: chunked", "content-length: 5"), body: "0\r\n\r\n", want: refused, std: passedOn},
}

// A request that is malformed in one version is malformed in the other, and what is well-formed
// reaches the upstream as the same bytes, but for what the versions themselves lay down.
func TestWhatIsMalformedIsMalformedInBothVersions(t *testing.T) {
	heads := new(headLog)
	o := newOrigin(t, heads.serve)
	e := open(t, nil, o.use)
	for _, test := range bothCases {
		want, wantTwo := test.want, test.want
		if test.wantTwo != "" {
			wantTwo = test.wantTwo
		}
		if e.byNetHTTP() && test.stdTwo != "" {
			wantTwo = test.stdTwo
		}
		if !e.gateway.Fast() && test.std != "" {
			want = test.std
		}
		one, two := want, wantTwo
		if test.one != "" {
			if one = e.asOne(test); !isOneOf(one, want) {
				t.Errorf("%s, HTTP/1.1: %s, want %s", test.name, one, want)
			}
		}
		first := heads.take()
		if test.two != nil {
			if two = e.asTwo(test, heads); !isOneOf(two, wantTwo) {
				t.Errorf("%s, HTTP/2: %s, want %s", test.name, two, wantTwo)
			}
		}
		second := heads.take()
		if test.one != "" && test.two != nil && one == passedOn && two == passedOn && first != second {
			t.Errorf("%s: the upstream receives\n%s\nand of HTTP/2\n%s", test.name, first, second)
		}
	}
}

// asOne sends the request as HTTP/1.1, and returns what has become of it.
func (e *edge) asOne(test bothCase) string {
	c := e.dial()
	defer c.Close()
	fmt.Fprintf(c, "%s\r\n\r\n%s", strings.TrimSuffix(test.one, "\r\n"), test.body)
	name, _, _ := strings.Cut(test.one, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: name})
	if err != nil {
		return fmt.Sprintf("no answer: %v", err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	switch {
	case res.Header.Get("X-Origin") != "":
		return passedOn
	case res.StatusCode == 400 || res.StatusCode == 501:
		return refused
	}
	return fmt.Sprint(res.StatusCode)
}

// asTwo sends the request as HTTP/2, and returns what has become of it.
func (e *edge) asTwo(test bothCase, heads *headLog) string {
	c := e.mustFrames(nil)
	defer c.Close()
	if test.body == "" {
		c.head(1, endBoth, test.two...)
	} else {
		c.head(1, endHeaders, test.two...)
		c.data(1, true, test.body)
	}
	outcome := c.outcome()
	c.Close()
	eventually(e.t, "the upstream has what it gets", func() bool { return e.gateway.InFlight() == 0 && heads.busy.Load() == 0 })
	switch {
	case heads.any() && (c.stream(1).field("x-origin") != "" || outcome == "RST_STREAM PROTOCOL_ERROR"):
		return passedOn
	case !heads.any() && isOneOf(outcome, "RST_STREAM PROTOCOL_ERROR | 400 | half of a 400"):
		return refused
	}
	return outcome
}

// A headLog is an upstream's record of what it has received.
type headLog struct {
	busy  atomic.Int64 // requests whose head has come
	mu    sync.Mutex
	heads []string
}

func (l *headLog) serve(s *served) {
	head, rest := readHead(s)
	if head == "" {
		return
	}
	l.busy.Add(1)
	defer l.busy.Add(-1)
	r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(head), rest)))
	if err != nil {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // a request that is not whole
	}
	lines := strings.Split(strings.TrimSpace(head), "\r\n")
	slices.Sort(lines[1:])
	l.mu.Lock()
	l.heads = append(l.heads, strings.Join(lines, "\n")+"\n"+string(body))
	l.mu.Unlock()
	s.answers("HTTP/1.1 200 OK\r\nX-Origin: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

// any reports whether something has come.
func (l *headLog) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.heads) > 0
}

// take returns what has come since the last time.
func (l *headLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Join(l.heads, "\n\n")
	l.heads = nil
	return all
}

// Whatever version and spelling a client chooses, its requests share one budget: no more reach the
// upstream than the limit allows, and each that does has one unit less than the one before.
func TestNoVersionHasABudgetOfItsOwn(t *testing.T) {
	const limit = 40
	o := answering(t, ok200)
	policy := settling(t, []string{fmt.Sprintf("%d per day by ip", limit)}, func(*weir.Limiter) {})
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	refusals := 0
	note := func(what, status, remaining string) {
		if status == "429" {
			refusals++
		}
		if left := limit - policy.spent(); remaining != "" && remaining != fmt.Sprint(left) || status == "429" && left > 0 {
			t.Errorf("%s (%s) leaves %q units, want %d", what, status, remaining, left)
		}
	}
	for _, test := range slices.Concat(bothCases, bothCases) {
		if test.one != "" && len(test.body) == 0 {
			c := e.dial()
			fmt.Fprintf(c, "%s\r\n\r\n", strings.TrimSuffix(test.one, "\r\n"))
			name, _, _ := strings.Cut(test.one, " ")
			if res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: name}); err == nil {
				note(test.name+", HTTP/1.1", fmt.Sprint(res.StatusCode), res.Header.Get("X-RateLimit-Remaining"))
			}
			c.Close()
		}
		if test.two != nil {
			c := e.mustFrames(nil)
			if test.body == "" {
				c.head(1, endBoth, test.two...)
			} else {
				c.head(1, endHeaders, test.two...)
				c.data(1, true, test.body)
			}
			outcome, got := c.outcome(), c.stream(1)
			if got.status != "" { // whole or not
				note(test.name+", HTTP/2", got.status, got.field("x-ratelimit-remaining"))
			} else if !isOneOf(outcome, "RST_STREAM PROTOCOL_ERROR | RST_STREAM INTERNAL_ERROR") {
				t.Errorf("%s: %s", test.name, outcome)
			}
			c.Close()
		}
	}
	if n := o.requests.Load(); n > limit || policy.spent() != limit || refusals < 20 {
		t.Errorf("%d requests have reached the upstream, and %d units are spent of %d; %d were refused", n, policy.spent(), limit, refusals)
	}
}
