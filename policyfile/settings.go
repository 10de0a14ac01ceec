package policyfile

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// A Setting is one field of a configuration: a name, and one value or several.
type Setting struct {
	Name string
	Line int // where the name is, from 1
	Form Form
	// Values are the value, the items of a list, or those of a mapping, in the file's order.
	Values []Value

	d  *reading
	at place
}

// A Form is how the values of a setting are written.
type Form int

// The forms of a setting.
const (
	SettingValue   Form = iota // name: value
	SettingList                // name: [value, value]
	SettingMapping             // name: {key: value, key: [value, value]}
)

// A Value is one text, number or switch of a setting, as it is in the file.
type Value struct {
	Key  string // of a mapping; several values may have the same
	Text string
	Kind string // "text", or "a number" or "true or false", if YAML takes the value for one
	// KeyLine is the line of Key, from 1; 0 if there is none.
	KeyLine int

	at, keyAt place
}

// Problem reports what is wrong with value i of the setting, or with the setting as a whole if i is
// negative. Users and passwords of URLs are left out.
func (s *Setting) Problem(i int, hint, format string, args ...any) {
	at, path, value := s.at, s.Name, ""
	if i >= 0 {
		v := s.Values[i]
		at, value = v.at, v.Text
		switch s.Form {
		case SettingList:
			path = fmt.Sprintf("%s[%d]", path, i)
		case SettingMapping:
			path = within(path, v.Key)
		}
	}
	s.d.report(at, path, value, withoutPasswords(hint), "%s", withoutPasswords(fmt.Sprintf(format, args...)))
}

// KeyProblem reports what is wrong with the key of value i of a mapping.
func (s *Setting) KeyProblem(i int, hint, format string, args ...any) {
	v := s.Values[i]
	s.d.report(v.keyAt, within(s.Name, v.Key), v.Key, withoutPasswords(hint), "%s", withoutPasswords(fmt.Sprintf(format, args...)))
}

// LoadSettings reads the configuration at path and calls take for each of its settings, in the
// file's order, also if others have problems. take reports those of the values. mappings are the
// names whose setting may be a mapping; that of another name has no values. The error is an
// [*Error] if there are problems; if the file cannot be read, it wraps the one of package os.
// LoadSettings reads at most MaxSize+1 bytes, and never waits for the other end of a pipe.
func LoadSettings(path string, take func(*Setting), mappings ...string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return fmt.Errorf("read configuration: %w", err)
	case info.IsDir():
		return fmt.Errorf("read configuration: %s is a directory: one file is needed", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("read configuration: %s is no regular file: one is needed", path)
	}
	source, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	return ParseSettings(path, source, take, mappings...)
}

// ParseSettings is [LoadSettings] of a source. Problems give name as the file. Time and memory are
// proportional to the size of source, even if it is hostile.
func ParseSettings(name string, source []byte, take func(*Setting), mappings ...string) error {
	d := newReading(Reader{}, name)
	d.kind = &aConfiguration
	if tokens, ok := d.scan(source); ok {
		if body, ok := d.body(tokens); ok {
			d.settings(unwrap(body), take, mappings)
		}
	}
	if len(d.problems) == 0 {
		return nil
	}
	return &Error{d.sorted()}
}

func (d *reading) settings(n ast.Node, take func(*Setting), mappings []string) {
	d.at[""] = nodePlace(n)
	values, ok := mappingOf(n)
	if !ok {
		d.wrongType(n, "", "a mapping", "settings are written \"name: value\"")
		return
	}
	if len(values) == 0 {
		d.fail("", "", d.kind.start, "the file is empty: a %s", d.kind.holds)
		return
	}
	d.pairs(values, "", func(key *token.Token, n ast.Node) {
		before := d.reported()
		s := &Setting{Name: key.Value, Line: key.Position.Line, d: d, at: placeOf(key)}
		switch n := unwrap(n).(type) {
		case *ast.SequenceNode:
			s.Form = SettingList
			d.listed(s, n, s.Name, Value{})
		case *ast.MappingNode, *ast.MappingValueNode:
			s.Form = SettingMapping
			if !slices.Contains(mappings, s.Name) {
				take(s)
				return
			}
			pairs, _ := mappingOf(n)
			d.pairs(pairs, s.Name, func(key *token.Token, n ast.Node) {
				v := Value{Key: key.Value, KeyLine: key.Position.Line, keyAt: placeOf(key)}
				if list, ok := unwrap(n).(*ast.SequenceNode); ok {
					if len(list.Values) == 0 {
						d.report(v.keyAt, within(s.Name, v.Key), "", "give it a value, or remove the line", "%s has no value", excerpt(v.Key))
					}
					d.listed(s, list, within(s.Name, v.Key), v)
					return
				}
				d.one(s, n, within(s.Name, v.Key), v)
			})
		default:
			d.one(s, n, s.Name, Value{})
		}
		switch {
		case len(s.Values) > 0:
			take(s)
		case d.reported() == before:
			s.Problem(-1, "give it a value, or remove the line", "%s has no value", excerpt(s.Name))
		}
	})
}

// listed adds the items of a list to a setting. Each is a copy of v with the item's text.
func (d *reading) listed(s *Setting, list *ast.SequenceNode, path string, v Value) {
	for i, item := range list.Values {
		d.one(s, item, fmt.Sprintf("%s[%d]", path, i), v)
	}
}

// one adds a copy of v with the text of n to a setting, or reports why n is no text.
func (d *reading) one(s *Setting, n ast.Node, path string, v Value) {
	n = unwrap(n)
	if n == nil || n.Type() == ast.AliasType {
		return // checkTokens has reported it
	}
	d.at[path] = nodePlace(n)
	what := strings.TrimPrefix(path, s.Name+".") // a key may have dots
	text, ok := scalarText(n)
	switch {
	case n.Type() == ast.NullType:
		d.fail(path, "", "give it a value, or remove the line", "%s is empty: a value is needed", what)
		return
	case !ok:
		d.fail(path, "", "a setting has one value, a list of them, or, as upstream, one for each host", "%s is %s: one value is needed", what, kindOf(n))
		return
	case strings.ContainsAny(strings.TrimSpace(n.GetToken().Origin), "\r\n"):
		d.fail(path, text, "write it on one line; is a colon or a dash missing on the line below?", "%s continues over several lines: a text must be on one line", what)
		return
	}
	v.Text, v.Kind, v.at = text, kindOf(n), d.at[path]
	s.Values = append(s.Values, v)
}

// DidYouMean returns a hint with the allowed word that word is probably a misspelling of, or "" if
// none is close.
func DidYouMean(word string, allowed []string) string { return didYouMean(word, allowed) }

// Scalar returns s as YAML that a policy or a configuration may hold anywhere.
func Scalar(s string) string { return scalar(s) }
