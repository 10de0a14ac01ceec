package fast

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/wire"
)

// A copyBuffer is what a body is copied through, with room for a chunk's framing around it. System
// calls are most of the cost of copying, so a body that comes in large pieces gets a larger buffer.
// A stream of events waits with a small one.
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
	maxHuge = 16 // at a time

	chunkHead = 7 // five hexadecimal digits, enough for a huge one, and the end of the line
	chunkTail = 2
)

// copyBuffers lends them.
type copyBuffers struct {
	pools [copyClasses]sync.Pool
	huge  atomic.Int32 // that are lent
}

// borrow returns a small buffer, however long the body: a copy that waits should not hold more.
func (b *copyBuffers) borrow() *copyBuffer { return b.lend(smallCopy) }

func (b *copyBuffers) lend(class copyClass) *copyBuffer {
	if class == hugeCopy && b.huge.Add(1) > maxHuge {
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

// room is the part of the buffer to read into.
func (p *copyBuffer) room() []byte { return p.all[chunkHead : len(p.all)-chunkTail] }

// after returns the buffer to continue with after n bytes came at once: a larger one if this one
// was full, a small one if it was nearly empty.
func (p *copyBuffer) after(n int) *copyBuffer {
	if p.class != smallCopy && n < len(p.room())/16 {
		p.giveBack()
		return p.of.lend(smallCopy)
	}
	if n < len(p.room()) || p.class == hugeCopy || p.class == largeCopy && p.of.huge.Load() >= maxHuge {
		return p
	}
	p.giveBack()
	return p.of.lend(p.class + 1)
}

// copy copies until from ends, in chunks if how asks for them, without the last one. It returns how
// many bytes went out, and the error of either side.
func (b *copyBuffers) copy(to io.Writer, from io.Reader, how framing) (written int64, received, sent error) {
	p := b.borrow()
	defer func() { p.giveBack() }()
	for {
		n, err := from.Read(p.room())
		if n > 0 {
			written += int64(n)
			if _, err := to.Write(p.piece(n, how)); err != nil {
				return written, nil, err
			}
			p = p.after(n)
		}
		if errors.Is(err, io.EOF) {
			return written, nil, nil
		}
		if err != nil {
			return written, err, nil
		}
	}
}

// A framing is how a body is sent.
type framing uint8

const (
	plain framing = iota
	chunked
)

// appendLastChunk appends the end of a chunked body, with those of its trailers that pass.
func appendLastChunk(b []byte, trailers []wire.Field, passes func(name string) bool) []byte {
	b = append(b, "0\r\n"...)
	for _, f := range trailers {
		if passes(f.Name) {
			b = wire.AppendField(b, f.Name, f.Value)
		}
	}
	return append(b, "\r\n"...)
}

// piece returns the n bytes in room, framed as they are sent.
func (p *copyBuffer) piece(n int, how framing) []byte {
	if how == plain {
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
