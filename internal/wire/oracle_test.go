package wire_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/valyala/fasthttp"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/wire"
)

// An exchange is one request as some reader read it.
type exchange struct {
	method, target, host string
	fields               map[string][]string // but those of framing, Host and Trailer
	body                 string
	trailers             map[string][]string
	used                 int  // bytes of the stream
	trailer              bool // there is a Trailer field
}

func (e exchange) String() string {
	return fmt.Sprintf("%q %q of %q, fields %q, body %q, trailers %q, %d bytes", e.method, e.target, e.host, e.fields, e.body, e.trailers, e.used)
}

// maxHead is how long heads may be here.
const maxHead = 64 << 10

// oneOf reads one request from r, whose connection gives the stream.
func oneOf(r *wire.Reader) (*wire.Request, *wire.Body, string, error) {
	var head string
	for {
		if head = r.Head(); head != "" {
			break
		}
		if err := r.Fill(maxHead); err != nil {
			return nil, nil, "", err
		}
	}
	q := new(wire.Request)
	if err := q.Parse(head); err != nil {
		return nil, nil, "", err
	}
	body := new(wire.Body)
	body.Reset(r, q.Length)
	data, err := io.ReadAll(body)
	return q, body, string(data), err
}

// ours reads a stream's first request with this package.
func ours(stream string) (exchange, error) {
	src := strings.NewReader(stream)
	var r wire.Reader
	r.Reset(src)
	q, body, data, err := oneOf(&r)
	if err != nil {
		return exchange{}, err
	}
	return exchange{q.Method, q.Target, q.Host, asMap(q.Fields), data, asMap(body.Trailers()), len(stream) - src.Len() - r.Len(), q.Values("Trailer") != nil}, nil
}

// left out: framing that readers take away, and what they read into something of its own.
var framing = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer"}

func asMap(fields []wire.Field) map[string][]string {
	m := map[string][]string{}
	for _, f := range fields {
		if name := http.CanonicalHeaderKey(f.Name); !slices.Contains(framing, name) {
			m[name] = append(m[name], f.Value)
		}
	}
	return m
}

func without(h http.Header) map[string][]string {
	m := map[string][]string{}
	for name, values := range h {
		// A trailer that was announced and did not come is nil.
		if values != nil && !slices.Contains(framing, name) {
			m[name] = values
		}
	}
	return m
}

// standard reads it with net/http.
func standard(stream string) (exchange, error) {
	src := strings.NewReader(stream)
	r := bufio.NewReaderSize(src, maxHead)
	q, err := http.ReadRequest(r)
	if err != nil {
		return exchange{}, err
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return exchange{}, err
	}
	return exchange{q.Method, q.RequestURI, q.Host, without(q.Header), string(body), without(q.Trailer), len(stream) - src.Len() - r.Buffered(), q.Trailer != nil}, nil
}

// fast reads it with fasthttp. Of its fields only those are told that the names ask for.
func fast(stream string, names map[string][]string) (exchange, error) {
	src := strings.NewReader(stream)
	r := bufio.NewReaderSize(src, maxHead)
	var q fasthttp.Request
	q.Header.DisableNormalizing()
	if err := q.Header.Read(r); err != nil {
		return exchange{}, err
	}
	fields := map[string][]string{}
	q.Header.DisableNormalizing()
	for name, value := range q.Header.All() {
		if name := http.CanonicalHeaderKey(string(name)); name != "Cookie" && names[name] != nil {
			fields[name] = append(fields[name], string(value))
		}
	}
	method, target, host := string(q.Header.Method()), string(q.Header.RequestURI()), string(q.Header.Host())
	if err := q.ContinueReadBody(r, 1<<30, false); err != nil {
		return exchange{}, err
	}
	return exchange{method: method, target: target, host: host, fields: fields, body: string(q.Body()), used: len(stream) - src.Len() - r.Buffered()}, nil
}

// A tester is what tests, fuzz targets and properties have in common.
type tester interface {
	Helper()
	Errorf(string, ...any)
}

// checkStream holds one stream against both libraries: what we accept, both read the same way and
// to the same byte.
func checkStream(t tester, stream string) {
	t.Helper()
	got, err := ours(stream)
	if err != nil {
		return
	}
	if rest, ok := strings.CutPrefix(stream, "\r\n"); ok { // net/http skips no empty line
		stream = rest
		got.used -= 2
	}
	if want, err := standard(stream); err != nil {
		if !stricterStandard(got) {
			t.Errorf("net/http refuses %q: %v", stream, err)
		}
	} else if got.String() != want.String() {
		t.Errorf("of %q\n   we read %v\nnet/http   %v", stream, got, want)
	}
	if want, err := fast(stream, got.fields); err != nil {
		if !stricterFast(err) {
			t.Errorf("fasthttp refuses %q: %v", stream, err)
		}
	} else if likeFast(&got); got.String() != want.String() {
		t.Errorf("of %q\n   we read %v\nfasthttp   %v", stream, got, want)
	}
}

// stricterStandard reports whether net/http may refuse what we accept: a target that net/url cannot
// take apart, which the gateway refuses when it makes the path canonical; Host with a percent sign
// that is none of RFC 3986's for net/url; a Trailer field that announces what cannot be one, or in
// HTTP/1.0.
func stricterStandard(got exchange) bool {
	_, err := url.ParseRequestURI(got.target)
	return err != nil || got.trailer
}

