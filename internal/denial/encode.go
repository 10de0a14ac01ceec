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
//	limit, count, at, reset-at              varints
//	2·callers + partial                     uvarint; then for each
//	  source                                length and bytes
//	  2·length + digest, bytes
//	zeros up to a multiple of 16
//
// where lengths are uvarints.
const layout = 1

const (
	block = 16 // what the plaintext is padded to, so that an id's length tells little of who was refused
	// mostPlain bounds the plaintext, in bytes: an id of it has 1,527 characters.
	mostPlain = 1104
	mostText  = 160 // of a limiter's name, a window's spelling or a policy's version, in bytes
	mostName  = 64  // of a key source, as everywhere
	longest   = 256 // of a value, in bytes: a longer one is a digest (D13)
)

// encode returns the facts as bytes, padded. Callers that have no room are left out, and said to be.
func (f *Facts) encode() []byte {
	dst := append(make([]byte, 0, 192), layout)
	for _, s := range [...]string{f.Limiter, f.Window, f.Policy} {
		dst = appendText(dst, clip(s))
	}
	for _, n := range [...]int64{f.Limit, f.Count, f.At, f.Reset - f.At} {
		dst = binary.AppendVarint(dst, n)
	}
	fit, partial := f.fitting(mostPlain - len(dst) - 1)
	head := uint64(len(fit)) << 1
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

// fitting returns as many callers as fit into room bytes, and whether any are left out.
func (f *Facts) fitting(room int) (fit []Caller, partial bool) {
	const lengths = 1 + 2 // of a source, of a value
	for i := range f.Callers {
		c := &f.Callers[i]
		room -= lengths + len(c.Source) + len(c.Value)
		if room < 0 || i == mostCallers {
			return f.Callers[:i], true
		}
	}
	return f.Callers, f.Partial
}

// mostCallers keeps the number of callers in one byte.
const mostCallers = 63

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// clip cuts what only an operator can make so long.
func clip(s string) string {
	const ellipsis = "..."
	if len(s) <= mostText {
		return s
	}
	return s[:mostText-len(ellipsis)] + ellipsis
}

var errLayout = errors.New("what it holds does not read as the facts of a refusal")

// parseFacts reads what encode wrote, and nothing else.
func parseFacts(plain []byte) (Facts, error) {
	if len(plain) == 0 {
		return Facts{}, errLayout
	}
	if plain[0] != layout {
		return Facts{}, fmt.Errorf("%w (layout %d, known is %d)", errLater, plain[0], layout)
	}
	r := reader{rest: plain[1:]}
	var f Facts
	f.Limiter, f.Window, f.Policy = r.text(mostText), r.text(mostText), r.text(mostText)
	f.Limit, f.Count, f.At = r.varint(), r.varint(), r.varint()
	f.Reset = f.At + r.varint()
	head := r.uvarint()
	f.Partial = head&1 == 1
	if head>>1 > mostCallers {
		return Facts{}, errLayout
	}
	for range head >> 1 {
		c := Caller{Source: r.text(mostName)}
		n := r.uvarint()
		c.Digest = n&1 == 1
		c.Value = append(c.Value, r.bytes(n>>1, longest)...)
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

// A reader takes an encoding apart; once it is bad, everything is empty.
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

func (r *reader) text(most uint64) string { return string(r.bytes(r.uvarint(), most)) }

func (r *reader) bytes(n, most uint64) []byte {
	if r.bad || n > most || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// isPadding reports whether what is left is zeros, and no more of them than a block needs.
func (r *reader) isPadding() bool {
	for _, b := range r.rest {
		if b != 0 {
			return false
		}
	}
	return len(r.rest) < block
}
