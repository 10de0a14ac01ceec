package weir

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// A Key is what a window counts by. Each part has its value from a key source. "ip+agent" has two
// parts.
type Key []Part

// A Part is one part of a Key: the names of key sources in order of preference ("session or ip").
// The window counts by the first source that the caller has. If it has none, the source is "ip".
type Part []string

// addressSource is the source of a part for a caller with none of its alternatives. So anonymous
// callers never share one budget (D16).
const addressSource = "ip"

// everyoneSource has the same value for all callers, so they share one budget. A key with this
// source and others has a problem (see checkReached).
const everyoneSource = "everyone"

// ParseKey parses a key as a policy spells it: parts joined by "+", each with alternatives joined
// by "or". "session or ip+agent" has the parts "session or ip" and "agent".
func ParseKey(s string) (Key, error) {
	var k Key
	for part := range strings.SplitSeq(s, "+") {
		var p Part
		words := strings.Fields(part)
		for i, word := range words {
			if i%2 == 1 {
				if word != "or" {
					return nil, fmt.Errorf("key %q: %q follows where only \"or\" or \"+\" is allowed", s, word)
				}
				continue
			}
			source, err := canonicalSource(word)
			if err != nil {
				return nil, fmt.Errorf("key %q: %w", s, err)
			}
			p = append(p, source)
		}
		if len(words)%2 == 0 {
			return nil, fmt.Errorf("key %q: a key source is missing (a key is source[+source…], a source may have alternatives: session or ip)", s)
		}
		k = append(k, p)
	}
	return k, nil
}

// String returns the key as a policy spells it.
func (k Key) String() string {
	parts := make([]string, len(k))
	for i, p := range k {
		parts[i] = p.String()
	}
	return strings.Join(parts, "+")
}

// String returns the part as a policy spells it.
func (p Part) String() string { return strings.Join(p, " or ") }

// Uses reports whether the key names source.
func (k Key) Uses(source string) bool {
	for _, p := range k {
		for _, s := range p {
			if s == source {
				return true
			}
		}
	}
	return false
}

// maxValue is the max length of a value in a key. A longer value is replaced by its SHA-256, never
// cut (D13).
const maxValue = 256

// A key has length-prefixed parts and is never parsed (D18): the scope, which identifies limiter
// and window, then for each part the name of its source and its value. Two different callers never
// have the same bytes.

// endsMark is set in the length of a window that ends by the clock. No length has this bit.
const endsMark = 1 << 31

// Marks in the length of a scope, beside endsMark and those of a penalty: of a window that counts
// requests, and of slots.
const (
	requestsMark = 1 << 28
	slotsMark    = 1 << 27
)

func (w *Window) mark() int64 {
	switch {
	case w.InFlight:
		return slotsMark
	case w.Requests:
		return requestsMark
	}
	return 0
}

// appendScope appends what identifies a window: its limiter, its length, when it ends (empty: one
// length after its first unit) and its key's spelling.
func appendScope(dst []byte, limiter string, perSeconds int64, ends string, k Key) []byte {
	dst = append(dst, byte(len(limiter)))
	dst = append(dst, limiter...)
	if ends == "" {
		dst = binary.BigEndian.AppendUint32(dst, uint32(perSeconds))
	} else {
		dst = binary.BigEndian.AppendUint32(dst, uint32(perSeconds)|endsMark)
		dst = append(dst, byte(len(ends)))
		dst = append(dst, ends...)
	}
	by := k.String()
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(by)))
	return append(dst, by...)
}

// appendPart appends the first alternative of p that the caller has.
func appendPart(dst []byte, p Part, keys Keys) []byte {
	for _, source := range p {
		if out, ok := appendSource(dst, source, keys); ok {
			return out
		}
	}
	if out, ok := appendSource(dst, addressSource, keys); ok {
		return out
	}
	return append(dst, 0) // no source at all: callers without an address share one budget
}

func appendSource(dst []byte, source string, keys Keys) (out []byte, ok bool) {
	start := len(dst)
	dst = append(dst, byte(len(source)))
	dst = append(dst, source...)
	dst = append(dst, 0, 0) // the value's length, filled in below
	value := len(dst)
	dst, ok = keys.AppendKey(dst, source)
	if !ok {
		return dst[:start], false
	}
	switch n := len(dst) - value; {
	case n > maxValue:
		dst = appendDigest(dst[:value], dst[value:])
		dst[value-2] = 1 << 7 // marks a digest, so that it equals no value
	case n == sha256.Size && isDigested(keys, source):
		dst[value-2] = 1 << 7
	}
	dst[value-2] |= byte((len(dst) - value) >> 8)
	dst[value-1] = byte(len(dst) - value)
	return dst, true
}

// isDigested reports whether keys append the SHA-256 of a value instead of the value, as the saved
// Keys of an earlier request may do. They report it by a method Digested. It is only called for
// values of 32 bytes.
func isDigested(keys Keys, source string) bool {
	d, ok := keys.(interface{ Digested(source string) bool })
	return ok && d.Digested(source)
}

// appendDigest appends the SHA-256 of value to dst. value may be the bytes that follow dst.
func appendDigest(dst, value []byte) []byte {
	sum := sha256.Sum256(value)
	return append(dst, sum[:]...)
}
