package wire_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/wire"
)

// What is accepted is read alike by net/http and fasthttp, and however it arrives.
func FuzzRequests(f *testing.F) {
	for _, c := range requestHeads {
		f.Add(c.head + "hello")
	}
	for _, c := range bodies {
		if len(c.stream) < 1000 {
			f.Add(head("Transfer-Encoding: chunked") + c.stream)
		}
	}
	f.Add(strings.Repeat(head("Content-Length: 2")+"ab", 3))
	f.Fuzz(func(t *testing.T, stream string) {
		checkStream(t, stream)
		want := all(strings.NewReader(stream))
		if got := all(iotest.OneByteReader(strings.NewReader(stream))); got != want {
			t.Errorf("byte by byte %q is\n%s\nat once\n%s", stream, got, want)
		}
		if got := all(iotest.HalfReader(strings.NewReader(stream))); got != want {
			t.Errorf("by halves %q is\n%s\nat once\n%s", stream, got, want)
		}
	})
}

// The answer of an upstream, read by this package; ok: all of it is good.
func ourAnswer(src io.Reader, method string) (text string, rest int, ok bool) {
	var r wire.Reader
	r.Reset(src)
	var head string
	for head == "" {
		if err := r.Fill(maxHead); err != nil {
			return err.Error(), 0, false
		}
		head = r.ResponseHead()
	}
	var p wire.Response
	if err := p.Parse(head, method); err != nil {
		return err.Error(), 0, false
	}
	var body wire.Body
	body.Reset(&r, p.Length)
	data, err := io.ReadAll(&body)
	behind, _ := io.ReadAll(&r)
	return fmt.Sprintf("1.%d %d, fields %q, body %q, trailers %q", p.Minor, p.Status, asMap(p.Fields), data, asMap(body.Trailers())), len(behind), err == nil
}

// checkAnswer holds a response against net/http.
func checkAnswer(t tester, stream, method string) {
	t.Helper()
	got, rest, ok := ourAnswer(strings.NewReader(stream), method)
	for _, slow := range []io.Reader{iotest.OneByteReader(strings.NewReader(stream)), iotest.HalfReader(strings.NewReader(stream))} {
		if again, left, good := ourAnswer(slow, method); again != got || left != rest || good != ok {
			t.Errorf("%q is %s (%d behind), at once %s (%d)", stream, again, left, got, rest)
		}
	}
	if !ok {
		return
	}
	src := strings.NewReader(stream)
	r := bufio.NewReaderSize(src, maxHead)
	p, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Errorf("net/http refuses %q: %v", stream, err)
		return
	}
	data, err := io.ReadAll(p.Body)
	want := fmt.Sprintf("1.%d %d, fields %q, body %q, trailers %q", p.ProtoMinor, p.StatusCode, without(p.Header), data, without(p.Trailer))
	if behind := src.Len() + r.Buffered(); err != nil || want != got || behind != rest {
		t.Errorf("of %q to %s\n   we read %s, %d behind\nnet/http   %s, %d behind (%v)", stream, method, got, rest, want, behind, err)
	}
}

func FuzzResponses(f *testing.F) {
	for _, line := range []string{"HTTP/1.1 200 OK", "HTTP/1.0 200", "HTTP/1.1 204 No Content", "HTTP/1.1 304 ", "HTTP/1.1 100 Continue", "HTTP/1.1 099 x"} {
		for _, lines := range []string{"", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "Connection: close, A\r\nA: b\r\n", "A: b\r\n c\r\n", "Trailer: T\r\n"} {
			for _, body := range []string{"", "hello, and more", "5\r\nhello\r\n0\r\nT: u\r\n\r\nmore"} {
				f.Add(line+"\r\n"+lines+"\r\n"+body, "GET")
				f.Add(line+"\r\n"+lines+"\r\n"+body, "HEAD")
			}
		}
	}
	f.Fuzz(func(t *testing.T, stream, method string) { checkAnswer(t, stream, method) })
}

func TestAnswersAreReadAlike(t *testing.T) {
	piece := func(usual ...string) *rapid.Generator[string] { return rapid.SampledFrom(usual) }
	status := piece("HTTP/1.1 200 OK", "HTTP/1.1 200", "HTTP/1.0 200 OK", "HTTP/1.1 204 No Content", "HTTP/1.1 304 Not Modified", "HTTP/1.1 100 Continue",
		"HTTP/1.1 404 ", "HTTP/1.1 600 É", "HTTP/1.2 200 OK", "HTTP/1.1  200 OK", "HTTP/1.1 20 OK")
	line := piece("A: b", "A:\tb c ", "Content-Length: 5", "Content-Length: 0", "Content-Length: 5, 5", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip",
		"Connection: close", "Connection: keep-alive, A", "Set-Cookie: a=b", "Trailer: T", "A : b", " c", "Date: x")
	behind := piece("", "hello", "hello, and more", "0\r\n\r\n", "5\r\nhello\r\n0\r\nT: u\r\n\r\nmore", "5;x\r\nhello\r\n00\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n",
		"bb8\r\n"+strings.Repeat("d", 3000)+"\r\n1\r\nx\r\n0\r\nHost: x\r\n\r\n", "bb8\r\n"+strings.Repeat("d", 3000)+"\r\n1\r\nx\r\n0\r\n\r\n")
	odd := piece("\r", "\n", " ", "\x00", ":", ",", "\r\n\r\n", "0")
	rapid.Check(t, func(t *rapid.T) {
		s := status.Draw(t, "status") + "\r\n" + strings.Join(append(rapid.SliceOfN(line, 0, 3).Draw(t, "lines"), "", ""), "\r\n") + behind.Draw(t, "behind")
		if rapid.IntRange(0, 3).Draw(t, "odd ones") == 0 {
			at := rapid.IntRange(0, len(s)).Draw(t, "at")
			s = s[:at] + odd.Draw(t, "odd") + s[at:]
		}
		checkAnswer(t, s, piece("GET", "HEAD", "POST").Draw(t, "method"))
	})
}
