// Package netfile reads files of networks, such as the addresses of an office or of a block list.
//
// A file has one network (10.0.0.0/8) or address (192.0.2.7) a line. Blank lines, what follows a
// "#", and a byte order mark before the first line are ignored. Networks may overlap and occur
// twice. [Parse] reads a whole file or rejects it with its problems: half of a block list is not
// one.
package netfile

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/gaissmai/bart"
)

// The bounds of a file.
const (
	MaxSize     = 64 << 20 // bytes
	MaxLines    = 1_000_000
	MaxProblems = 20 // of one Error
)

// A Set is the networks of one file. It does not change, and is safe for concurrent use. A policy
// compares Sets by their pointer.
type Set struct {
	name  string
	table bart.Lite
	lines int
	sum   [sha256.Size]byte
}

// A Problem is one malformed line.
type Problem struct {
	Line    int    // from 1; 0: the file as a whole
	Value   string // the line, truncated if it is long; may be empty
	Message string // what is wrong, with the value, and what is allowed
	// Rule is Message without anything that the file has in it, for those who may not read it.
	Rule string
}

// An Error has the problems of a file, at most MaxProblems.
type Error struct {
	Problems []Problem
	More     int // problems that are left out
}

// Error returns the problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, fmt.Sprintf("line %d: %s", p.Line, p.Message))
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("%d more problems are not shown", e.More))
	}
	return strings.Join(lines, "\n")
}

// Parse reads the text of a file. name is what a policy calls the file, without the "@". The error
// is an *Error. Parse keeps nothing of text.
func Parse(name string, text []byte) (*Set, error) {
	s := &Set{name: name, sum: sha256.Sum256(text)}
	bad := new(Error)
	if len(text) > MaxSize {
		bad.add(0, "", fmt.Sprintf("the file is too large: at most %d MiB are allowed", MaxSize>>20), nil)
		return nil, bad
	}
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	number := 0
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		if number++; number > MaxLines {
			bad.add(0, "", fmt.Sprintf("the file has too many lines: at most %d are allowed", MaxLines), nil)
			break
		}
		line, _, _ = bytes.Cut(line, []byte("#"))
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		network, rule, err := parse(string(line))
		if err != nil {
			bad.add(number, string(line), rule, err)
			continue
		}
		s.table.Insert(network)
		s.lines++
	}
	if len(bad.Problems) > 0 {
		return nil, bad
	}
	return s, nil
}

const form = "a line has one network (10.0.0.0/8) or one address (192.0.2.7), and # begins a comment"

// parse reads one line. If it is malformed, rule is the reason without the line's content.
func parse(line string) (network netip.Prefix, rule string, err error) {
	for _, mark := range []struct{ text, name string }{{",", "comma"}, {";", "semicolon"}} {
		if strings.Contains(line, mark.text) {
			rule = fmt.Sprintf("a %s: write each network on a line of its own, without %ss", mark.name, mark.name)
			return network, rule, fmt.Errorf("%q has %s", excerpt(line), rule)
		}
	}
	if strings.ContainsAny(line, " \t") {
		return network, "more than one word: " + form, fmt.Errorf("%q has more than one word: %s", excerpt(line), form)
	}
	if strings.Contains(line, "%") {
		return network, "an address with a zone: write it without", fmt.Errorf("%q has a zone, which only this machine knows: write the address without it", excerpt(line))
	}
	if !strings.Contains(line, "/") {
		addr, err := netip.ParseAddr(line)
		if err != nil {
			return network, "not an address: " + form, fmt.Errorf("%q is not an address: %s", excerpt(line), form)
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), "", nil
	}
	network, err = netip.ParsePrefix(line)
	switch {
	case err != nil:
		return network, "not a network: " + form, fmt.Errorf("%q is not a network: %s", excerpt(line), form)
	case network.Masked() != network:
		return network, "a network with bits beyond its length", fmt.Errorf("%q has bits beyond its length: write %v, or the address without /%d", excerpt(line), network.Masked(), network.Bits())
	case network.Addr().Is4In6(): // the mask has shown that it is at least 96 bits long
		network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
	}
	return network, "", nil
}

func (e *Error) add(line int, value, rule string, err error) {
	if len(e.Problems) == MaxProblems {
		e.More++
		return
	}
	message := rule
	if err != nil {
		message = err.Error()
	}
	e.Problems = append(e.Problems, Problem{Line: line, Value: excerpt(value), Message: message, Rule: rule})
}

// excerpt returns s for a message: truncated to 40 characters, and without the secret of an API
// token, in case that the file has tokens.
func excerpt(s string) string {
	if i := strings.Index(s, "wpt_"); i >= 0 {
		s = s[:i] + "wpt_…"
	}
	n := 0
	for i := range s {
		if n == 40 {
			s = s[:i] + "…"
			break
		}
		n++
	}
	if !utf8.ValidString(s) {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return s
}

// Contains implements weir.Networks: addr must not be IPv4 mapped into IPv6.
func (s *Set) Contains(addr netip.Addr) bool { return s.table.Contains(addr) }

// String implements weir.Networks.
func (s *Set) String() string { return "@" + s.name }

// Len returns how many lines of the file have a network.
func (s *Set) Len() int { return s.lines }

// Sum returns the SHA-256 of the file, for the version of a policy.
func (s *Set) Sum() []byte { return s.sum[:] }

// Network implements weir.Finder. The result is a line of the file.
func (s *Set) Network(addr netip.Addr) netip.Prefix {
	if !addr.IsValid() {
		return netip.Prefix{}
	}
	network, _ := s.table.LookupPrefixLPM(netip.PrefixFrom(addr, addr.BitLen()))
	return network
}

// HasAll reports whether the file has every IPv4 address, and whether it has every
// IPv6 address. It takes as long as Parse.
func (s *Set) HasAll() (v4, v6 bool) {
	merged := s.table.Clone()
	merged.Aggregate()
	return merged.Get(netip.PrefixFrom(netip.IPv4Unspecified(), 0)), merged.Get(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
}

// ErrName is wrapped by errors about a name that a posted policy may not have.
var ErrName = errors.New("not the name of a file beside the policy file")

// CheckPlain returns an error for a name with a path in it. An operator who posts a policy is not
// always the one who may read this machine's files.
func CheckPlain(name string) error {
	if strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%q: %w: a posted policy names files in the policy file's directory, without a path", excerpt(name), ErrName)
	}
	return nil
}
