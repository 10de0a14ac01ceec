package wire_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weirlimit/weir/internal/wire"
)

// bodies are streams of one chunked body, "next" behind it where it ends, and what they come to.
var bodies = []struct {
	what, stream string
	want         string
	status       int // of the refusal; 0 with broken
	broken       bool
}{
	{what: "no chunk", stream: "0\r\n\r\nnext"},
	{what: "chunks", stream: "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nnext", want: "abcde"},
	{what: "hexadecimal, in both cases", stream: "a\r\n0123456789\r\nA\r\n0123456789\r\n000\r\n\r\nnext", want: "01234567890123456789"},
	{what: "sixteen digits", stream: "0000000000000001\r\nx\r\n0\r\n\r\nnext", want: "x"},
	{what: "extensions", stream: "1;a=b;c=\"d e\" ;é\tf\r\nx\r\n0;last\r\n\r\nnext", want: "x"},
	{what: "trailers", stream: "1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\nnext", want: "x"},
	{what: "data that looks like framing", stream: "7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\nnext", want: "\r\n0\r\n\r\n"},

	{what: "no digit", stream: "\r\n", status: 400},
	{what: "an extension without a size", stream: ";a\r\n", status: 400},
	{what: "no hexadecimal digit", stream: "g\r\n", status: 400},
	{what: "a sign", stream: "+1\r\nx\r\n", status: 400},
	{what: "a minus", stream: "-1\r\nx\r\n", status: 400},
	{what: "0x", stream: "0x1\r\nx\r\n", status: 400},
	{what: "0x, with what could be the end behind it", stream: "0x2\r\n\r\n\r\n", status: 400},
	{what: "an underscore", stream: "1_0\r\n", status: 400},
	{what: "a blank before the size", stream: " 1\r\nx\r\n", status: 400},
	{what: "a blank behind the size", stream: "1 \r\nx\r\n", status: 400},
	{what: "a blank before an extension", stream: "1 ;a\r\nx\r\n", status: 400},
	{what: "a tab behind the size", stream: "1\t\r\nx\r\n", status: 400},
	{what: "the largest size", stream: "7fffffffffffffff\r\nx", want: "x", broken: true},
	{what: "a size beyond 63 bits", stream: "8000000000000000\r\nx", status: 400},
	{what: "seventeen digits", stream: "00000000000000001\r\nx\r\n", status: 400},
	{what: "a size beyond 64 bits", stream: "10000000000000001\r\nx\r\n", status: 400},
	{what: "a size line that ends with a bare LF", stream: "1\nx\r\n", status: 400},
	{what: "a bare CR in a size line", stream: "1;a\rb\r\nx\r\n", status: 400},
	{what: "a bare CR behind the size", stream: "1\rx\r\n", status: 400},
	{what: "two CRs behind the size", stream: "1\r\r\nx\r\n", status: 400},
	{what: "NUL in an extension", stream: "1;\x00\r\nx\r\n", status: 400},
	{what: "the longest size line", stream: "1;" + strings.Repeat("a", wire.MaxChunkLine-4) + "\r\nx\r\n0\r\n\r\nnext", want: "x"},
	{what: "a size line longer than allowed", stream: "1;" + strings.Repeat("a", wire.MaxChunkLine-3) + "\r\nx\r\n", status: 400},
	{what: "as many extensions as allowed", stream: strings.Repeat("1;"+strings.Repeat("a", 127)+"\r\nx\r\n", wire.MaxExtensions/128) + "0\r\n\r\nnext",
		want: strings.Repeat("x", wire.MaxExtensions/128)},
	{what: "more extensions than allowed", stream: strings.Repeat("1;"+strings.Repeat("a", 127)+"\r\nx\r\n", wire.MaxExtensions/128) + "0;\r\n\r\n",
		want: strings.Repeat("x", wire.MaxExtensions/128), status: 400},

	{what: "data longer than its chunk", stream: "1\r\nxy\r\n0\r\n\r\n", want: "x", status: 400},
	{what: "data that ends with a bare LF", stream: "1\r\nx\n0\r\n\r\n", want: "x", status: 400},
	{what: "data that ends with a bare CR", stream: "1\r\nx\r0\r\n\r\n", want: "x", status: 400},
	{what: "data that ends with a CR and another byte", stream: "1\r\nx\ra0\r\n\r\n", want: "x", status: 400},
	{what: "data without an end", stream: "1\r\nx0\r\n\r\n", want: "x", status: 400},

	{what: "an end without its empty line", stream: "0\r\n", broken: true},
	{what: "an empty line that breaks off", stream: "0\r\n\r", broken: true},
	{what: "an empty line of a bare LF", stream: "0\r\n\n", status: 400},
	{what: "a trailer that breaks off", stream: "0\r\nA: b\r\n", broken: true},
	{what: "a trailer without a colon", stream: "0\r\nA\r\n\r\n", status: 400},
	{what: "a trailer that ends with a bare LF", stream: "0\r\nA: b\n\r\n", status: 400},
	{what: "a trailer with a blank before the colon", stream: "0\r\nA : b\r\n\r\n", status: 400},
	{what: "a folded trailer", stream: "0\r\nA: b\r\n c\r\n\r\n", status: 400},
	{what: "a request where a trailer should be", stream: "0\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", status: 400},
	{what: "a trailer that is framing", stream: "0\r\nContent-Length: 5\r\n\r\n", status: 400},
	{what: "a trailer that is a credential", stream: "0\r\nAuthorization: x\r\n\r\n", status: 400},
	{what: "as many trailers as allowed", stream: "0\r\n" + strings.Repeat("A: b\r\n", wire.MaxTrailerFields) + "\r\nnext"},
	{what: "more trailers than allowed", stream: "0\r\n" + strings.Repeat("A: b\r\n", wire.MaxTrailerFields+1) + "\r\n", status: 431},
	{what: "the longest trailers", stream: "0\r\nA: " + strings.Repeat("b", wire.MaxTrailerBytes-7) + "\r\n\r\nnext"},
	{what: "longer trailers than allowed", stream: "0\r\nA: " + strings.Repeat("b", wire.MaxTrailerBytes-6) + "\r\n\r\n", status: 431},
	{what: "trailers without an end", stream: "0\r\nA: " + strings.Repeat("b", 4*wire.MaxTrailerBytes), status: 431},

	{what: "nothing", stream: "", broken: true},
	{what: "a size that breaks off", stream: "1", broken: true},
	{what: "data that breaks off", stream: "5\r\nab", want: "ab", broken: true},
	{what: "a body without a last chunk", stream: "1\r\nx\r\n", want: "x", broken: true},
}

