// Package policyimport has what all importers of other programs' configurations have in common: the
// result of an import, and how it is printed. An importer is a package beneath it; package main has
// the table of them.
package policyimport

import (
	"fmt"
	"strings"
	"time"

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
	// Unreached names the lines that answer requests before a limit counts them. They can be the
	// reason that a policy has no limiters.
	Unreached []Note
}

// Lost returns the notes about what the policy cannot express.
func (r *Result) Lost() (all []Note) {
	for _, n := range r.Notes {
		if n.Lost {
			all = append(all, n)
		}
	}
	return all
}

// Source returns the policy as a file: the notes as comments, then the limiters. name is what was
// imported. The error is that of the reader: a *policyfile.Error if the policy is not valid.
func (r *Result) Source(reader policyfile.Reader, name string) ([]byte, error) {
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
	_, err := reader.Parse(name, source)
	return source, err
}

// Names are the names that an importer has given to limiters.
type Names map[string]bool

// maxName is the most bytes of a name before the number that tells it from others.
const maxName = 50

// Of makes a name of a text, which no other limiter has. otherwise is the name if the text has no
// letter or digit, and the beginning of it if the text begins with a digit.
func (n Names) Of(text, otherwise string) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
	if len(words) == 0 || words[0][0] < 'a' {
		words = append([]string{otherwise}, words...)
	}
	name := strings.Join(words, "-")
	name = strings.TrimRight(name[:min(len(name), maxName)], "-")
	for plain, i := name, 2; n[name]; i++ {
		name = fmt.Sprintf("%s-%d", plain, i)
	}
	n[name] = true
	return name
}

// Unreached is a window that nothing reaches.
var Unreached = weir.Window{Limit: weir.MaxLimit, Per: time.Second, Key: weir.Key{{"ip"}}}

// Unlimited returns the limiter of what the other program does not limit beneath what it limits: a
// policy has no routes without a limit there.
func (n Names) Unlimited(routes []weir.Route) weir.Limiter {
	return weir.Limiter{Name: n.Of("unlimited", ""), Routes: routes, Windows: []weir.Window{Unreached}}
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
