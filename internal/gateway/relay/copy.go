package relay

import (
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/wire"
)

// A Buffer is what a body is copied through, with room for a chunk's framing around it. System
// calls are most of the cost of copying, so a body that comes in large pieces gets a larger buffer.
// A stream of events waits with a small one.
type Buffer struct {
	all   []byte
	class copyClass
	of    *Buffers
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

// Buffers lends them. The zero value is ready for use. It is safe for concurrent use.
type Buffers struct {
	pools [copyClasses]sync.Pool
	huge  atomic.Int32 // that are lent
}

// Borrow returns a small buffer, however long the body: a copy that waits should not hold more.
func (b *Buffers) Borrow() *Buffer { return b.lend(smallCopy) }

func (b *Buffers) lend(class copyClass) *Buffer {
	if class == hugeCopy && b.huge.Add(1) > maxHuge {
		b.huge.Add(-1)
		class = largeCopy
	}
	if p, ok := b.pools[class].Get().(*Buffer); ok {
		return p
	}
	return &Buffer{all: make([]byte, chunkHead+copySizes[class]+chunkTail), class: class, of: b}
}

// GiveBack ends the use of the buffer.
func (p *Buffer) GiveBack() {
	if p.class == hugeCopy {
		p.of.huge.Add(-1)
	}
	p.of.pools[p.class].Put(p)
}

// Room is the part of the buffer to read into.
func (p *Buffer) Room() []byte { return p.all[chunkHead : len(p.all)-chunkTail] }

// After returns the buffer to continue with after n bytes came at once: a larger one if this one
// was full, a small one if it was nearly empty.
func (p *Buffer) After(n int) *Buffer {
	if p.class != smallCopy && n < len(p.Room())/16 {
		p.GiveBack()
		return p.of.lend(smallCopy)
	}
	if n < len(p.Room()) || p.class == hugeCopy || p.class == largeCopy && p.of.huge.Load() >= maxHuge {
		return p
	}
	p.GiveBack()
	return p.of.lend(p.class + 1)
}

// Copy copies until from ends, in chunks if how asks for them, without the last one. It returns how
// many bytes went out, and the error of either side.
func (b *Buffers) Copy(to io.Writer, from io.Reader, how Framing) (written int64, received, sent error) {
	p := b.Borrow()
	defer func() { p.GiveBack() }()
	for {
		n, err := from.Read(p.Room())
		if n > 0 {
			written += int64(n)
			if _, err := to.Write(p.piece(n, how)); err != nil {
				return written, nil, err
			}
			p = p.After(n)
		}
		if errors.Is(err, io.EOF) {
			return written, nil, nil
		}
		if err != nil {
			return written, err, nil
		}
	}
}

// A Framing is how a body is sent.
type Framing uint8

// The framings: the bytes alone, or in chunks (RFC 9112, section 7.1).
const (
	Plain Framing = iota
	Chunked
)

// AppendLastChunk appends the end of a chunked body, with those of its trailers that pass.
func AppendLastChunk(b []byte, trailers []wire.Field, passes func(name string) bool) []byte {
	b = append(b, "0\r\n"...)
	for _, f := range trailers {
		if passes(f.Name) {
			b = wire.AppendField(b, f.Name, f.Value)
		}
	}
	return append(b, "\r\n"...)
}

// AppendAnnounced appends a Trailer field without the names that will not be passed on.
func AppendAnnounced(b []byte, list string, drops func(string) bool) []byte {
	begun := false
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.Trim(name, " \t"); !wire.IsToken(name) || drops(name) {
			continue
		}
		if b = append(b, ", "...); !begun {
			b = append(b[:len(b)-2], "Trailer: "...)
		}
		b, begun = append(b, name...), true
	}
	if begun {
		b = append(b, "\r\n"...)
	}
	return b
}

// piece returns the n bytes in room, framed as they are sent.
func (p *Buffer) piece(n int, how Framing) []byte {
	if how == Plain {
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
