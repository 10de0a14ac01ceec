package wire_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/wire"
)

// head puts a request line, a Host and the lines together.
func head(lines ...string) string {
	return "POST /a HTTP/1.1\r\nHost: example.com\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

// get is the head of a request line alone, with a Host.
func get(line string) string { return line + "\r\nHost: example.com\r\n\r\n" }

// statusOf returns what a refusal answers; 0: there is none.
func statusOf(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var refusal *wire.Refusal
	if !errors.As(err, &refusal) || refusal.Reason == "" {
		t.Fatalf("the error is %#v, want a *Refusal with a reason", err)
	}
	return refusal.Status
}

// requestHeads are heads of requests and what Parse answers: 0 where it accepts one.
var requestHeads = []struct {
	what, head string
	status     int
}{
	{"the least", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 0},
	{"HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", 0},
	{"a method of one's own, in any case", get("foo!#$%&'*+-.^_`|~9 / HTTP/1.1"), 0},
	{"no method", get(" / HTTP/1.1"), 400},
	{"a method that is no token", get("G(T / HTTP/1.1"), 400},
	{"a method with a byte beyond ASCII", get("GÉT / HTTP/1.1"), 400},
	{"two blanks behind the method", get("GET  / HTTP/1.1"), 400},
	{"a tab behind the method", get("GET\t/ HTTP/1.1"), 400},
	{"a blank before the method", get(" GET / HTTP/1.1"), 400},

	{"a target with a query", get("GET /a/b?c=d&e=%20 HTTP/1.1"), 0},
	{"a target with bytes of UTF-8", get("GET /é HTTP/1.1"), 0},
	{"a target with what RFC 3986 does not have", get("GET /\"<>\\^`{|} HTTP/1.1"), 0},
	{"two slashes", get("GET //example.com/a HTTP/1.1"), 0},
	{"a target with a fragment", get("GET /a#b HTTP/1.1"), 400},
	{"a target with a blank", get("GET /a b HTTP/1.1"), 400},
	{"a target with a tab", get("GET /a\tb HTTP/1.1"), 400},
	{"a target with NUL", get("GET /a\x00 HTTP/1.1"), 400},
	{"a target with DEL", get("GET /a\x7f HTTP/1.1"), 400},
	{"a target with a bare CR", get("GET /a\r HTTP/1.1"), 400},
	{"no target", get("GET  HTTP/1.1"), 400},
	{"a target without a slash", get("GET a HTTP/1.1"), 400},
	{"a target that begins with a question mark", get("GET ?a HTTP/1.1"), 400},
	{"absolute form", get("GET http://example.com/ HTTP/1.1"), 400},
	{"authority form", get("CONNECT example.com:443 HTTP/1.1"), 400},
	{"asterisk form", get("OPTIONS * HTTP/1.1"), 0},
	{"asterisk form of another method", get("GET * HTTP/1.1"), 400},
	{"asterisk form of OPTIONS in lower case", get("options * HTTP/1.1"), 400},
	{"asterisk and more", get("OPTIONS *a HTTP/1.1"), 400},

	{"no version", get("GET /"), 400},
	{"HTTP/1.2", get("GET / HTTP/1.2"), 505},
	{"HTTP/0.9", get("GET / HTTP/0.9"), 505},
	{"HTTP/2.0", get("GET / HTTP/2.0"), 505},
	{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\n", 505},
	{"HTTP/11.1", get("GET / HTTP/11.1"), 400},
	{"HTTP/1.10", get("GET / HTTP/1.10"), 400},
	{"HTTP/1", get("GET / HTTP/1"), 400},
	{"HTTP/1,1", get("GET / HTTP/1,1"), 400},
	{"HTTP/x.1", get("GET / HTTP/x.1"), 400},
	{"http/1.1", get("GET / http/1.1"), 400},
	{"a blank behind the version", get("GET / HTTP/1.1 "), 400},
	{"another byte for the CR behind the version", "GET / HTTP/1.1x\nHost: h\r\n\r\n", 400},
	{"another byte for the LF behind the version", "GET / HTTP/1.1\rxHost: h\r\n\r\n", 400},
	{"two blanks before the version", get("GET /  HTTP/1.1"), 400},
	{"a tab before the version", get("GET /\tHTTP/1.1"), 400},

	{"nothing", "", 400},
	{"an empty line", "\r\n", 400},
	{"a line feed", "\n", 400},
	{"an empty line before the request line", "\r\n" + head(), 400},
	{"a head that breaks off in a name", "GET / HTTP/1.1\r\nHost", 400},
	{"a head that breaks off in a value", "GET / HTTP/1.1\r\nHost: h", 400},
	{"a head that breaks off before the empty line", "GET / HTTP/1.1\r\nHost: h\r\n", 400},
	{"a head that breaks off in the empty line", "GET / HTTP/1.1\r\nHost: h\r\n\r", 400},
	{"bytes behind the head", head() + "x", 400},
	{"bare line feeds", "GET / HTTP/1.1\nHost: h\n\n", 400},
	{"a bare line feed behind the request line", "GET / HTTP/1.1\nHost: h\r\n\r\n", 400},
	{"a bare line feed behind a field", "GET / HTTP/1.1\r\nHost: h\n\r\n", 400},
	{"a bare line feed for the empty line", "GET / HTTP/1.1\r\nHost: h\r\n\n", 400},
	{"a bare CR behind the request line", "GET / HTTP/1.1\rHost: h\r\n\r\n", 400},
	{"a bare CR behind a value", head("A: b\r"), 400},
	{"a bare CR within a value", head("A: b\rc"), 400},
	{"a bare CR within a name", head("A\rB: c"), 400},
	{"a bare CR before a name", head("\rA: c"), 400},
	{"a line feed within a value", head("A: b\nC: d"), 400},

	{"obs-fold with a blank", head("A: b", " c"), 400},
	{"obs-fold with a tab", head("A: b", "\tc"), 400},
	{"a blank before the first name", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400},
	{"a blank before the colon", head("A : b"), 400},
	{"a tab before the colon", head("A\t: b"), 400},
	{"a blank within a name", head("A B: c"), 400},
	{"no name", head(": b"), 400},
	{"no colon", head("A"), 400},
	{"a name with a byte that is no token's", head("A(B): c"), 400},
	{"a name with NUL", head("A\x00: c"), 400},
	{"a name beyond ASCII", head("É: c"), 400},
	{"every byte of a token", head("!#$%&'*+-.^_`|~09azAZ: x"), 0},
	{"a value with tabs, and bytes beyond ASCII", head("A: \t b\tc\xff\x80é \t"), 0},
	{"an empty value", head("A:", "B: ", "C:\t"), 0},
	{"no blank behind the colon", head("A:b"), 0},
	{"a value with NUL", head("A: 12345678\x0012345678"), 400},
	{"a value with ESC", head("A: 12345678\x1b"), 400},
	{"a value with DEL", head("A: 1234567\x7f"), 400},
	{"as many fields as allowed", head(slices.Repeat([]string{"A: b"}, wire.MaxFields-1)...), 0},
	{"more fields than allowed", head(slices.Repeat([]string{"A: b"}, wire.MaxFields)...), 431},

	{"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
	{"two Hosts", head("Host: example.com"), 400},
	{"two Hosts of HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\nhOST: b\r\n\r\n", 400},

	{"a Content-Length", head("Content-Length: 5"), 0},
	{"a Content-Length of 0", head("Content-Length: 0"), 0},
	{"the largest Content-Length", head("Content-Length: 9223372036854775807"), 0},
	{"a Content-Length with zeros before it", head("Content-Length: 005"), 0},
	{"a Content-Length beyond 63 bits", head("Content-Length: 9223372036854775808"), 400},
	{"a Content-Length beyond 64 bits", head("Content-Length: 18446744073709551617"), 400},
	{"a Content-Length with many zeros before it", head("Content-Length: 00000000000000000005"), 400},
	{"an empty Content-Length", head("Content-Length:"), 400},
	{"a Content-Length with +", head("Content-Length: +5"), 400},
	{"a Content-Length with -", head("Content-Length: -5"), 400},
	{"a Content-Length in hexadecimal", head("Content-Length: 0x5"), 400},
	{"a Content-Length with a fraction", head("Content-Length: 5.0"), 400},
	{"a Content-Length with a blank inside", head("Content-Length: 5 5"), 400},
	{"a Content-Length with an underscore", head("Content-Length: 1_0"), 400},
	{"a list of equal lengths", head("Content-Length: 5, 5"), 400},
	{"a list of different lengths", head("Content-Length: 5, 6"), 400},
	{"two equal lengths", head("Content-Length: 5", "Content-Length: 5"), 400},
	{"two different lengths", head("Content-Length: 5", "content-length: 6"), 400},

	{"chunked", head("Transfer-Encoding: chunked"), 0},
	{"chunked in capitals", head("TRANSFER-ENCODING: ChUnKeD \t"), 0},
	{"an empty Transfer-Encoding", head("Transfer-Encoding:"), 400},
	{"chunked twice", head("Transfer-Encoding: chunked, chunked"), 400},
	{"chunked on two lines", head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400},
	{"codings on two lines", head("Transfer-Encoding: gzip", "Transfer-Encoding: chunked"), 400},
	{"chunked and a comma", head("Transfer-Encoding: chunked,"), 400},
	{"a comma and chunked", head("Transfer-Encoding: ,chunked"), 400},
	{"chunked with a parameter", head("Transfer-Encoding: chunked;q=1"), 400},
	{"chunked in quotes", head(`Transfer-Encoding: "chunked"`), 400},
	{"chunked before another coding", head("Transfer-Encoding: chunked, gzip"), 400},
	{"another coding before chunked", head("Transfer-Encoding: gzip, chunked"), 501},
	{"another coding", head("Transfer-Encoding: gzip;level=1"), 501},
	{"Transfer-Encoding: identity", head("Transfer-Encoding: identity"), 501},
	{"xchunked", head("Transfer-Encoding: xchunked"), 501},
	{"a vertical tab before chunked", head("Transfer-Encoding: \x0bchunked"), 400},
	{"a no-break space before chunked", head("Transfer-Encoding: \xa0chunked"), 400},
	{"chunked in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
	{"both lengths", head("Content-Length: 5", "Transfer-Encoding: chunked"), 400},
	{"both lengths, the other way round", head("Transfer-Encoding: chunked", "Content-Length: 5"), 400},
	{"both lengths, with a coding not known", head("Transfer-Encoding: gzip", "Content-Length: 5"), 400},
	{"an underscore for the dash of Transfer-Encoding", head("Transfer_Encoding: chunked"), 400},
	{"an underscore for the dash of Content-Length", head("content_length: 5"), 400},
	{"a dot for the dash of Content-Length", head("Content.Length: 5"), 400},
	{"a blank before the colon of Transfer-Encoding", head("Transfer-Encoding : chunked"), 400},

	{"connection options", head("Connection: keep-alive, , Upgrade,\tx"), 0},
	{"an empty Connection", head("Connection:"), 0},
	{"a connection option that is no token", head("Connection: close;"), 400},
	{"a connection option in quotes", head(`Connection: "close"`), 400},
	{"as many connection options as allowed", head("Connection: close" + strings.Repeat(", x", wire.MaxNamed)), 0},
	{"more connection options than allowed", head("Connection: x" + strings.Repeat(", x", wire.MaxNamed)), 431},

	{"100-continue", head("Content-Length: 5", "Expect: 100-Continue"), 0},
	{"100-continue without a body", head("Expect: 100-continue"), 0},
	{"another expectation", head("Content-Length: 5", "Expect: 200-ok"), 417},
	{"an expectation more", head("Content-Length: 5", "Expect: 100-continue, x"), 417},
	{"another expectation of HTTP/1.0", "POST / HTTP/1.0\r\nExpect: x\r\n\r\n", 0},
	{"another expectation, of a body with two lengths", head("Expect: x", "Content-Length: 5", "Content-Length: 5"), 400},
}

func TestRequestHeadsAreAcceptedOrRefused(t *testing.T) {
	var used wire.Request // by one case after the other: nothing of one may show in the next
	for _, c := range requestHeads {
		err := used.Parse(c.head)
		if got := statusOf(t, err); got != c.status {
			t.Errorf("%s: %q answers %d (%v), want %d", c.what, c.head, got, err, c.status)
		}
		var fresh wire.Request
		if again := fresh.Parse(c.head); fmt.Sprint(err) != fmt.Sprint(again) || err == nil && !sameRequest(&used, &fresh) {
			t.Errorf("%s: a Request that is used again has %+v (%v), a new one %+v (%v)", c.what, used, err, fresh, again)
		}
	}
}

func sameRequest(a, b *wire.Request) bool {
	return a.Method == b.Method && a.Target == b.Target && a.Minor == b.Minor && a.Host == b.Host && a.Length == b.Length &&
		a.Close == b.Close && a.Expect == b.Expect && slices.Equal(a.Fields, b.Fields)
}

// badHosts are none.
var badHosts = []string{"a,b", "a/b", "a@b", "user:pass@h", "http://h", "h:x", "h:-1", "h:+80", "h:65536", "h:99999999999999999999",
	"h:80:80", ":80", ":", "[::1", "::1", "[::1]x", "[::1]:x", "[]", "[1.2.3.4]", "[fe80::1%eth0]", "[fe80::1%25eth0]", "[v1.x]", "[::1]]", "a b", "a\tb",
	"a%", "a%2", "a%zz", "é", "a?b", "a#b", `a\b`, `"a"`, "a[b]", "<a>", "a|b", "a^b", "a`b", "{a}"}

func TestHostsAreNamesOrAddressesWithPorts(t *testing.T) {
	for _, good := range []string{"", "h", "example.com", "example.com.", "EXAMPLE.com:80", "example.com:", "a:65535", "127.0.0.1:8080", "[::1]",
		"[2001:db8::1]:443", "[::ffff:192.0.2.1]", "a_b", "a%2Fb", "~!$&'()*+;=", "xn--mnchen-3ya.example.com"} {
		var r wire.Request
		if err := r.Parse("GET / HTTP/1.1\r\nHost: " + good + "\r\n\r\n"); err != nil || r.Host != good {
			t.Errorf("Host %q: %v, and is %q", good, err, r.Host)
		}
	}
	for _, bad := range badHosts {
		var r wire.Request
		if got := statusOf(t, r.Parse("GET / HTTP/1.1\r\nHost: "+bad+"\r\n\r\n")); got != 400 {
			t.Errorf("Host %q answers %d, want 400", bad, got)
		}
	}
}

func TestParseSaysWhatItRead(t *testing.T) {
	var r wire.Request
	if err := r.Parse(head("x-A:  b \t", "Connection: X-a, CLOSE", "Content-Length: 42", "X-A: c", "Expect: 100-continue")); err != nil {
		t.Fatal(err)
	}
	want := []wire.Field{{"Host", "example.com"}, {"x-A", "b"}, {"Connection", "X-a, CLOSE"}, {"Content-Length", "42"}, {"X-A", "c"},
		{"Expect", "100-continue"}}
	if r.Method != "POST" || r.Target != "/a" || r.Minor != 1 || r.Host != "example.com" || r.Length != 42 || !r.Close || !r.Expect ||
		!slices.Equal(r.Fields, want) {
		t.Errorf("read %+v", r)
	}
	if got := r.Values("X-a"); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("the values of X-a are %q", got)
	}
	if got := r.Values("none"); got != nil {
		t.Errorf("the values of a field that is not there are %q", got)
	}
	if !r.Names("x-a") || r.Names("close") || r.Names("Host") {
		t.Error("Connection names x-a alone")
	}
	r.Reset()
	if r.Method != "" || r.Length != 0 || len(r.Fields) != 0 || r.Names("x-a") || r.Fields[:1][0] != (wire.Field{}) {
		t.Errorf("a Reset leaves %+v", r)
	}
}

func TestAConnectionEndsWithAnExchangeOrNot(t *testing.T) {
	for _, c := range []struct {
		minor, lines string
		close        bool
	}{
		{"1", "", false}, {"1", "Connection: keep-alive\r\n", false}, {"1", "Connection: close\r\n", true},
		{"1", "Connection: a\r\nConnection: b, Close\r\n", true}, {"1", "Connection: keep-alive, close\r\n", true}, {"1", "Connection: closed\r\n", false},
		{"0", "", true}, {"0", "Connection: Keep-Alive\r\n", false}, {"0", "Connection: keep-alive, close\r\n", true}, {"0", "Connection: x\r\n", true},
	} {
		var q wire.Request
		if err := q.Parse("GET / HTTP/1." + c.minor + "\r\nHost: h\r\n" + c.lines + "\r\n"); err != nil || q.Close != c.close {
			t.Errorf("a request of HTTP/1.%s with %q: %v, close %v", c.minor, c.lines, err, q.Close)
		}
		var s wire.Response
		if err := s.Parse("HTTP/1."+c.minor+" 200 OK\r\nContent-Length: 0\r\n"+c.lines+"\r\n", "GET"); err != nil || s.Close != c.close {
			t.Errorf("a response of HTTP/1.%s with %q: %v, close %v", c.minor, c.lines, err, s.Close)
		}
	}
}

func TestExpectIsOfBodiesInHTTP11(t *testing.T) {
	for lines, want := range map[string]bool{"Content-Length: 5": true, "Transfer-Encoding: chunked": true, "Content-Length: 0": false, "A: b": false} {
		t.Run(lines, func(t *testing.T) {
			var r wire.Request
			if err := r.Parse(head("Expect: 100-continue", lines)); err != nil || r.Expect != want {
				t.Errorf("%s: %v, Expect is %v", lines, err, r.Expect)
			}
		})
	}
	var r wire.Request
	if err := r.Parse("POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"); err != nil || r.Expect {
		t.Errorf("HTTP/1.0: %v, Expect is %v", err, r.Expect)
	}
}
