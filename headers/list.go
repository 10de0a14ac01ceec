package headers

import (
	"slices"
	"strings"
	"time"
)

// readList reads the field RateLimit: a list of windows as draft 10 has it, with their limits in
// RateLimit-Policy, or the dictionary of draft 7, limit=100, remaining=50, reset=30. The error is
// ErrAbsent if there is no such field.
func readList(get func(string) []string) (Standing, error) {
	lines := get("Ratelimit")
	if len(lines) == 0 {
		return Standing{}, ErrAbsent
	}
	if text := strings.Join(lines, ","); !strings.Contains(text, `"`) {
		return readDictionary(text)
	}
	members, err := ParseLimits(lines)
	if err != nil {
		return Standing{}, err
	}
	policies, err := ParsePolicy(get("Ratelimit-Policy"))
	if err != nil {
		policies = nil // the limits are unknown, the rest is still known
	}
	var best Standing
	found := false
	for _, m := range members {
		if slices.ContainsFunc(policies, func(p Member) bool { return p.Name == m.Name && p.Concurrent }) {
			continue // requests at the same time are no budget
		}
		s := Standing{Name: m.Name, Remaining: m.Remaining, After: time.Duration(min(m.Reset, maxLeft)) * time.Second}
		for _, p := range policies {
			if p.Name == m.Name {
				s.Limit = p.Quota
			}
		}
		if !found || s.Remaining < best.Remaining || s.Remaining == best.Remaining && s.After > best.After {
			best, found = s, true
		}
	}
	if !found {
		return Standing{}, ErrAbsent
	}
	return best, nil
}

// maxLeft bounds the seconds of a Reset, so that they fit a time.Duration: a century.
const maxLeft = 100 * 365 * 24 * 3600

// readDictionary reads the RateLimit field of draft 7.
func readDictionary(text string) (Standing, error) {
	values := map[string]int64{}
	for part := range strings.SplitSeq(text, ",") {
		item, _, _ := strings.Cut(part, ";")
		key, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		n, err := ParseInt(RateLimit, value)
		if err != nil {
			return Standing{}, &FieldError{Field: RateLimit, Value: text, Problem: "is neither a list of windows nor limit=…, remaining=…, reset=…"}
		}
		values[key] = n
	}
	limit, hasLimit := values["limit"]
	remaining, hasRemaining := values["remaining"]
	reset, hasReset := values["reset"]
	if !hasLimit || !hasRemaining || !hasReset || limit < 1 {
		return Standing{}, &FieldError{Field: RateLimit, Value: text, Problem: "lacks one of limit, remaining and reset, or its limit is 0"}
	}
	return Standing{Limit: limit, Remaining: remaining, After: time.Duration(min(reset, maxLeft)) * time.Second}, nil
}
