package wire_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

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
		if err := r.Fill(mostHead); err != nil {
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
	r := bufio.NewReaderSize(src, mostHead)
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
