package target

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirlimit/weir"
)

// Paths selects which form of a path an upstream receives.
type Paths uint8

const (
	// Strict forwards the canonical form (see Canonical), and rejects a path that has none.
	Strict Paths = iota
	// AsSent forwards a path byte for byte, and counts it by its folded form (see
	// Request.ReadAsSent).
	AsSent
)

// The bounds of a path that is forwarded as sent and is not plain. All of its readings are looked
// up, so that what one costs stays below a millisecond.
const (
	maxSent      = 8 << 10
	maxDecodings = 3
)

// ReadAsSent sets Path to the folded form of a path that is forwarded byte for byte: everything
// that some backend decodes is decoded, and every slash separates segments. Two spellings that one
// backend reads as the same path have the same folded form, so they share a budget.
//
// Backends differ in what they decode. Some read "/a%2Fb" as one segment, others as two. Choose
// therefore looks up all readings, and rejects a path whose readings do not lead to the same
// limiter and the same values of the parameters that it counts by.
//
// It sets Raw for a path that no backend can be sent safely:
//   - with a raw blank or "#";
//   - raw or in any decoding, with a control character, a backslash, a dot segment, a segment of
//     parameters or blanks without a name, an escape with a "u", or two slashes at its beginning,
//     after which some backends read a host;
//   - escaped more than three times, or more than once if it is not UTF-8;
//   - of more than 8 KiB, unless it is plain (see IsPlainAsSent).
//
// Then it returns why, a *PathError; else nil. path begins with a slash.
func (r *Request) ReadAsSent(path string) error {
	if IsPlainAsSent(path) {
		r.Path = path
		return nil
	}
	texts, err := decodings(path)
	if err != nil {
		r.Raw = path
		return err
	}
	last := texts[len(texts)-1]
	r.Path, r.Sent = string(last.bytes), path
	for _, t := range texts {
		r.readings = t.appendReadings(r.readings, r.Path)
	}
	return nil
}

// Counted returns the path by which a request is counted whose path is forwarded as sent: its
// folded form, escaped. It leads to the same limiter and the same parameters, read as Strict or
// again as sent. A path whose folded form is not canonical is returned as sent. Sent must be set.
func (r *Request) Counted() string {
	u := url.URL{Path: r.Path}
	if escaped, _, err := Decode(u.EscapedPath()); err == nil {
		return escaped
	}
	return r.Sent
}

// IsPlainAsSent reports whether a path is plain (see IsPlain), and has no segment that is empty
// without its parameters.
func IsPlainAsSent(path string) bool { return IsPlain(path) && !strings.Contains(path, "/;") }

// A text is a path after some decodings.
type text struct {
	bytes []byte
	// since holds for each byte which decoding it results from; 0: it was received.
	since []uint8
}

// decodings returns what backends may decode a path to: once, twice and so on, and last as those
// do that also accept invalid UTF-8.
func decodings(path string) ([]text, error) {
	if len(path) > maxSent {
		return nil, &PathError{path, "is too long to be read in every way"}
	}
	if strings.ContainsAny(path, " #?") {
		return nil, &PathError{path, "has a raw blank, # or ?"}
	}
	t := text{[]byte(path), make([]uint8, len(path))}
	all := []text{t}
	for n := uint8(1); t.hasEscape(); n++ {
		if n > maxDecodings {
			return nil, &PathError{path, "is escaped more than three times"}
		}
		if n > 1 && !utf8.Valid(t.bytes) {
			return nil, &PathError{path, "is not UTF-8, and escaped more than once"}
		}
		if t = t.unescape(n); n == 1 {
			all = all[:0] // every backend decodes once
		}
		all = append(all, t)
	}
	if !utf8.Valid(t.bytes) {
		if t = t.repair(maxDecodings + 1); t.hasEscape() {
			return nil, &PathError{path, "has an escape in invalid UTF-8"}
		}
		all = append(all, t)
	}
	if err := t.problem(); err != nil {
		return nil, &PathError{path, err.Error()}
	}
	return all, nil
}

// hasEscape reports whether some bytes are an escape.
func (t *text) hasEscape() bool {
	for i, c := range t.bytes {
		if c == '%' && len(t.bytes)-i > 2 && areHex(t.bytes[i+1:i+3]) {
			return true
		}
	}
	return false
}

// unescape returns the text with its escapes decoded. It is decoding n.
func (t *text) unescape(n uint8) text {
	b := t.bytes
	var u text
	for i := 0; i < len(b); i++ {
		if b[i] == '%' && len(b)-i > 2 && areHex(b[i+1:i+3]) {
			u.add(n, unhex(b[i+1])<<4|unhex(b[i+2]))
			i += 2
			continue
		}
		u.add(t.since[i], b[i])
	}
	return u
}

// repair returns the text as backends have it that accept invalid UTF-8: longer forms of a
// character as the character, and any other byte as the Latin-1 character. It is decoding n.
func (t *text) repair(n uint8) text {
	b := t.bytes
	var u text
	for i := 0; i < len(b); {
		if r, size := utf8.DecodeRune(b[i:]); r != utf8.RuneError || size > 1 {
			for ; size > 0; size-- {
				u.add(t.since[i], b[i])
				i++
			}
			continue
		}
		r, size := overlong(b[i:])
		u.add(n, utf8.AppendRune(nil, r)...)
		i += size
	}
	return u
}

