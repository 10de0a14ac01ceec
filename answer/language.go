package answer

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/text/language"
)

const (
	maxAccept = 512 // bytes of Accept-Language that are read
	maxRanges = 8   // languages of it that are looked up, in the order of their weight
	maxRange  = 35  // bytes of one language (RFC 5646, section 4.4.1)
)

// A Negotiator chooses the language of a response from Accept-Language. It caches recent results,
// because browsers send the same value with every request. The cache has a fixed size and the
// constants above bound the work for one value, so a hostile client can use up neither memory nor
// CPU time. Copies share the cache. A Negotiator is safe for concurrent use.
type Negotiator struct {
	tags    []language.Tag // the first is the default
	matcher language.Matcher
	seed    maphash.Seed
	cache   *[256]atomic.Pointer[negotiated]
}

// A negotiated is the result for one value of Accept-Language.
type negotiated struct {
	accept string
	index  int
}

// NewNegotiator returns a Negotiator for the languages of the 429.
func NewNegotiator() Negotiator { return newNegotiator(languages[:]) }

// newNegotiator returns a Negotiator for tags, of which the first is the default.
func newNegotiator(tags []language.Tag) Negotiator {
	return Negotiator{tags, language.NewMatcher(tags), maphash.MakeSeed(), new([256]atomic.Pointer[negotiated])}
}

// Language returns the language that the lines of an Accept-Language field ask for, as a tag such
// as "de". It returns "en" if they ask for no language of the 429.
func (n *Negotiator) Language(lines []string) string { return n.tags[n.index(lines)].String() }

// index returns the index of Language's result in n.tags.
func (n *Negotiator) index(lines []string) int {
	if len(lines) == 0 {
		return 0
	}
	accept := lines[0]
	if len(lines) > 1 {
		accept = strings.Join(lines, ",")
	}
	if len(accept) > maxAccept {
		// Clients put the languages that they prefer first, so the rest would hardly be chosen.
		accept = accept[:maxAccept]
		accept = accept[:max(strings.LastIndexByte(accept, ','), 0)]
	}
	slot := &n.cache[maphash.String(n.seed, accept)%uint64(len(n.cache))]
	if c := slot.Load(); c != nil && c.accept == accept {
		return c.index
	}
	index := n.match(parseAccept(accept))
	slot.Store(&negotiated{strings.Clone(accept), index})
	return index
}

func (n *Negotiator) match(ranges []languageRange) int {
	var tags []language.Tag
	for _, r := range ranges[:min(len(ranges), maxRanges)] {
		if r.name == "*" {
			break // any other language: the default
		}
		// Parse returns the known part of a tag that has an unknown part.
		if tag, _ := language.Parse(r.name); tag != language.Und {
			tags = append(tags, tag)
		}
	}
	if len(tags) == 0 {
		return 0
	}
	_, index, confidence := n.matcher.Match(tags...)
	if confidence == language.No {
		return 0
	}
	return index
}

// A languageRange is one member of Accept-Language.
type languageRange struct {
	name   string
	weight int // in thousandths
}

// parseAccept returns the members of an Accept-Language by falling weight, without those that are
// malformed or have a weight of 0. Among members of one weight "*" comes last (RFC 9110, sections
// 12.4.2 and 12.5.4).
func parseAccept(accept string) []languageRange {
	var ranges []languageRange
	for member := range strings.SplitSeq(accept, ",") {
		name, parameter, weighted := strings.Cut(member, ";")
		r := languageRange{strings.Trim(name, " \t"), 1000}
		if weighted {
			r.weight = weight(strings.Trim(parameter, " \t"))
		}
		if r.weight > 0 && isRange(r.name) {
			ranges = append(ranges, r)
		}
	}
	slices.SortStableFunc(ranges, func(a, b languageRange) int {
		if a.weight == b.weight && (a.name == "*") != (b.name == "*") {
			if a.name == "*" {
				return 1
			}
			return -1
		}
		return cmp.Compare(b.weight, a.weight)
	})
	return ranges
}

func isRange(s string) bool {
	if s == "*" {
		return true
	}
	if s == "" || len(s) > maxRange {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}

// weight reads q=0.123 as thousandths. It returns 0 if s is malformed, which drops the member.
func weight(s string) int {
	if len(s) < 3 || s[0]|0x20 != 'q' || s[1] != '=' || len(s) > len("q=0.123") {
		return 0
	}
	s = s[2:]
	if s[0] != '0' && s[0] != '1' || len(s) > 1 && s[1] != '.' {
		return 0
	}
	n, unit := 1000*int(s[0]-'0'), 100
	for i := 2; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0
		}
		n += unit * int(s[i]-'0')
		unit /= 10
	}
	if n > 1000 {
		return 0
	}
	return n
}