// arrivals are ways in which the same bytes come in.
var arrivals = map[string]func(io.Reader) io.Reader{
	"at once":            func(r io.Reader) io.Reader { return r },
	"byte by byte":       iotest.OneByteReader,
	"by halves":          iotest.HalfReader,
	"its end with bytes": iotest.DataErrReader,
}

// readBody reads a body to its end with reads of size bytes, and what is behind it.
func readBody(t *testing.T, src io.Reader, length int64, size int) (data string, body *wire.Body, after string, err error) {
	t.Helper()
	var r wire.Reader
	r.Reset(src)
	body = new(wire.Body)
	body.Reset(&r, length)
	var all strings.Builder
	p := make([]byte, size)
	for err == nil {
		var n int
		if n, err = body.Read(p); n == 0 && err == nil {
			t.Fatal("a read of nothing, without an error")
		}
		all.Write(p[:n])
	}
	if n, again := body.Read(p); n != 0 || !errors.Is(again, err) {
		t.Errorf("after %v a read gives %d bytes and %v: errors stay", err, n, again)
	}
	rest, restErr := io.ReadAll(&r)
	if restErr != nil {
		t.Fatal(restErr)
	}
	return all.String(), body, string(rest), err
}

func TestChunkedBodies(t *testing.T) {
	for _, c := range bodies {
		for how, arrive := range arrivals {
			for _, size := range []int{1, 7, 64 << 10} {
				name := fmt.Sprintf("%s, %s, reads of %d", c.what, how, size)
				data, body, rest, err := readBody(t, arrive(strings.NewReader(c.stream)), wire.Chunked, size)
				if data != c.want {
					t.Errorf("%s: read %.50q, want %.50q", name, data, c.want)
				}
				switch good := c.status == 0 && !c.broken; {
				case body.Done() != good:
					t.Errorf("%s: done is %v after %v", name, body.Done(), err)
				case good && (err != io.EOF || rest != "next"):
					t.Errorf("%s: ends with %v, and %q is behind it", name, err, rest)
				case c.broken && err != io.ErrUnexpectedEOF:
					t.Errorf("%s: ends with %v, want %v", name, err, io.ErrUnexpectedEOF)
				case c.status != 0 && statusOf(t, err) != c.status:
					t.Errorf("%s: ends with %v, want %d", name, err, c.status)
				}
			}
		}
	}
}

