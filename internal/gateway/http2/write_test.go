package http2

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/rules"
)

// newSending returns a connection that has only what is appended needs.
func newSending() *conn {
	c := &conn{engine: new(Engine)}
	c.sending.begin(c)
	return c
}

// A head that is longer than a frame continues in further ones, and is the same head.
func TestALongHeadIsSeveralFrames(t *testing.T) {
	c := newSending()
	long := strings.Repeat("~", 40_000) // which Huffman's code makes longer
	c.appendHead(1, http.StatusOK, rules.Fields{{Name: "X-Long", Value: long}, {Name: "Content-Type", Value: "text/plain"}}, true)
	c.appendHead(3, 0, rules.Fields{{Name: "X-Sum", Value: "1"}}, true)
	f := http2.NewFramer(nil, bytes.NewReader(c.out))
	f.SetMaxReadFrameSize(largestFrame)
	f.ReadMetaHeaders = hpack.NewDecoder(tableSize, nil)
	frame, err := f.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	head := frame.(*http2.MetaHeadersFrame)
	if head.PseudoValue("status") != "200" || !head.StreamEnded() || len(head.RegularFields()) != 2 ||
		head.Fields[1].Name != "x-long" || head.Fields[1].Value != long || head.Fields[2].Name != "content-type" {
		t.Errorf("%d fields, ended %v", len(head.Fields), head.StreamEnded())
	}
	// trailers have no status
	if frame, err = f.ReadFrame(); err != nil || len(frame.(*http2.MetaHeadersFrame).Fields) != 1 || frame.Header().StreamID != 3 {
		t.Errorf("%v, %v", frame, err)
	}
}

// The head of a usual answer is written without an allocation.
func TestAHeadIsAppendedWithoutAllocating(t *testing.T) {
	c := newSending()
	fields := rules.Fields{
		{Name: "Content-Type", Value: "application/json"}, {Name: "X-RateLimit-Limit", Value: "60"}, {Name: "X-RateLimit-Remaining", Value: "0"},
		{Name: "Date", Value: "Thu, 01 Jan 1970 00:00:00 GMT"}, {Name: "Retry-After", Value: "60"}, {Name: "Content-Length", Value: "5"},
	}
	c.appendHead(1, http.StatusTooManyRequests, fields, true) // makes the buffers
	if n := testing.AllocsPerRun(100, func() {
		c.out = c.out[:0]
		c.appendHead(1, http.StatusTooManyRequests, fields, false)
		c.appendData(1, []byte("body!"), true)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Fields that recur are encoded as they were, whatever came between them.
func TestFieldsThatRecurAreDecodedAlike(t *testing.T) {
	c := newSending()
	decoder := hpack.NewDecoder(tableSize, nil)
	names := []string{"Content-Type", "Date", "X-RateLimit-Limit", "X-RateLimit-Reset", "Set-Cookie", "A", "B", "Bb"}
	for i := range 500 {
		var fields rules.Fields
		for j, name := range names {
			fields = append(fields, answer.Field{Name: name, Value: strings.Repeat("v", (i*j)%97)})
		}
		c.out = nil
		c.appendHead(1, 200+i%3, fields, true)
		got, err := decoder.DecodeFull(c.fields.block)
		if err != nil || len(got) != len(fields)+1 || got[0].Value != statuses[200+i%3] {
			t.Fatalf("%d: %v, %v", i, got, err)
		}
		for j, f := range fields {
			if got[j+1].Name != strings.ToLower(f.Name) || got[j+1].Value != f.Value {
				t.Fatalf("%d: %v becomes %v", i, f, got[j+1])
			}
		}
	}
}

// All names that answers of our own have are known in lower case.
func TestNamesAreInLowerCase(t *testing.T) {
	for _, name := range append([]string{"X-Anything-Else", "content-type", "ETag"}, answer.Names[:]...) {
		if got := lowered(name); got != strings.ToLower(name) {
			t.Errorf("%q becomes %q", name, got)
		}
	}
	for name, want := range map[string]string{"x-request-id": "X-Request-Id: ", "a": "A: ", "x--1a": "X--1a: "} {
		if got := string(appendName(nil, name)); got != want {
			t.Errorf("%q goes up as %q, want %q", name, got, want)
		}
	}
}

// Cheap frames end a connection, unless requests come forward meanwhile, or time passes.
func TestCheapFramesAreGivenBackByProgressAndTime(t *testing.T) {
	for name, test := range map[string]struct {
		between func(c *conn)
		ends    bool
	}{
		"nothing":         {func(*conn) {}, true},
		"bytes of a body": {func(c *conn) { c.bounds.progress(1 << 10) }, false},
		"answers":         {func(c *conn) { c.bounds.done() }, false},
		"time":            {func(c *conn) { c.engine.tick.Add(1) }, false},
	} {
		c := newSending()
		for range 3 * maxCheap {
			c.bounds.count(c, 1)
			test.between(c)
		}
		if ended := c.checkFlood() != nil; ended != test.ends {
			t.Errorf("with %s between them: ends %v", name, ended)
		}
	}
}

// The streams that were reset last are known, and older ones are forgotten.
func TestResetStreamsAreKnownForAWhile(t *testing.T) {
	var r resetSet
	for id := uint32(1); id < 1000; id += 2 {
		r.add(id)
		if !r.has(id) || r.has(id+2) {
			t.Fatalf("stream %d", id)
		}
	}
	if r.has(1) || !r.has(999) || r.has(0) {
		t.Error("the set does not hold the last ones")
	}
}
