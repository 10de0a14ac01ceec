package gateway

import "sync"

// A copyBuffer is what a body is copied through, with room for a chunk's framing around it. Bodies that come in large pieces get a
// large one: a system call for each piece is most of what copying costs. A stream of events waits in a small one.
type copyBuffer struct {
	all  []byte
	pool *sync.Pool
}

const (
	smallCopy = 4 << 10
	largeCopy = 128 << 10

	chunkHead = 7 // five hexadecimal digits, enough for a large one, and the end of the line
	chunkTail = 2
)

var smallCopies, largeCopies sync.Pool

// borrow returns a buffer for a body of that length; a negative one is not known.
func borrow(length int64) *copyBuffer {
	if length > smallCopy {
		return borrowOf(&largeCopies, largeCopy)
	}
	return borrowOf(&smallCopies, smallCopy)
}

func borrowOf(pool *sync.Pool, size int) *copyBuffer {
	if p, ok := pool.Get().(*copyBuffer); ok {
		return p
	}
	return &copyBuffer{all: make([]byte, chunkHead+size+chunkTail), pool: pool}
}

func (p *copyBuffer) giveBack() { p.pool.Put(p) }

// room is where to read to.
func (p *copyBuffer) room() []byte { return p.all[chunkHead : len(p.all)-chunkTail] }

// after returns the buffer to go on with when n bytes came at once.
func (p *copyBuffer) after(n int) *copyBuffer {
	if p.pool == &largeCopies || n < len(p.room()) {
		return p
	}
	p.giveBack()
	return borrowOf(&largeCopies, largeCopy)
}

// piece returns the n bytes in room as they are sent.
func (p *copyBuffer) piece(n int, chunked bool) []byte {
	if !chunked {
		return p.all[chunkHead : chunkHead+n]
	}
	const digits = "0123456789abcdef"
	for i, rest := chunkHead-3, n; i >= 0; i, rest = i-1, rest>>4 {
		p.all[i] = digits[rest&15]
	}
	p.all[chunkHead-2], p.all[chunkHead-1] = '\r', '\n'
	p.all[chunkHead+n], p.all[chunkHead+n+1] = '\r', '\n'
	from := 0
	for p.all[from] == '0' {
		from++
	}
	return p.all[from : chunkHead+n+chunkTail]
}