// stricterFast reports whether fasthttp may refuse what we accept: chunk sizes of sixteen digits,
// and what Trailer announces.
func stricterFast(err error) bool {
	return strings.Contains(err.Error(), "too large hex number") || errors.Is(err, fasthttp.ErrBadTrailer)
}

// likeFast changes what we read to what fasthttp makes of it: of User-Agent and Content-Type it
// keeps the last line, trailers become fields, and cookies are written anew, so that they are not
// compared.
func likeFast(got *exchange) {
	for _, name := range []string{"User-Agent", "Content-Type"} {
		if values := got.fields[name]; len(values) > 0 {
			got.fields[name] = values[len(values)-1:]
		}
	}
	delete(got.fields, "Cookie")
	got.trailers = nil
}

func TestWhatIsAcceptedIsReadAlikeByAll(t *testing.T) {
	for _, c := range requestHeads {
		checkStream(t, c.head+"hello, and more")
	}
	for _, c := range bodies {
		checkStream(t, head("Transfer-Encoding: chunked")+c.stream)
	}
	rapid.Check(t, func(t *rapid.T) { checkStream(t, streams().Draw(t, "stream")) })
}

// all reads a stream to its end or to what is refused, and writes down what it was.
func all(src io.Reader) string {
	var r wire.Reader
	r.Reset(src)
	var log strings.Builder
	for {
		q, body, data, err := oneOf(&r)
		if q != nil {
			fmt.Fprintf(&log, "%q %q %d %q %q %d %v %v; %q %q\n", q.Method, q.Target, q.Minor, q.Host, q.Fields, q.Length, q.Close, q.Expect, data,
				body.Trailers())
		}
		if err != nil {
			fmt.Fprintf(&log, "%v\n", err)
			return log.String()
		}
	}
}

// splits gives a text in pieces.
type splits struct {
	text  string
	sizes []int
}

func (s *splits) Read(p []byte) (int, error) {
	if s.text == "" {
		return 0, io.EOF
	}
	size := len(s.text)
	if len(s.sizes) > 0 {
		size, s.sizes = min(size, s.sizes[0]), s.sizes[1:]
	}
	n := copy(p, s.text[:size])
	s.text = s.text[n:]
	return n, nil
}

func TestHowBytesArriveChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := strings.Join(rapid.SliceOfN(streams(), 1, 4).Draw(t, "streams"), "")
		want := all(strings.NewReader(stream))
		if got := all(iotest.OneByteReader(strings.NewReader(stream))); got != want {
			t.Fatalf("byte by byte %q is\n%s\nat once\n%s", stream, got, want)
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 30).Draw(t, "sizes")
		if got := all(&splits{stream, sizes}); got != want {
			t.Fatalf("in pieces of %d %q is\n%s\nat once\n%s", sizes, stream, got, want)
		}
	})
}

// streams are requests, mostly good or nearly so, with something behind them.
func streams() *rapid.Generator[string] {
	piece := func(usual ...string) *rapid.Generator[string] { return rapid.SampledFrom(usual) }
	odd := piece("\r", "\n", "\r\n", " ", "\t", "\x00", "\x7f", "\x80", ":", ",", ";", "0", "-", "_", "#", "\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	lines := piece("A: b", "A:b\t", "a:  c d ", "X-Long-Name-Of-A-Field: "+strings.Repeat("v", 300), "User-Agent: x", "user-agent: y", "Content-Type: text/plain",
		"Cookie: a=b; c=d", "Connection: keep-alive", "Connection: close, A", "Expect: 100-continue", "Trailer: T", "Trailer: Host", "Host: other", "Pragma: x",
		"Content-Length: 5", "Content-Length: 05", "Content-Length: 5, 5", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: Chunked",
		"Transfer_Encoding: chunked", "A : b", " folded", "no colon", "")
	behind := piece("", "hello", "0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "5;x=y\r\nhello\r\nA;z\r\n0123456789\r\n0\r\nT: u\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n",
		"0\r\nHost: x\r\n\r\n", "800\r\n"+strings.Repeat("d", 0x800)+"\r\n0;\r\nT:\r\nU: v\r\n\r\n", "00000000000000005\r\nhello\r\n0\r\n\r\n", "5\nhello\n0\n\n")
	return rapid.Custom(func(t *rapid.T) string {
		s := piece("", "", "", "\r\n", "\n").Draw(t, "before") +
			piece("GET", "POST", "HEAD", "OPTIONS", "CONNECT", "get", "X-Y").Draw(t, "method") + " " +
			piece("/", "/a?b=c", "/%20", "/%zz", "//h/a", "*", "http://h/a", "h:80", "/\xff", "/a#b").Draw(t, "target") +
			piece(" HTTP/1.1\r\n", " HTTP/1.1\r\n", " HTTP/1.0\r\n", " HTTP/1.2\r\n", "\r\n").Draw(t, "version") +
			piece("Host: h\r\n", "Host: h:80\r\n", "hOST:[::1]:80 \r\n", "Host:\r\n", "Host: a%41b\r\n", "Host: a%zz\r\n", "").Draw(t, "host") +
			strings.Join(append(rapid.SliceOfN(lines, 0, 4).Draw(t, "lines"), "", ""), "\r\n") +
			behind.Draw(t, "behind")
		for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "oddities") {
			at := rapid.IntRange(0, len(s)).Draw(t, "at")
			s = s[:at] + odd.Draw(t, "odd") + s[min(len(s), at+rapid.IntRange(0, 2).Draw(t, "instead of")):]
		}
		return s
	})
}
