package weir

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

// Whatever an answer reports, and however it comes, its request is charged what it was said to
// cost, once and plainly, or what was reserved: nobody gets a credit. The binary is tested with
// both of its engines, and the middleware before a reverse proxy.

const (
	badBudget  = 1000 // units of a caller
	badReserve = 100  // of a request
)

var badPolicy = fmt.Sprintf(`limiters:
  - {name: field, routes: [/field*], windows: ["%[1]d per hour by header:X-Caller"], cost: {reserve: %[2]d, from: "header:X-Cost"}, chosen: yes}
  - {name: body, routes: [/body*], windows: ["%[1]d per hour by header:X-Caller"], cost: {reserve: %[2]d, from: "json:usage.total_tokens"}, chosen: yes}
`, badBudget, badReserve)

// A badAnswer is how a backend answers one request. Its caller's requests have the path /field or
// /body.
type badAnswer struct {
	name, path, method string // method: "" is GET
	asks               string // fields of the request
	// of the request; the backend reads nothing of it before it answers
	body       string
	gives      func(io.Writer)
	closes     bool  // the backend closes the connection then
	spends     int64 // of the budget
	middleware int64 // that differs there; 0: it does not
}

func sends(text string) func(io.Writer) {
	return func(w io.Writer) { _, _ = io.WriteString(w, text) }
}

// field answers without a body, with fields.
func field(lines ...string) func(io.Writer) {
	return sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + strings.Join(append(lines, "", ""), "\r\n"))
}

// object answers with a JSON object.
func object(text string, lines ...string) func(io.Writer) {
	head := append([]string{"HTTP/1.1 200 OK", "Content-Type: application/json", fmt.Sprint("Content-Length: ", len(text))}, lines...)
	return sends(strings.Join(append(head, "", text), "\r\n"))
}

func usageOf(value string) string { return `{"usage":{"total_tokens":` + value + `}}` }

// long answers with an object that has a text of so many MiB before its end, in chunks.
func long(mebibytes int, end string) func(io.Writer) {
	return func(w io.Writer) {
		const size = 1 << 20
		_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{\"text\":\"\r\n")
		chunk := fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat("a long text ", size/12+1)[:size])
		for range mebibytes {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
		_, _ = fmt.Fprintf(w, "%x\r\n%s\r\n0\r\n\r\n", len(end), end)
	}
}

const costAtTheEnd = `","usage":{"total_tokens":7}}`

