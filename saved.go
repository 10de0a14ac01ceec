package weir

import (
	"crypto/sha256"
	"net/netip"
	"slices"
	"strings"
)

// SavedKeys are the Keys of a caller, saved for a later Inspect, Reset or Grant. They have the key
// sources by which the windows of one limiter counted the caller, the plan that was in force for
// it, and no others. They are read only. Their values are raw and must not be shown.
type SavedKeys []SavedSource

// A SavedSource is the caller's value of one key source.
type SavedSource struct {
	Source string
	Value  []byte
	Digest bool // Value is the SHA-256 of a value of more than 256 bytes (D13)
}

var (
	_ Keys      = SavedKeys(nil)
	_ Addresser = SavedKeys(nil)
	_ Planner   = SavedKeys(nil)
)

// SaveKeys returns the values by which the windows of a limiter count a caller, each source once.
// The result is never nil. With it, the windows have the same keys as with caller.
func SaveKeys(l *Limiter, caller Keys) SavedKeys {
	k := SavedKeys{}
	for _, w := range l.Rows() {
		for _, part := range w.Key {
			source, value := CountedBy(nil, part, caller)
			if source == "" || slices.ContainsFunc(k, func(s SavedSource) bool { return s.Source == source }) {
				continue
			}
			s := SavedSource{Source: source, Value: value}
			switch {
			case len(value) > maxValue:
				s.Value, s.Digest = appendDigest(nil, value), true
			case len(value) == sha256.Size:
				s.Digest = isDigested(caller, source)
			}
			k = append(k, s)
		}
	}
	if who, ok := caller.(Planner); ok && len(l.Plans.List) > 0 {
		if plan, known := who.Plan(l.Plans.By); known {
			if !IsPlanName(plan) { // no policy can list it
				plan = ""
			}
			k = append(k, SavedSource{Source: savedPlan + l.Plans.By, Value: []byte(plan)})
		}
	}
	return k
}

// SaveDenied returns the values by which a limiter that denies a caller knows it: its address, and
// its token if the address alone is not denied. A denied address's credentials are not verified.
// The item of Deny that has the address follows (SavedSource.IsDeny).
func SaveDenied(l *Limiter, caller Keys) SavedKeys {
	k, sources := SavedKeys{}, []string{addressSource}
	item := denyOf(l.Deny, caller)
	if item == "" {
		sources = append(sources, tokenSource)
	}
	for _, source := range sources {
		if value, ok := caller.AppendKey(nil, source); ok && len(value) <= maxValue {
			k = append(k, SavedSource{Source: source, Value: value})
		}
	}
	if item != "" && len(item) <= maxValue {
		k = append(k, SavedSource{Source: savedDeny, Value: []byte(item)})
	}
	return k
}

// denyOf returns the first item of a limiter's Deny that has the caller's address, as Who.For
// spells it. It returns "" if there is none.
func denyOf(deny []Who, caller Keys) string {
	who, ok := caller.(Addresser)
	if !ok {
		return ""
	}
	addr := who.Addr().Unmap().WithZone("")
	for _, w := range deny {
		if w.Token == "" && (w.Networks != nil && w.Networks.Contains(addr) || w.Networks == nil && w.Network.Contains(addr)) {
			return w.For(addr)
		}
	}
	return ""
}

// savedDeny is the Source of the saved item of Deny. No name of a key source ends in a colon.
const savedDeny = "deny:"

// IsDeny reports whether s is the item of Limiter.Deny that denies the caller's address, as Who.For
// spells it, and not a value that the caller was counted by.
func (s *SavedSource) IsDeny() bool { return s.Source == savedDeny }

// savedPlan begins the Source of a saved plan. Plans.By follows, which no name of a key source ends
// in: that has no second colon, and a capital after the first.
const savedPlan = "plan:"

// IsPlan reports whether s is the plan of the caller, and not a value that it was counted by.
func (s *SavedSource) IsPlan() bool {
	by, ok := strings.CutPrefix(s.Source, savedPlan)
	return ok && (by == tokenSource || strings.Contains(by, ":"))
}

// Plan implements Planner: it returns the plan that was in force when the caller was saved. known
// is false if the limiter had no plans then, or read them from elsewhere.
func (k SavedKeys) Plan(by string) (plan string, known bool) {
	for i := range k {
		if from, ok := strings.CutPrefix(k[i].Source, savedPlan); ok && from == by {
			return string(k[i].Value), true
		}
	}
	return "", false
}

// find returns the source of a name, or nil.
func (k SavedKeys) find(source string) *SavedSource {
	for i := range k {
		if k[i].Source == source {
			return &k[i]
		}
	}
	return nil
}

// AppendKey implements Keys.
func (k SavedKeys) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	s := k.find(source)
	if s == nil {
		return dst, false
	}
	return append(dst, s.Value...), true
}

// Digested reports whether AppendKey appends the digest of a value.
func (k SavedKeys) Digested(source string) bool {
	s := k.find(source)
	return s != nil && s.Digest
}

// Addr implements Addresser for a caller that was counted by an IPv4 address, so that exemptions
// and overrides of its network apply. It is the zero Addr for IPv6: there only a network was
// counted, and the caller's smaller networks are unknown.
func (k SavedKeys) Addr() netip.Addr {
	if s := k.find(addressSource); s != nil && len(s.Value) == 4 {
		return netip.AddrFrom4([4]byte(s.Value))
	}
	return netip.Addr{}
}

// String hides the values, so that they are never printed.
func (k SavedKeys) String() string { return "a caller" }

// GoString is String.
func (k SavedKeys) GoString() string { return k.String() }
