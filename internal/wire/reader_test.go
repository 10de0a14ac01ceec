package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unsafe"
)

// fed returns a Reader of what a text is when it arrives that way.
func fed(src io.Reader) *Reader {
	r := new(Reader)
	r.Reset(src)
	return r
}

// await fills the Reader until cut gives a head, and fails where none comes.
func await(t *testing.T, r *Reader, cut func() string) string {
	t.Helper()
	for {
		if head := cut(); head != "" {
			return head
		}
		if err := r.Fill(1 << 20); err != nil {
			t.Fatalf("no head comes: %v, with %.80q buffered", err, r.Buffered())
		}
	}
}

func TestHeadsAreCutAtTheFirstEmptyLine(t *testing.T) {
	for _, c := range []struct{ stream, head, behind string }{
		{"GET / HTTP/1.1\r\nHost: h\r\n\r\nbody", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "body"},
		{"\r\nGET / HTTP/1.1\r\n\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\r\n"},
		// Only one empty line is skipped: Parse refuses this one.
		{"\r\n\r\nGET", "\r\n", "GET"},
		{"\nGET / HTTP", "\n", "GET / HTTP"}, // nor a bare line feed
		{"\r\n\nGET", "\n", "GET"},
		{"GET / HTTP/1.1\nHost: h\n\nx", "GET / HTTP/1.1\nHost: h\n\n", "x"},
		{"GET / HTTP/1.1\nHost: h\n\r\nx", "GET / HTTP/1.1\nHost: h\n\r\n", "x"},
		{"a\r\n\nb\r\n\r\n", "a\r\n\n", "b\r\n\r\n"},
		{"a\r\n\rb\r\n\r\n", "a\r\n\rb\r\n\r\n", ""},
		{"a\n\rb\n\r\n", "a\n\rb\n\r\n", ""},
		{"\ra\r\n\r\n", "\ra\r\n\r\n", ""},
		{"a\r\r\n\r\r\n\r\n", "a\r\r\n\r\r\n\r\n", ""},
		{"\x16", "\x16", ""}, // which begins no request: it is not waited for
		{"\r\n ", " ", ""},
	} {
		for how, arrive := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r },
			"byte by byte": iotest.OneByteReader, "by halves": iotest.HalfReader, "its end with bytes": iotest.DataErrReader} {
			r := fed(arrive(strings.NewReader(c.stream)))
			head := await(t, r, r.Head)
			rest, err := io.ReadAll(r)
			if head != c.head || string(rest) != c.behind || err != nil {
				t.Errorf("%q, %s: the head is %q, behind it %q (%v); want %q and %q", c.stream, how, head, rest, err, c.head, c.behind)
			}
		}
	}
	r := fed(strings.NewReader("\r\nHTTP/1.1 200 OK\r\n\r\n"))
	if head := await(t, r, r.ResponseHead); head != "\r\n" {
		t.Errorf("the head of a response is %q: nothing is skipped before one", head)
	}
}

func TestOneEmptyLineBeforeEachRequest(t *testing.T) {
	r := fed(iotest.OneByteReader(strings.NewReader("\r\na\r\n\r\n\r\nb\r\n\r\nc\r\n\r\n\r\n\r\n")))
	for _, want := range []string{"a\r\n\r\n", "b\r\n\r\n", "c\r\n\r\n", "\r\n"} {
		if head := await(t, r, r.Head); head != want {
			t.Errorf("the head is %q, want %q", head, want)
		}
	}
}

func TestFillBuffersAtMostWhatIsAllowed(t *testing.T) {
	for _, most := range []int{1, 100, size0, size0 + 1, size1, 10_000, size2, size3, size3 + 1, 300_000} {
		r := fed(&endless{text: strings.Repeat("x", 777)})
		var err error
		for err == nil {
			err = r.Fill(most)
		}
		if !errors.Is(err, ErrFull) || r.Len() != most {
			t.Errorf("at most %d: %d bytes are buffered, and Fill returns %v", most, r.Len(), err)
		}
		if limit := max(size0, 4*most); len(r.buf) > limit {
			t.Errorf("at most %d: the buffer has %d bytes", most, len(r.buf))
		}
		r.Discard(r.Len())
		if r.buf != nil {
			t.Errorf("at most %d: an empty Reader holds a buffer of %d bytes", most, len(r.buf))
		}
	}
}

func TestAnIdleReaderCostsItselfAlone(t *testing.T) {
	if size := unsafe.Sizeof(Reader{}); size > 160 {
		t.Errorf("a Reader has %d bytes", size)
	}
	r := fed(strings.NewReader(strings.Repeat("a", 40_000) + "\r\n\r\n" + "the next one"))
	if head := await(t, r, r.Head); len(head) != 40_004 {
		t.Fatalf("the head has %d bytes", len(head))
	}
	for r.Len() < len("the next one") {
		if err := r.Fill(100_000); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.buf) > size0 && r.r > 0 {
		if err := r.Fill(100_000); err != io.EOF || len(r.buf) > size0 {
			t.Errorf("with %d bytes of the next head a Reader still holds %d (%v)", r.Len(), len(r.buf), err)
		}
	}
	if string(r.Buffered()) != "the next one" {
		t.Errorf("%q is buffered", r.Buffered())
	}
	if r.Reset(nil); r.Len() != 0 || r.buf != nil {
		t.Errorf("a Reset leaves %d bytes", r.Len())
	}
}