func badAnswers() []badAnswer {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
	deep := func(levels int) string {
		return `{"a":` + strings.Repeat("[", levels) + strings.Repeat("]", levels) + `,` + usageOf("7")[1:]
	}
	return []badAnswer{
		{name: "a cost", path: "/field", gives: field("X-Cost: 7"), spends: 7},
		{name: "a cost of nothing", path: "/field", gives: field("X-Cost: 0"), spends: 0},
		{name: "a negative cost", path: "/field", gives: field("X-Cost: -7"), spends: badReserve},
		{name: "a negative nothing", path: "/field", gives: field("X-Cost: -0"), spends: badReserve},
		{name: "with a plus", path: "/field", gives: field("X-Cost: +7"), spends: badReserve},
		{name: "2^63", path: "/field", gives: field("X-Cost: 9223372036854775808"), spends: badReserve},
		{name: "2^64 and 7", path: "/field", gives: field("X-Cost: 18446744073709551623"), spends: badReserve},
		{name: "a float", path: "/field", gives: field("X-Cost: 7.0"), spends: badReserve},
		{name: "an exponent", path: "/field", gives: field("X-Cost: 7e0"), spends: badReserve},
		{name: "in hexadecimal", path: "/field", gives: field("X-Cost: 0x7"), spends: badReserve},
		{name: "a string", path: "/field", gives: field(`X-Cost: "7"`), spends: badReserve},
		{name: "other digits", path: "/field", gives: field("X-Cost: \u0667"), spends: badReserve},
		{name: "empty", path: "/field", gives: field("X-Cost:"), spends: badReserve},
		{name: "missing", path: "/field", gives: field(), spends: badReserve},
		{name: "twice", path: "/field", gives: field("X-Cost: 7", "X-Cost: 7"), spends: badReserve},
		{name: "twice, in two spellings", path: "/field", gives: field("X-Cost: 7", "x-cost: 0"), spends: badReserve},
		{name: "two in one", path: "/field", gives: field("X-Cost: 7, 0"), spends: badReserve},
		{name: "in a trailer", path: "/field", gives: sends(chunked + "\r\n2\r\nok\r\n0\r\nX-Cost: 7\r\n\r\n"), spends: badReserve},
		{name: "in an announced trailer", path: "/field", gives: sends(chunked + "Trailer: X-Cost\r\n\r\n2\r\nok\r\n0\r\nX-Cost: 7\r\n\r\n"), spends: badReserve},
		{name: "announced as a trailer, and in the head", path: "/field", gives: sends(chunked + "Trailer: X-Cost\r\nX-Cost: 0\r\n\r\n0\r\nX-Cost: 7\r\n\r\n"), spends: badReserve},
		{name: "named by Connection", path: "/field", gives: field("Connection: X-Cost", "X-Cost: 0"), spends: badReserve},
		{name: "in a 103", path: "/field", gives: sends("HTTP/1.1 103 Early Hints\r\nX-Cost: 0\r\n\r\nHTTP/1.1 200 OK\r\nX-Cost: 7\r\nContent-Length: 0\r\n\r\n"), spends: 7},
		{name: "in a 103 alone", path: "/field", gives: sends("HTTP/1.1 103 Early Hints\r\nX-Cost: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), spends: badReserve},
		{name: "of a HEAD", path: "/field", method: "HEAD", gives: sends("HTTP/1.1 200 OK\r\nX-Cost: 7\r\nContent-Length: 1000\r\n\r\n"), spends: 7},
		{name: "of an error", path: "/field", gives: sends("HTTP/1.1 500 Internal Server Error\r\nX-Cost: 7\r\nContent-Length: 0\r\n\r\n"), spends: 7},
		{name: "more than was reserved", path: "/field", gives: field("X-Cost: 250"), spends: 250},
		{name: "no answer", path: "/field", gives: sends(""), closes: true, spends: badReserve},
		{name: "a head that breaks off", path: "/field", gives: sends("HTTP/1.1 200 OK\r\nX-Cost: 0\r\n"), closes: true, spends: badReserve},
		{name: "before the request's body is read", path: "/field", method: "POST", body: strings.Repeat("x", 4<<20),
			gives: sends("HTTP/1.1 413 Content Too Large\r\nX-Cost: 7\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), closes: true, spends: 7},
		{name: "of an upgrade", path: "/field", asks: "Connection: Upgrade\r\nUpgrade: websocket\r\n", gives: sends("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Cost: 7\r\n\r\n"),
			// the proxy takes the connection over before it writes the header
			closes: true, spends: 7, middleware: badReserve},

		{name: "a member", path: "/body", gives: object(usageOf("7")), spends: 7},
		{name: "a negative member", path: "/body", gives: object(usageOf("-7")), spends: badReserve},
		{name: "a member of 2^63", path: "/body", gives: object(usageOf("9223372036854775808")), spends: badReserve},
		{name: "a member that is a float", path: "/body", gives: object(usageOf("7.0")), spends: badReserve},
		{name: "a member that is a string", path: "/body", gives: object(usageOf(`"7"`)), spends: badReserve},
		{name: "no member", path: "/body", gives: object(`{"usage":{}}`), spends: badReserve},
		{name: "a member twice", path: "/body", gives: object(`{"usage":{"total_tokens":7,"total_tokens":7}}`), spends: badReserve},
		{name: "its object twice", path: "/body", gives: object(`{"usage":{"total_tokens":7},"usage":{"total_tokens":0}}`), spends: badReserve},
		{name: "10,000 deep", path: "/body", gives: object(deep(9_999)), spends: 7},
		{name: "100,000 deep", path: "/body", gives: object(deep(99_999)), spends: badReserve},
		{name: "compressed all the same", path: "/body", gives: object(usageOf("0"), "Content-Encoding: gzip"), spends: badReserve},
		{name: "a part", path: "/body", gives: sends("HTTP/1.1 206 Partial Content\r\nContent-Type: application/json\r\nContent-Range: bytes 0-27/90\r\nContent-Length: 28\r\n\r\n" + usageOf("0")), spends: badReserve},
		{name: "a body that breaks off", path: "/body", gives: sends("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 28\r\n\r\n" + usageOf("0")[:27]), closes: true, spends: badReserve},
		{name: "a body that breaks off after its object", path: "/body", gives: sends("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 31\r\n\r\n" + usageOf("7")), closes: true, spends: 7},
		{name: "a member in a trailer", path: "/body", gives: sends("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Usage: " + usageOf("0") + "\r\n\r\n"), spends: badReserve},
		{name: "of a HEAD without a body", path: "/body", method: "HEAD", gives: sends("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n"), spends: badReserve},
		{name: "behind a 103", path: "/body", gives: sends("HTTP/1.1 103 Early Hints\r\nContent-Type: text/plain\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 28\r\n\r\n" + usageOf("7")), spends: 7},
		{name: "behind 100 MiB", path: "/body", gives: long(100, costAtTheEnd), spends: 7},
		{name: "behind 100 MiB, twice", path: "/body", gives: long(100, `","usage":{"total_tokens":7},"usage":{"total_tokens":7}}`), spends: badReserve},
	}
}

// A badBackend answers requests by the number of the answer in their query.
type badBackend struct {
	net.Listener
	answers []badAnswer
}

func newBadBackend(t *testing.T, answers []badAnswer) *badBackend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &badBackend{l, answers}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(c)
		}
	}()
	return b
}

func (b *badBackend) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		var number int
		if _, err := fmt.Sscanf(r.URL.RawQuery, "answer=%d", &number); err != nil {
			// it looks how much is spent
			object(usageOf("0"), "X-Cost: 0")(c)
			continue
		}
		a := &b.answers[number]
		a.gives(c)
		if a.closes {
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, in)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// badFronts are what limits the requests to a backend, by name. They return their address.
func badFronts(t *testing.T, backend string) map[string]func(*testing.T) string {
	policy := policyFile(t, badPolicy)
	served := func(engine string) func(*testing.T) string {
		return func(t *testing.T) string {
			s := serveWeir(t, "--policy", policy, "--access-log=off", "--upstream", "http://"+backend, "--engine", engine)
			return strings.TrimPrefix(s.url, "http://")
		}
	}
	return map[string]func(*testing.T) string{
		engineAuto: served(engineAuto),
		engineStd:  served(engineStd),
		"middleware": func(t *testing.T) string {
			store, err := memstore.New(memstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			decider, err := weir.New(parsed(t, badPolicy).Policy, store, weir.Options{Sources: identity.Sources()})
			if err != nil {
				t.Fatal(err)
			}
			who, err := identity.New(identity.Options{})
			if err != nil {
				t.Fatal(err)
			}
			limit, err := httplimit.New(decider, httplimit.Options{Identity: who})
			if err != nil {
				t.Fatal(err)
			}
			proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend})
			proxy.ErrorLog = log.New(io.Discard, "", 0)
			server := httptest.NewServer(limit.Wrap(proxy))
			server.Config.ErrorLog = proxy.ErrorLog
			t.Cleanup(server.Close)
			return server.Listener.Addr().String()
		},
	}
}