// overlong returns the character that a form longer than necessary encodes, or the Latin-1
// character of the first byte. b begins with neither ASCII nor valid UTF-8.
func overlong(b []byte) (r rune, size int) {
	switch c := b[0]; {
	case c == 0xc0 || c == 0xc1:
		r, size = rune(c&0x1f), 2
	case c == 0xe0:
		size = 3
	case c == 0xf0:
		size = 4
	}
	if size == 0 || len(b) < size {
		return rune(b[0]), 1
	}
	for _, c := range b[1:size] {
		if c&0xc0 != 0x80 {
			return rune(b[0]), 1
		}
		r = r<<6 | rune(c&0x3f)
	}
	return r, size
}

func (t *text) add(since uint8, b ...byte) {
	for _, c := range b {
		t.bytes, t.since = append(t.bytes, c), append(t.since, since)
	}
}

// problem returns why no backend may be sent a path whose last decoding is t.
func (t *text) problem() error {
	b := t.bytes
	if len(b) > 1 && b[1] == '/' {
		return errors.New("begins with two slashes, after which some backends read a host")
	}
	for i, c := range b {
		switch {
		case c < ' ' || c == 0x7f:
			return errors.New("has a control character")
		case c == 0xc2 && i+1 < len(b) && b[i+1] < 0xa0 && t.since[i] <= maxDecodings: // as UTF-8
			return errors.New("has a control character")
		case c == '\\':
			return errors.New("has a backslash, which some backends read as a slash")
		case c == '%' && isEscape(b[i+1:]):
			return errors.New("has an escape with a u, which some backends decode")
		}
	}
	for segment := range strings.SplitSeq(string(b[1:]), "/") {
		switch name := nameOf(segment); {
		case name == "." || name == "..":
			return errors.New("has a dot segment, which only some backends resolve")
		case name == "" && segment != "":
			return errors.New("has a segment that some backends read as an empty one")
		}
	}
	return nil
}

// other stands in a reading for a slash that does not separate segments, and for a segment without
// a name. No path has this byte.
const other = '\x01'

// appendReadings appends the texts by which routes are found for a backend that decodes the path to
// t: those that some of its slashes separate. Each is there with its empty segments, without them,
// and without those that were empty after fewer decodings, since a server before the backend may
// merge slashes and then decode. It leaves out folded, by which the path is counted.
func (t *text) appendReadings(all []string, folded string) []string {
	latest := uint8(0)
	for i, c := range t.bytes {
		if c == '/' {
			latest = max(latest, t.since[i])
		}
	}
	for since := uint8(0); since <= latest; since++ {
		last := folded
		for merged := int(since); merged >= -1; merged-- {
			if reading := t.reading(since, merged); reading != last {
				all, last = append(all, reading), reading
			}
		}
	}
	return all
}

// reading returns the text as it is after since decodings of its slashes, and merged decodings of
// those that are merged if one follows another; -1: none are.
func (t *text) reading(since uint8, merged int) string {
	named := make([]byte, 0, len(t.bytes)+8)
	for i, c := range t.bytes {
		if c == '/' && t.since[i] > since {
			c = other
		}
		if c == '/' && len(named) > 0 && named[len(named)-1] == '/' && int(max(t.since[i-1], t.since[i])) > merged {
			named = append(named, other)
		}
		named = append(named, c)
	}
	return string(named)
}

// otherReading returns a reading of a path that leads to another limiter than m, which is the match
// of its folded form, or to other values of the parameters that the limiter counts by.
func (r *Request) otherReading(d *weir.Decider, m weir.Match) (reading string, found bool) {
	if r.Sent == "" {
		return r.otherNaming(d, m)
	}
	i := slices.IndexFunc(r.readings, func(reading string) bool { return r.differs(d, m, reading, counting) })
	if i < 0 {
		return "", false
	}
	return r.readings[i], true
}

// differs reports whether one reading leads elsewhere than m. counted maps a parameter's value in
// the reading to the one that is counted.
func (r *Request) differs(d *weir.Decider, m weir.Match, reading string, counted func(string) string) bool {
	as := match(d, r.Method, r.Host, reading)
	l := m.Limiter()
	if l == nil || as.Limiter() != l {
		return as.Limiter() != l
	}
	return slices.ContainsFunc(m.CountedParameters(), func(name string) bool {
		value, ok := m.Parameter(name)
		other, otherOK := as.Parameter(name)
		return ok != otherOK || ok && value != counted(other)
	})
}

// counting returns the value by which a parameter is counted that a backend reads as value: what is
// before its first slash, decoded. It is a function of value, so a backend that reads the same
// value of two requests has them counted by the same one.
func counting(value string) string {
	texts, err := decodings("/" + strings.ReplaceAll(value, string(other), "/"))
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(texts[len(texts)-1].bytes[1:]), "/")
	value, _ = weir.FoldSegment(first)
	return value
}