// A head that comes byte by byte is searched once, not once for each byte: 100,000 bytes would be
// five thousand million steps.
func TestAHeadThatComesSlowlyIsSearchedOnce(t *testing.T) {
	r := fed(iotest.OneByteReader(strings.NewReader(strings.Repeat("a", 100_000) + "\n\r.\r\n\r\n")))
	for range 100_000 {
		if err := r.Fill(1 << 20); err != nil || r.Head() != "" {
			t.Fatal("a head before its end", err)
		}
	}
	if r.seen != 100_000 {
		t.Errorf("%d of 100,000 bytes are known to hold no end", r.seen)
	}
	if head := await(t, r, r.Head); len(head) != 100_007 {
		t.Errorf("the head has %d bytes", len(head))
	}
}

func TestErrorsOfAConnectionAreReported(t *testing.T) {
	broken := errors.New("broken")
	r := fed(io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(broken)))
	if err := r.Fill(100); err != nil || r.Len() != 2 {
		t.Errorf("%v, %d bytes", err, r.Len())
	}
	if err := r.Fill(100); err != broken {
		t.Errorf("Fill returns %v", err)
	}
	if got, err := io.ReadAll(r); string(got) != "ab" || err != broken {
		t.Errorf("%q, %v", got, err)
	}
	if err := fed(stuck{}).Fill(10); err != io.ErrNoProgress {
		t.Errorf("of a connection that gives nothing Fill returns %v", err)
	}
	if n, err := fed(stuck{}).Read(nil); n != 0 || err != nil {
		t.Errorf("a read of nothing gives %d, %v", n, err)
	}
	both := fed(&laden{err: broken})
	if err := both.Fill(10); err != nil {
		t.Errorf("bytes with an error: %v", err)
	}
	if err := both.Fill(10); err != broken {
		t.Errorf("the error that came with bytes: %v", err)
	}
}

// laden gives a byte with an error, once, and nothing wrong after that.
type laden struct{ err error }

func (l *laden) Read(p []byte) (int, error) {
	err := l.err
	l.err = nil
	return copy(p, "x"), err
}

// Trailers have their bound also where more is buffered already, as behind a long head.
func TestTrailersAreBoundedWhateverIsBuffered(t *testing.T) {
	for size, want := range map[int]error{MaxTrailerBytes: io.EOF, MaxTrailerBytes + 1: &Refusal{431, "more bytes of trailers than allowed"}} {
		r := fed(strings.NewReader("0\r\nA: " + strings.Repeat("b", size-len("A: \r\n\r\n")) + "\r\n\r\n"))
		for r.Fill(64<<10) == nil {
		}
		var b Body
		b.Reset(r, Chunked)
		if _, err := b.Read(make([]byte, 10)); err == nil || err.Error() != want.Error() {
			t.Errorf("trailers of %d bytes: %v, want %v", size, err, want)
		}
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// sizes notes how large the slices are that are read into.
type sizes struct {
	src  io.Reader
	into []*byte
	n    []int
}

func (s *sizes) Read(p []byte) (int, error) {
	n, err := s.src.Read(p)
	s.into, s.n = append(s.into, &p[0]), append(s.n, len(p))
	return n, err
}

func TestBodiesAreReadIntoTheCallersBytes(t *testing.T) {
	p := make([]byte, 32<<10)
	data := bytes.Repeat([]byte("x"), 100_000)
	known := &sizes{src: bytes.NewReader(data)}
	var b Body
	b.Reset(fed(known), int64(len(data)))
	if _, err := b.Read(p); err != nil || known.into[0] != &p[0] || known.n[0] != len(p) {
		t.Errorf("a body of known length: %v, read with %d bytes", err, known.n)
	}
	chunks := &sizes{src: strings.NewReader(fmt.Sprintf("%x\r\n", len(data)) + string(data) + "\r\n0\r\n\r\n")}
	b.Reset(fed(chunks), Chunked)
	if n, err := b.Read(p); err != nil || n < size0-10 || len(chunks.n) != 1 {
		t.Errorf("the first read of a chunk: %d bytes, %v, after reads of %d", n, err, chunks.n)
	}
	if n, err := b.Read(p); err != nil || n != len(p) || chunks.into[1] != &p[0] {
		t.Errorf("the second read of a chunk: %d bytes, %v, after reads of %d", n, err, chunks.n)
	}
}

// A chunk that is there is given out, whether the next one comes or not: server-sent events.
func TestAChunkIsGivenOutBeforeTheNextOneComes(t *testing.T) {
	in, out := io.Pipe()
	var b Body
	b.Reset(fed(in), Chunked)
	p := make([]byte, 1000)
	for _, event := range []string{"one", "two"} {
		sent := make(chan error, 1)
		go func() {
			_, err := io.WriteString(out, "3\r\n"+event+"\r\n")
			sent <- err
		}()
		if n, err := b.Read(p); string(p[:n]) != event || err != nil {
			t.Errorf("read %q, %v", p[:n], err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
	go out.Close()
	if _, err := b.Read(p); err != io.ErrUnexpectedEOF {
		t.Errorf("a body that breaks off: %v", err)
	}
}
