package weir

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// A Key says what a window counts by: one part after another, each answered by a key source. "ip+agent" has two parts.
type Key []Part

// A Part is one part of a Key: the names of key sources in order of preference. The first that the caller has is
// counted ("session or ip"); where it has none of them, the part falls back to the source "ip".
type Part []string

// fallbackSource stands in for every part that a caller cannot answer: nobody is anonymous enough to share one budget
// with everybody (D16).
const fallbackSource = "ip"

// sharedSource is the same for all callers, so that they share one budget. A key that names it beside others would promise
// something else than it does, which is a problem of the policy.
const sharedSource = "everyone"

// ParseKey reads a key as a policy spells it: parts joined by "+", each with alternatives joined by "or", which binds
// tighter: "session or ip+agent" has the parts "session or ip" and "agent".
func ParseKey(s string) (Key, error) {
	var k Key
	for part := range strings.SplitSeq(s, "+") {
		var p Part
		words := strings.Fields(part)
		for i, word := range words {
			if i%2 == 1 {
				if word != "or" {
					return nil, fmt.Errorf("key %q: %q stands where \"or\" or \"+\" is allowed", s, word)
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

// isName reports whether s can name a key source, or a limiter.
func isName(s string) bool {
	if s == "" || len(s) > 64 || s == "or" {
		return false
	}
	for i, c := range []byte(s) {
		lower := 'a' <= c && c <= 'z'
		if !lower && (i == 0 || !('0' <= c && c <= '9' || c == '-')) {
			return false
		}
	}
	return true
}

// String returns the key as a policy spells it.
func (k Key) String() string {
	parts := make([]string, len(k))
	for i, p := range k {
		parts[i] = strings.Join(p, " or ")
	}
	return strings.Join(parts, "+")
}

// Uses reports whether source is named anywhere in the key.
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

// maxValue is the longest value of a key source that stands in a key as it is; a longer one is replaced by its SHA-256,
// never cut (D13).
const maxValue = 256

// A key is built of length-prefixed parts and never parsed back (D18): the scope, which names limiter and window, then
// for each part its source's name and its value. No two different callers have the same bytes.

// appendScope appends what names a window: its limiter, its length and what it counts by.
func appendScope(dst []byte, limiter string, perSeconds int64, k Key) []byte {
	dst = append(dst, byte(len(limiter)))
	dst = append(dst, limiter...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(perSeconds))
	by := k.String()
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(by)))
	return append(dst, by...)
}

// appendPart appends the first alternative of p that keys can answer.
func appendPart(dst []byte, p Part, keys Keys) []byte {
	for _, source := range p {
		if out, ok := appendSource(dst, source, keys); ok {
			return out
		}
	}
	if out, ok := appendSource(dst, fallbackSource, keys); ok {
		return out
	}
	return append(dst, 0) // no source at all: one budget for whoever has no address either
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
		dst[value-2] = 1 << 7 // a digest is never taken for a value of its length
	case n == sha256.Size && isDigested(keys, source):
		dst[value-2] = 1 << 7
	}
	dst[value-2] |= byte((len(dst) - value) >> 8)
	dst[value-1] = byte(len(dst) - value)
	return dst, true
}

// isDigested reports whether what keys has for source is the SHA-256 of a value rather than the value: Keys that were kept of an
// earlier request may know no more. They say so by a method Digested, which is asked of values of 32 bytes alone.
func isDigested(keys Keys, source string) bool {
	d, ok := keys.(interface{ Digested(source string) bool })
	return ok && d.Digested(source)
}

// appendDigest appends the SHA-256 of value to dst; value may be the bytes right after dst.
func appendDigest(dst, value []byte) []byte {
	sum := sha256.Sum256(value)
	return append(dst, sum[:]...)
}
