package gateway

import (
	"sync"
	"sync/atomic"
)

// A copyBuffer is what a body is copied through, with room for a chunk's framing around it. System calls are most of what copying
// costs, so that bodies which come in large pieces get a larger one. A stream of events waits in a small one.
type copyBuffer struct {
	all   []byte
	class copyClass
	of    *copyBuffers
}

type copyClass int8

const (
	smallCopy copyClass = iota
	largeCopy
	hugeCopy // of which there are few
	copyClasses
)

// The room of each class.
var copySizes = [copyClasses]int{4 << 10, 64 << 10, 512 << 10}

const (
	mostHuge = 16 // at a time

	chunkHead = 7 // five hexadecimal digits, enough for a huge one, and the end of the line
	chunkTail = 2
)

// copyBuffers lends them.
type copyBuffers struct {
	pools [copyClasses]sync.Pool
	huge  atomic.Int32 // that are lent
}

// borrow returns a small buffer, whatever is to come: who waits holds no more.
func (b *copyBuffers) borrow() *copyBuffer { return b.lend(smallCopy) }

func (b *copyBuffers) lend(class copyClass) *copyBuffer {
	if class == hugeCopy && b.huge.Add(1) > mostHuge {
		b.huge.Add(-1)
		class = largeCopy
	}
	if p, ok := b.pools[class].Get().(*copyBuffer); ok {
		return p
	}
	return &copyBuffer{all: make([]byte, chunkHead+copySizes[class]+chunkTail), class: class, of: b}
}

func (p *copyBuffer) giveBack() {
	if p.class == hugeCopy {
		p.of.huge.Add(-1)
	}
	p.of.pools[p.class].Put(p)
}

// room is where to read to.
func (p *copyBuffer) room() []byte { return p.all[chunkHead : len(p.all)-chunkTail] }

// after returns the buffer to go on with when n bytes came at once: a larger one when it was full, a small one when it was nearly
// empty, since who waits should not hold much.
func (p *copyBuffer) after(n int) *copyBuffer {
	if p.class != smallCopy && n < len(p.room())/16 {
		p.giveBack()
		return p.of.lend(smallCopy)
	}
	if n < len(p.room()) || p.class == hugeCopy || p.class == largeCopy && p.of.huge.Load() >= mostHuge {
		return p
	}
	p.giveBack()
	return p.of.lend(p.class + 1)
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