// A badCaller has a budget of its own.
type badCaller struct{ address, name string }

// spent returns how many units of its budget for a path the caller has spent.
func (c badCaller) spent(t *testing.T, path string) int64 {
	t.Helper()
	r, err := http.NewRequest("GET", "http://"+c.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Caller", c.name)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	var left int64
	if _, err := fmt.Sscan(res.Header.Get("X-RateLimit-Remaining"), &left); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s has %v", res.Status, res.Header)
	}
	if path == "/field" { // the head has what this request has cost
		return badBudget - left
	}
	return badBudget - badReserve - left
}

// ask sends a request, and reads what comes until the answer or the connection has ended.
func (c badCaller) ask(t *testing.T, a badAnswer, number int) {
	t.Helper()
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	method := a.method
	if method == "" {
		method = http.MethodGet
	}
	_, err = fmt.Fprintf(conn, "%s %s?answer=%d HTTP/1.1\r\nHost: example.com\r\nX-Caller: %s\r\n%sContent-Length: %d\r\n\r\n", method, a.path, number, c.name, a.asks, len(a.body))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, a.body) // the answer may come first
	in := bufio.NewReader(conn)
	for {
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols {
			return
		}
	}
}

func TestNoAnswerGivesACredit(t *testing.T) {
	t.Parallel() // it mostly waits for its fronts
	answers := badAnswers()
	backend := newBadBackend(t, answers)
	for front, start := range badFronts(t, backend.Addr().String()) {
		t.Run(front, func(t *testing.T) {
			address := start(t)
			for i, a := range answers {
				if strings.Contains(a.name, "MiB") && testing.Short() {
					continue // it is long
				}
				t.Run(a.path+" "+a.name, func(t *testing.T) {
					want := a.spends
					if front == "middleware" && a.middleware != 0 {
						want = a.middleware
					}
					c := badCaller{address, fmt.Sprint("caller-", i)}
					for n := range int64(2) {
						c.ask(t, a, i)
						c.spends(t, a.path, (n+1)*want)
					}
				})
			}
		})
	}
}

// spends checks how much of its budget for a path the caller spends: a request may end a moment
// after its answer.
func (c badCaller) spends(t *testing.T, path string, want int64) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(badPatience)
	for {
		got := c.spent(t, path)
		if got == want {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Errorf("%d units are spent, want %d", got, want)
			return
		}
	}
}

const badPatience = 20 * time.Second

// What is reserved for a client that reads a byte at a time stays charged until it has the answer.
func TestASlowReaderKeepsItsReservation(t *testing.T) {
	const mebibytes = 32 // more than the sockets' buffers hold
	backend := newBadBackend(t, []badAnswer{{gives: long(mebibytes, costAtTheEnd)}})
	for front, start := range badFronts(t, backend.Addr().String()) {
		t.Run(front, func(t *testing.T) {
			c := badCaller{start(t), "slow"}
			conn, err := net.Dial("tcp", c.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := fmt.Fprintf(conn, "GET /body?answer=0 HTTP/1.1\r\nHost: example.com\r\nX-Caller: %s\r\n\r\n", c.name); err != nil {
				t.Fatal(err)
			}
			var one [1]byte
			for range 100 {
				if _, err := conn.Read(one[:]); err != nil {
					t.Fatal(err)
				}
			}
			if got := c.spent(t, "/body"); got != badReserve {
				t.Errorf("%d units are spent while it reads, want %d", got, badReserve)
			}
			if _, err := io.CopyN(io.Discard, conn, mebibytes<<20); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			c.spends(t, "/body", 7)
		})
	}
}
