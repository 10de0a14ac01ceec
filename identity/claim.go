package identity

import (
	"math"
	"strconv"
	"sync/atomic"
)

// A verifiedSession is a session in the cache, with what limiters have asked for.
type verifiedSession struct {
	SessionClaims
	counted rememberedClaim // by its name, what appendClaim appends; empty: it is no value
	plan    rememberedClaim // by Plans.By, the plan
	noToken atomic.Int64    // when it was last found to be no token, in Unix nanoseconds; or 0
}

// A rememberedClaim is the answer for one claim of a session. Claims do not change, so it holds as
// long as the session does. A policy rarely asks for two: only the first is remembered, and others
// are looked up each time. The zero value remembers nothing. It is safe for concurrent use.
type rememberedClaim struct {
	first atomic.Pointer[claimAnswer]
}

type claimAnswer struct{ name, answer string }

// maxRemembered is the length in bytes of the longest answer that is remembered.
const maxRemembered = 128

// weight counts what may be remembered.
func (s *verifiedSession) weight() int { return s.SessionClaims.weight() + maxRemembered }

// find returns the answer for a claim; ok is false if it is not remembered.
func (r *rememberedClaim) find(name string) (answer string, ok bool) {
	if a := r.first.Load(); a != nil && a.name == name {
		return a.answer, true
	}
	return "", false
}

// isFree reports whether nothing is remembered, and an answer of n bytes could be.
func (r *rememberedClaim) isFree(n int) bool { return n <= maxRemembered && r.first.Load() == nil }

// remember keeps the answer for a claim, unless there is one already.
func (r *rememberedClaim) remember(name, answer string) {
	r.first.CompareAndSwap(nil, &claimAnswer{name, answer})
}

// appendClaim appends the value of a claim of the verified session, as claimOf reads it. For a
// session in the cache it allocates nothing, but once to remember its first claim.
func (c *Caller) appendClaim(dst []byte, name string) ([]byte, bool) {
	s, _ := c.verifiedSession()
	if s == nil {
		return dst, false
	}
	if value, ok := s.counted.find(name); ok {
		return append(dst, value...), value != ""
	}
	start := len(dst)
	dst = appendClaimOf(dst, &s.SessionClaims, name)
	if s.counted.isFree(len(dst) - start) {
		s.counted.remember(name, string(dst[start:]))
	}
	return dst, len(dst) > start
}

// appendClaimOf appends what a claim of s counts by, or nothing if it is no value.
func appendClaimOf(dst []byte, s *SessionClaims, name string) []byte {
	text, integer, ok := claimOf(s.Claims, name)
	if !ok {
		return dst
	}
	if text == "" {
		var digits [20]byte // a string of these would be allocated
		return appendClaimValue(dst, s.owner, string(strconv.AppendInt(digits[:0], integer, 10)))
	}
	return appendClaimValue(dst, s.owner, text)
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
