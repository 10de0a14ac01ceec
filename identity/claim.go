package identity

import (
	"math"
	"strconv"
)

// appendClaim appends the value of a claim of the verified session. A string counts, and an integer
// by its decimal digits; a claim that is empty or anything else counts as none. It allocates
// nothing for a session in the cache.
func (c *Caller) appendClaim(dst []byte, name string) ([]byte, bool) {
	s, _ := c.sessionClaims()
	if s == nil {
		return dst, false
	}
	value, _ := findClaim(s.Claims, name)
	switch v := value.(type) {
	case string:
		if v != "" {
			return appendClaimValue(dst, s.owner, v), true
		}
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= maxClaim {
			var digits [20]byte // a string of these would be allocated
			return appendClaimValue(dst, s.owner, string(strconv.AppendInt(digits[:0], int64(v), 10))), true
		}
	}
	return dst, false
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
