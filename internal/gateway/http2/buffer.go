package http2

import (
	"math/bits"
	"sync"
)

// The buffers of requests' bodies are used again, by sizes that double. Without that, a body of
// megabytes would allocate its length several times: a stream's buffer is given up whenever it is
// empty, since a stream may be open for long.
const (
	leastBody = 16 << 10
	bodySizes = 5 // up to streamWindow
)

var bodyPools [bodySizes]sync.Pool

// bodySize returns the index of the smallest size for n bytes.
func bodySize(n int) int { return bits.Len(uint(max(n-1, 0) / leastBody)) }

// appendBody appends p to the buffer of a body, of which b[at:] is not read yet. It returns the
// buffer, and where what is not read begins.
func appendBody(b []byte, at int, p []byte) ([]byte, int) {
	if cap(b)-len(b) >= len(p) {
		return append(b, p...), at
	}
	kept := b[at:]
	n := len(kept) + len(p)
	if n <= cap(b) {
		return append(b[:copy(b, kept)], p...), 0
	}
	i := bodySize(n)
	if i >= bodySizes || n <= leastBody/2 { // a short body has a buffer of its own
		return append(append(make([]byte, 0, max(n, 2*cap(b))), kept...), p...), 0
	}
	var longer []byte
	if known, ok := bodyPools[i].Get().(*[]byte); ok {
		longer = *known
	} else {
		longer = make([]byte, 0, leastBody<<i)
	}
	longer = append(append(longer, kept...), p...)
	dropBody(b)
	return longer, 0
}

// dropBody gives up the buffer of a body. Nothing may refer to it any more.
func dropBody(b []byte) {
	i := bodySize(cap(b))
	if i < bodySizes && cap(b) == leastBody<<i {
		b = b[:0]
		bodyPools[i].Put(&b)
	}
}
