package identity

import (
	"math"
	"strconv"
)

// appendClaim appends the value of a claim of the verified session, as claimOf reads it. It
// allocates nothing for a session in the cache.
func (c *Caller) appendClaim(dst []byte, name string) ([]byte, bool) {
	s, _ := c.sessionClaims()
	if s == nil {
		return dst, false
	}
	text, integer, ok := claimOf(s.Claims, name)
	if !ok {
		return dst, false
	}
	if text == "" {
		var digits [20]byte // a string of these would be allocated
		return appendClaimValue(dst, s.owner, string(strconv.AppendInt(digits[:0], integer, 10))), true
	}
	return appendClaimValue(dst, s.owner, text), true
}

// claimOf returns a claim by which callers can be counted or have a plan: a text, or if text is
// empty, an integer, which stands for its decimal digits. ok is false for an empty text and for
// anything else.
func claimOf(in map[string]any, name string) (text string, integer int64, ok bool) {
	value, _ := findClaim(in, name)
	switch v := value.(type) {
	case string:
		return v, 0, v != ""
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= maxClaim {
			return "", int64(v), true
		}
	}
	return "", 0, false
}

// appendClaimValue appends what a claim counts by: the session's issuer or the id of its key, so
// that the same value of two issuers never has one budget, and the value.
func appendClaimValue(dst []byte, owner, value string) []byte {
	return appendNamed(append(dst, owner...), 'v', value)
}

// findClaim returns a claim by its name: the claim of exactly that name, else the one that its dots
// lead to through objects, as org.id to id of org.
func findClaim(in map[string]any, name string) (value any, ok bool) {
	if value, ok = in[name]; ok {
		return value, true
	}
	for i := range len(name) {
		if name[i] != '.' {
			continue
		}
		if object, isObject := in[name[:i]].(map[string]any); isObject {
			if value, ok = findClaim(object, name[i+1:]); ok {
				return value, true
			}
		}
	}
	return nil, false
}

// maxClaim bounds the integers that count, in magnitude: a float64 holds each of them exactly, and
// no other integer is read as one of them (RFC 8259, section 6).
const maxClaim = 1<<53 - 1