func TestTrailersAreOfTheBodyAlone(t *testing.T) {
	_, body, _, err := readBody(t, strings.NewReader("1\r\nx\r\n0\r\ngrpc-status: 0\r\nETag:  \"a\" \r\nContent-Digest: x\r\n\r\n"), wire.Chunked, 10)
	if want := []wire.Field{{"grpc-status", "0"}, {"ETag", `"a"`}, {"Content-Digest", "x"}}; err != io.EOF || !slices.Equal(body.Trailers(), want) {
		t.Errorf("the trailers are %v (%v), want %v", body.Trailers(), err, want)
	}
	for _, name := range []string{"Transfer-Encoding", "content-length", "CONTENT_LENGTH", "Host", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade",
		"Proxy-Authorization", "Proxy-Anything", "Authorization", "Cookie", "Set-Cookie", "WWW-Authenticate", "Cache-Control", "Expect", "Max-Forwards", "Range",
		"If-Match", "Content-Encoding", "Content-Type", "Content-Range", "Location", "Date", "Age", "Vary", "Expires", "Retry-After", "X-Forwarded-For",
		"x_forwarded_host", "Forwarded", "Accept", "Access-Control-Allow-Origin", "Sec-Fetch-Site"} {
		_, body, _, err := readBody(t, strings.NewReader("0\r\n"+name+": x\r\n\r\n"), wire.Chunked, 10)
		if statusOf(t, err) != 400 || body.Trailers() != nil {
			t.Errorf("a trailer %s: %v, trailers %v", name, err, body.Trailers())
		}
	}
}

func TestBodiesOfKnownLength(t *testing.T) {
	for how, arrive := range arrivals {
		for _, size := range []int{1, 3, 100} {
			if data, body, rest, err := readBody(t, arrive(strings.NewReader("abcdenext")), 5, size); data != "abcde" || rest != "next" || err != io.EOF || !body.Done() {
				t.Errorf("%s: %q, behind it %q, %v", how, data, rest, err)
			}
			if data, body, _, err := readBody(t, arrive(strings.NewReader("abc")), 5, size); data != "abc" || err != io.ErrUnexpectedEOF || body.Done() {
				t.Errorf("%s: a body that breaks off: %q, %v", how, data, err)
			}
			if data, body, rest, err := readBody(t, arrive(strings.NewReader("next")), 0, size); data != "" || rest != "next" || err != io.EOF || !body.Done() {
				t.Errorf("%s: no body: %q, behind it %q, %v", how, data, rest, err)
			}
			if data, body, _, err := readBody(t, arrive(strings.NewReader("all of it")), wire.UntilClose, size); data != "all of it" || err != io.EOF || !body.Done() {
				t.Errorf("%s: until the end: %q, %v", how, data, err)
			}
		}
	}
	var none wire.Body
	if n, err := none.Read(make([]byte, 1)); n != 0 || err != io.EOF || !none.Done() {
		t.Errorf("a zero Body reads %d bytes, %v", n, err)
	}
}

func TestATrailerOfAnAnswerThatBelongsInTheHeadIsLeftOut(t *testing.T) {
	var r wire.Reader
	r.Reset(strings.NewReader("0\r\nRetry-After: 1\r\netag: x\r\nTransfer-Encoding: chunked\r\n\r\n"))
	var b wire.Body
	b.ResetAnswer(&r, wire.Chunked)
	if _, err := io.ReadAll(&b); err != nil || !b.Done() || !slices.Equal(b.Trailers(), []wire.Field{{"etag", "x"}}) {
		t.Errorf("%v, trailers %v", err, b.Trailers())
	}
}
