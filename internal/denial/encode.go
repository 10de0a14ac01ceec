package denial

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// The plaintext of an id is
//
//	version of this layout, one byte
//	limiter, window, policy                 length and bytes
//	limit, count, at, reset-at              varints; the last is 0 for a limit in flight,
//	                                        and limit is 0 too if the caller is denied
//	4·callers + 2·penalty + partial         uvarint; then for each
//	  source                                length and bytes
//	  2·length + digest, bytes
//	zeros up to a multiple of 16
//
// where lengths are uvarints.
const layout = 1

const (
	// the plaintext is padded to a multiple, so that its length reveals little about the caller
	block = 16
	// maxPlain bounds the plaintext, in bytes. The longest id has 1,527 characters.
	maxPlain = 1104
	maxText  = 160 // bytes of a limiter's name, a window's text or a policy's version
	// Bytes of a key source's name, which may be followed by a field's: header:X-Api-Key.
	maxName  = 127
	maxValue = 256 // bytes of a value; a longer one is replaced by its SHA-256
)

// encode returns the facts as padded bytes. If not all callers fit, the rest is left out and the
// facts are marked as partial.
func (f *Facts) encode() []byte {
	dst := append(make([]byte, 0, 192), layout)
	for _, s := range [...]string{f.Limiter, f.Window, f.Policy} {
		dst = appendText(dst, clip(s))
	}
	left := f.Reset - f.At // of a window never 0: one that ends is open again
	limit := f.Limit
	if f.InFlight || f.Denied {
		left = 0
	}
	if f.Denied {
		limit = 0
	}
	for _, n := range [...]int64{limit, f.Count, f.At, left} {
		dst = binary.AppendVarint(dst, n)
	}
	fit, partial := f.fitting(maxPlain - len(dst) - 1)
	head := uint64(len(fit)) << 2
	if f.Penalty {
		head |= 2
	}
	if partial {
		head |= 1
	}
	dst = binary.AppendUvarint(dst, head)
	for i := range fit {
		c := &fit[i]
		dst = appendText(dst, c.Source)
		n := uint64(len(c.Value)) << 1
		if c.Digest {
			n |= 1
		}
		dst = append(binary.AppendUvarint(dst, n), c.Value...)
	}
	for len(dst)%block != 0 {
		dst = append(dst, 0)
	}
	return dst
}

// fitting returns the callers that fit into room bytes, and whether any are left out.
func (f *Facts) fitting(room int) (fit []Caller, partial bool) {
	const lengths = 1 + 2 // bytes of the lengths of a source and of a value
	for i := range f.Callers {
		c := &f.Callers[i]
		room -= lengths + len(c.Source) + len(c.Value)
		if room < 0 || i == maxCallers {
			return f.Callers[:i], true
		}
	}
	return f.Callers, f.Partial
}

// maxCallers keeps the number of callers within one byte.
const maxCallers = 31

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// clip shortens a text that is too long, which only an operator can have written.
func clip(s string) string {
	const ellipsis = "..."
	if len(s) <= maxText {
		return s
	}
	return s[:maxText-len(ellipsis)] + ellipsis
}

var errLayout = errors.New("its content is not the facts of a refusal")

// parseFacts parses what encode wrote.
func parseFacts(plain []byte) (Facts, error) {
	if len(plain) == 0 {
		return Facts{}, errLayout
	}
	if plain[0] != layout {
		return Facts{}, fmt.Errorf("%w (layout %d; only %d is supported)", errLater, plain[0], layout)
	}
	r := reader{rest: plain[1:]}
	var f Facts
	f.Limiter, f.Window, f.Policy = r.text(maxText), r.text(maxText), r.text(maxText)
	f.Limit, f.Count, f.At = r.varint(), r.varint(), r.varint()
	if left := r.varint(); left == 0 {
		f.InFlight, f.Denied = f.Limit != 0, f.Limit == 0
	} else {
		f.Reset = f.At + left
	}
	head := r.uvarint()
	f.Partial, f.Penalty = head&1 == 1, head&2 == 2
	if head>>2 > maxCallers {
		return Facts{}, errLayout
	}
	for range head >> 2 {
		c := Caller{Source: r.text(maxName)}
		n := r.uvarint()
		c.Digest = n&1 == 1
		c.Value = append(c.Value, r.bytes(n>>1, maxValue)...)
		if c.Digest && len(c.Value) != sha256.Size {
			return Facts{}, errLayout
		}
		f.Callers = append(f.Callers, c)
	}
	if r.bad || !r.isPadding() {
		return Facts{}, errLayout
	}
	return f, nil
}

// A reader parses an encoding. Once it is bad, all its methods return zero values.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.rest)
	return took(r, n, size)
}

func (r *reader) varint() int64 {
	n, size := binary.Varint(r.rest)
	return took(r, n, size)
}

func took[N int64 | uint64](r *reader, n N, size int) N {
	if r.bad || size <= 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text(limit uint64) string { return string(r.bytes(r.uvarint(), limit)) }

func (r *reader) bytes(n, limit uint64) []byte {
	if r.bad || n > limit || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// isPadding reports whether the rest is zeros, and shorter than a block.
func (r *reader) isPadding() bool {
	for _, b := range r.rest {
		if b != 0 {
			return false
		}
	}
	return len(r.rest) < block
}
