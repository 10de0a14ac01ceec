// Package policyimport has what all importers of other programs' configurations have in common: the
// result of an import, and how it is printed. An importer is a package beneath it; package main has
// the table of them.
package policyimport

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

// A Note is what a policy does differently from the configuration that it was made of.
type Note struct {
	File string
	Line int // from 1; 0: the file as a whole
	Text string
	// Lost means that the policy cannot express the line at all.
	Lost bool
}

// String returns the note on one line.
func (n Note) String() string {
	if n.Line == 0 {
		return fmt.Sprintf("%s: %s", n.File, n.Text)
	}
	return fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Text)
}

// A Result is an imported policy.
type Result struct {
	Policy weir.Policy
	Notes  []Note // in the order of the configuration
}

// Source returns the policy as a file: the notes as comments, then the limiters. The error is a
// *policyfile.Error if the policy is not valid.
func (r Result) Source(name string) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Imported from %s. Read what changes, then run: weir policy check FILE\n", oneLine(name))
	for _, n := range r.Notes {
		kind := "changed"
		if n.Lost {
			kind = "not imported"
		}
		fmt.Fprintf(&b, "# %s: %s\n", kind, oneLine(n.String()))
	}
	b.WriteString("\n")
	b.Write(policyfile.Marshal(r.Policy))
	source := []byte(b.String())
	_, err := policyfile.Parse(name, source)
	return source, err
}

// oneLine returns a text without line breaks and control characters, which would end a comment.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
}
