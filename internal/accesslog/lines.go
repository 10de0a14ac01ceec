package accesslog

import (
	"bytes"
	"errors"
	"io"
)

const (
	blockSize  = 256 << 10 // bytes
	smallBlock = 32 << 10  // for so many files that all might be open at once
	manyFiles  = 256
	maxLine    = 1 << 20 // bytes; a longer line is malformed
	shown      = 200     // bytes kept of a malformed line
)

// A block is text that lines point into. It is reused when no line refers to it.
type block struct {
	text []byte
	refs int  // lines that point into it
	past bool // no more is read into it
}

// blocks are the pool of blocks of one Reader.
type blocks struct {
	size   int // bytes of a block
	free   []*block
	pinned int // bytes of blocks with past set
}

func (p *blocks) take(size int) *block {
	if n := len(p.free); n > 0 && size <= p.size {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		b.past = false
		return b
	}
	return &block{text: make([]byte, max(size, p.size))}
}

// leave marks a block into which no more is read.
func (p *blocks) leave(b *block) {
	b.past = true
	p.pinned += len(b.text)
	if b.refs == 0 {
		p.reuse(b)
	}
}

// release drops a line's reference to its block.
func (p *blocks) release(b *block) {
	if b.refs--; b.refs == 0 && b.past {
		p.reuse(b)
	}
}

func (p *blocks) reuse(b *block) {
	p.pinned -= len(b.text)
	if len(b.text) == p.size && len(p.free) < 64 {
		p.free = append(p.free, b)
	}
}

// errLong means that a line is too long. next returns it with the line's beginning.
var errLong = errors.New("longer than 1 MiB")

// A lines reader splits text into lines. It buffers one line at most.
type lines struct {
	from       io.Reader
	pool       *blocks
	in         *block
	start, end int   // the text read and not yet returned
	number     int64 // number of the line last returned, from 1
	err        error // error of from; io.EOF at its end
	whole      bool  // the line last returned ended in a line feed
}

// next returns the next line without its line end. It is in block l.in and valid while that is
// referred to. After the last line, which may have no line end, it returns io.EOF or the error with
// which reading ended.
func (l *lines) next() ([]byte, error) {
	if l.in == nil {
		l.in = l.pool.take(l.pool.size)
	}
	for searched := 0; ; {
		if i := bytes.IndexByte(l.in.text[l.start+searched:l.end], '\n'); i >= 0 {
			line := l.in.text[l.start : l.start+searched+i]
			l.start += searched + i + 1
			return l.give(line, true)
		}
		searched = l.end - l.start
		if l.err != nil {
			if searched == 0 {
				return nil, l.err
			}
			line := l.in.text[l.start:l.end]
			l.start = l.end
			return l.give(line, false)
		}
		if searched > maxLine {
			return l.skip()
		}
		l.fill()
	}
}

func (l *lines) give(line []byte, whole bool) ([]byte, error) {
	l.number++
	l.whole = whole
	if l.number == 1 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // a byte order mark
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if len(line) > maxLine {
		return line[:shown], errLong
	}
	return line, nil
}

// skip skips a line that is too long, in constant memory.
func (l *lines) skip() ([]byte, error) {
	head := bytes.Clone(l.in.text[l.start : l.start+shown])
	l.number++
	l.whole = true
	for l.err == nil {
		l.start = l.end // drop what was read
		l.fill()
		if i := bytes.IndexByte(l.in.text[l.start:l.end], '\n'); i >= 0 {
			l.start += i + 1
			return head, errLong
		}
	}
	l.start = l.end
	return head, errLong
}

// fill makes room and reads once.
func (l *lines) fill() {
	left := l.end - l.start
	if left == 0 && l.in.refs == 0 {
		l.start, l.end = 0, 0
	}
	if len(l.in.text)-l.end < l.pool.size/16 {
		next := l.in
		if l.in.refs > 0 || 2*left > len(l.in.text) {
			size := l.pool.size
			for size < 2*left {
				size *= 2
			}
			next = l.pool.take(size)
		}
		copy(next.text, l.in.text[l.start:l.end])
		if next != l.in {
			l.pool.leave(l.in)
			l.in = next
		}
		l.start, l.end = 0, left
	}
	for tries := 0; ; tries++ {
		n, err := l.from.Read(l.in.text[l.end:])
		l.end += n
		if err != nil {
			l.err = err
			return
		}
		if n > 0 {
			return
		}
		if tries == 100 {
			l.err = io.ErrNoProgress
			return
		}
	}
}

// close returns the block to the pool.
func (l *lines) close() {
	if l.in != nil {
		l.pool.leave(l.in)
		l.in = nil
	}
}
