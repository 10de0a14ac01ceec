package wire

import "io"

// A Reader holds what came in on one connection and is not used yet. It holds a buffer only while there is something in it,
// so that connections between two requests cost little: the first bytes come into a small one of its own, longer heads into
// buffers that all Readers share. It is not safe for concurrent use.
type Reader struct {
	src   io.Reader
	buf   []byte // what is there is buf[r:w]
	r, w  int
	small [2 << 10]byte
}

// Reset makes the Reader one of src, with nothing in it.
func (r *Reader) Reset(src io.Reader) { panic("not yet") }

// Buffered returns what came in and is not used yet: valid until the next call.
func (r *Reader) Buffered() []byte { return r.buf[r.r:r.w] }

// Fill reads once from the connection, behind what is buffered. It makes room up to most bytes buffered, and returns
// ErrFull where these are there already. An io.EOF in the middle of a head is the caller's to judge.
func (r *Reader) Fill(most int) error { panic("not yet") }

// Head cuts the head of one message out of what is buffered: everything to the first empty line, which is part of it. It is
// empty where that has not come yet. One empty line before a request line is skipped (RFC 9112, section 2.2). A bare line feed
// does not end anything; Parse refuses it.
func (r *Reader) Head() string { panic("not yet") }

// Discard drops n buffered bytes.
func (r *Reader) Discard(n int) { panic("not yet") }

// Read gives what is buffered first, then reads from the connection directly. A buffer that is used up goes back.
func (r *Reader) Read(p []byte) (int, error) { panic("not yet") }
