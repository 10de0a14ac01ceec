package http2

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
)

// allocated returns how many bytes f allocates, on average of many calls.
func allocated(f func()) uint64 {
	const calls = 200
	var before, after runtime.MemStats
	f() // fills the pools
	runtime.ReadMemStats(&before)
	for range calls {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / calls
}

// A body that comes and is read allocates less than its length, however often its buffer grows:
// with the race detector, pools drop a quarter of what they get.
func TestABodyIsBufferedInMemoryThatIsUsedAgain(t *testing.T) {
	c := newStreams(t)
	c.broken = errStopped // nothing is to be written
	s := c.open(1, false)
	s.length = -1
	b := requestBody{x: &exchange{c: c, s: s}}
	frame, p := make([]byte, largestFrame), make([]byte, maxRead)
	if n := allocated(func() {
		for range streamWindow / largestFrame {
			c.receive(t, s, frame, false)
		}
		for len(s.buffer) > 0 {
			if _, _, err := b.takeSome(p); err != nil {
				t.Fatal(err)
			}
		}
		s.left, c.left = streamWindow, connWindow
		putBuffer(c.out)
		c.out = nil
	}); n > streamWindow {
		t.Errorf("a body of %d bytes allocates %d", streamWindow, n)
	}
}

// The body of an answer is written from buffers that are used again, and fills them: four records
// of TLS, without a short one behind them.
func TestABodyFillsBuffersThatAreUsedAgain(t *testing.T) {
	c := newSending()
	c.window = 1 << 40
	s := &stream{c: c, id: 1, window: 1 << 40}
	body := make([]byte, 1<<20)
	if n := allocated(func() {
		for c.out = nil; ; {
			n, err := s.sendable(len(body))
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			c.appendData(1, body[:n], false)
		}
		if len(c.out) != maxBodies {
			t.Fatalf("%d bytes are written at a time, want %d", len(c.out), maxBodies)
		}
		putBuffer(c.out)
	}); n > maxBodies {
		t.Errorf("%d bytes of an answer allocate %d", maxBodies, n)
	}
}

// Whatever comes in pieces of any size, and is read in others, comes out as it was.
func TestABodyComesOutAsItWas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var b, sent, got []byte
		at, scale := 0, 1<<random.IntN(15)
		for range 100 {
			for len(b)-at < streamWindow/2 && random.IntN(3) > 0 {
				p := make([]byte, random.IntN(scale+1))
				for i := range p {
					p[i] = byte(random.Uint32())
				}
				sent = append(sent, p...)
				b, at = appendBody(b, at, p)
			}
			n := random.IntN(len(b) - at + 1)
			got = append(got, b[at:at+n]...)
			if at += n; at == len(b) {
				dropBody(b)
				b, at = nil, 0
			}
		}
		if got = append(got, b[at:]...); !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes come out, which are not the %d that went in", len(got), len(sent))
		}
	}
}
