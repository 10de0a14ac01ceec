package wire

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// ErrFull is returned if as many bytes are buffered as may be.
var ErrFull = errors.New("as many bytes as allowed are buffered already")

// A Reader holds what was received on one connection and is not used yet. It has a buffer only
// while something is in it, or while Fill waits, so a connection between two requests costs little.
// Readers share their buffers, and one that fills up is replaced by a longer one. A Reader is not
// safe for concurrent use, and must not be copied after its first use.
type Reader struct {
	_     noCopy
	src   io.Reader
	buf   []byte // nil while nothing is buffered
	r, w  int    // buf[r:w] is buffered
	seen  int    // so many of the buffered bytes hold no end of a head
	after bool   // an empty line before the request line was skipped
	err   error  // came with the last bytes, and is returned by the next read
}

// The sizes of the shared buffers. Longer ones are allocated.
const size0, size1, size2, size3 = 2 << 10, 4 << 10, 16 << 10, 64 << 10

var (
	pool0 = sync.Pool{New: func() any { return new([size0]byte) }}
	pool1 = sync.Pool{New: func() any { return new([size1]byte) }}
	pool2 = sync.Pool{New: func() any { return new([size2]byte) }}
	pool3 = sync.Pool{New: func() any { return new([size3]byte) }}
)

// noCopy makes go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Reset makes the Reader read from src, with nothing buffered. After Reset(nil) it refers to
// nothing.
func (r *Reader) Reset(src io.Reader) {
	r.release()
	r.src, r.r, r.w, r.seen, r.after, r.err = src, 0, 0, 0, false, nil
}

// Buffered returns what was received and is not used yet. It is valid until the next call.
func (r *Reader) Buffered() []byte { return r.buf[r.r:r.w] }

// Len returns how many bytes are buffered.
func (r *Reader) Len() int { return r.w - r.r }

// Fill reads once from the connection, and appends to what is buffered. It buffers limit bytes at
// most, and returns ErrFull if so many are buffered already. The caller has to judge an io.EOF in
// the middle of a head.
func (r *Reader) Fill(limit int) error {
	if r.Len() >= limit {
		return ErrFull
	}
	r.room(limit)
	n, err := r.read(r.buf[r.w:min(len(r.buf), r.r+limit)])
	r.w += n
	if r.w == 0 {
		r.release()
	}
	return err
}

// Head removes the head of a request from what is buffered and returns it: everything to the first
// empty line, which is part of it. It returns an empty string if that has not come yet. One empty
// line before the request line is skipped (RFC 9112, section 2.2). Lines that end with bare line
// feeds count too, so that a client that sends them is not waited for: Parse refuses them. For the
// same reason what begins with a byte that begins no request line, as TLS does, is returned as far
// as it has come.
func (r *Reader) Head() string {
	if !r.after {
		if b := r.Buffered(); len(b) >= 2 && b[0] == '\r' && b[1] == '\n' {
			r.Discard(2)
			r.after = true
		}
	}
	head := r.ResponseHead()
	if b := r.Buffered(); head == "" && len(b) > 0 && b[0] != '\r' && classes[b[0]]&inToken == 0 {
		head = string(b)
		r.Discard(len(b))
	}
	if head != "" {
		r.after = false
	}
	return head
}

// ResponseHead is Head for the head of a response, before which nothing is skipped.
func (r *Reader) ResponseHead() string {
	n := r.section()
	if n == 0 {
		return ""
	}
	head := string(r.Buffered()[:n])
	r.Discard(n)
	return head
}

// AppendResponseHead is ResponseHead into a buffer of the caller's. It appends the head to dst, or
// nothing if that has not come.
func (r *Reader) AppendResponseHead(dst []byte) []byte {
	n := r.section()
	if n == 0 {
		return dst
	}
	dst = append(dst, r.Buffered()[:n]...)
	r.Discard(n)
	return dst
}

// section returns the length of what is buffered up to the first empty line, that included; 0 if
// that has not come. It looks at each byte a few times at most, however slowly they come.
func (r *Reader) section() int {
	b := r.Buffered()
	if n := emptyLine(b); n > 0 {
		return n
	}
	for {
		i := bytes.IndexByte(b[r.seen:], '\n')
		if i < 0 {
			r.seen = len(b)
			return 0
		}
		i += r.seen
		if n := emptyLine(b[i+1:]); n > 0 {
			return i + 1 + n
		}
		if len(b)-i <= 2 {
			r.seen = i // the bytes that decide have not come
			return 0
		}
		r.seen = i + 1
	}
}

// emptyLine returns the length of the empty line that b begins with, or 0.
func emptyLine(b []byte) int {
	switch {
	case len(b) > 0 && b[0] == '\n':
		return 1
	case len(b) > 1 && b[0] == '\r' && b[1] == '\n':
		return 2
	}
	return 0
}

// Discard drops n buffered bytes. A buffer that is used up is released.
func (r *Reader) Discard(n int) {
	r.r, r.seen = r.r+n, 0
	if r.r >= r.w {
		r.release()
		r.r, r.w = 0, 0
	}
}

// Read returns what is buffered first, then reads from the connection directly.
func (r *Reader) Read(p []byte) (int, error) {
	if r.Len() > 0 {
		n := copy(p, r.Buffered())
		r.Discard(n)
		return n, nil
	}
	if len(p) == 0 {
		return 0, nil
	}
	return r.read(p)
}

// read reads once from the connection. It returns bytes or an error, never both and never neither.
func (r *Reader) read(p []byte) (int, error) {
	if err := r.err; err != nil {
		r.err = nil
		return 0, err
	}
	for range 100 {
		n, err := r.src.Read(p)
		if n > 0 {
			r.err = err
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, io.ErrNoProgress
}

// room makes room after what is buffered, which must be less than limit.
func (r *Reader) room(limit int) {
	n := r.Len()
	var other []byte
	switch {
	case r.buf == nil:
		r.buf = buffer(0, limit)
		return
	case len(r.buf) > size0 && r.r > 0 && n <= size0/2: // the rest of a burst
		other = buffer(0, limit)
	case r.r > 0 && len(r.buf)-r.w < len(r.buf)/4:
		copy(r.buf, r.Buffered())
		r.r, r.w = 0, n
		return
	case r.w == len(r.buf):
		other = buffer(len(r.buf), limit)
	default:
		return
	}
	copy(other, r.Buffered())
	r.release()
	r.buf, r.r, r.w = other, 0, n
}

// buffer returns a buffer larger than so many bytes. limit is how many it will have to hold at
// most.
func buffer(than, limit int) []byte {
	switch {
	case than < size0:
		return pool0.Get().(*[size0]byte)[:]
	case than < size1:
		return pool1.Get().(*[size1]byte)[:]
	case than < size2:
		return pool2.Get().(*[size2]byte)[:]
	case than < size3:
		return pool3.Get().(*[size3]byte)[:]
	}
	return make([]byte, min(2*than, limit))
}

// release returns the buffer to its pool.
func (r *Reader) release() {
	switch buf := r.buf; len(buf) {
	case size0:
		pool0.Put((*[size0]byte)(buf))
	case size1:
		pool1.Put((*[size1]byte)(buf))
	case size2:
		pool2.Put((*[size2]byte)(buf))
	case size3:
		pool3.Put((*[size3]byte)(buf))
	}
	r.buf = nil
}
