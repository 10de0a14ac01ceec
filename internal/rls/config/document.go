package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A document is one file, as it is spelled, or one resource.
type document struct {
	domain      text
	descriptors []descriptor
}

type descriptor struct {
	line          int
	key, value    text
	limit         *limit
	descriptors   []descriptor
	shadow, quota bool
	detailed      bool
	valueToMetric bool
	share         bool
	metadata      map[string]any
}

type limit struct {
	line      int
	requests  uint32
	unit      text
	unlimited bool
	name      string
	replaces  []text
}

// A text is a value, and its line; 0 in a resource.
type text struct {
	string
	line  int
	wrong bool // it is no text, which is reported
}

// maxProblems is how many problems of one file are reported.
const maxProblems = 20

// A problem is one of a file. Those of one file are reported in the order of their lines.
type problem struct {
	line int    // 0: it has none
	text string // with the descriptor, if it has no line
}

// A reading reads one file, and collects its problems.
type reading struct {
	file     string
	problems []problem
	more     bool    // there are more problems than are reported
	at       []entry // the entries that lead to what is read of a resource
	budget   int     // nodes that may still be visited: aliases can make a small file a large one
}

// maxAliased is how many more nodes of one file are visited than the file can have, because those
// of an alias are visited each time.
const maxAliased = 500_000

func (r *reading) report(line int, format string, args ...any) {
	if r.more = len(r.problems) == maxProblems; r.more {
		return
	}
	text := fmt.Sprintf(format, args...)
	if line == 0 && len(r.at) > 0 {
		text = fmt.Sprintf("descriptor %s: %s", pathOf(r.at), text)
	}
	r.problems = append(r.problems, problem{line, text})
}

// errors returns the problems in the order of their lines.
func (r *reading) errors() (all []error) {
	slices.SortStableFunc(r.problems, func(a, b problem) int { return a.line - b.line })
	for _, p := range r.problems {
		all = append(all, fmt.Errorf("%s: %s", place{r.file, p.line}, p.text))
	}
	if r.more {
		all = append(all, fmt.Errorf("%s: there are more problems", r.file))
	}
	return all
}

// read returns the document of a file, and whether it can be built. What has problems is left out.
func (r *reading) read(source []byte) (d document, ok bool) {
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	var root, more yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		r.report(1, "the file is empty: it needs a domain, such as: domain: edge")
		return d, false
	case err != nil:
		r.syntax(err, source)
		return d, false
	}
	if err := decoder.Decode(&more); err == nil {
		r.report(more.Line, "a second document: a file has one, so put this one into a file of its own")
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err, source)
		return d, false
	}
	d.domain.line = 1                   // if there is none
	r.budget = len(source) + maxAliased // each node has a byte or more
	ok = r.fields(root.Content[0], "the file", func(name string, value *yaml.Node) bool {
		switch name {
		case "domain":
			d.domain = r.text(name, value)
		case "descriptors":
			d.descriptors = r.descriptors(value, 1)
		default:
			return false
		}
		return true
	}, "domain", "descriptors")
	return d, ok && r.budget >= 0
}

// syntax reports an error of the parser, on the line that has to be changed.
func (r *reading) syntax(err error, source []byte) {
	var at *yaml.LoadError
	if !errors.As(err, &at) {
		r.report(1, "not valid YAML: %v", err)
		return
	}
	line, from := at.Mark.Line, at.ContextMark.Line
	switch {
	case at.Stage == yaml.ReaderStage: // it counts bytes, not lines
		line = 1 + bytes.Count(source[:min(at.Mark.Index, len(source))], []byte("\n"))
	case slices.Contains(noticedLate, at.Message):
		line = from
	}
	// the end of the file is not one of its lines
	line = max(1, min(line, 1+bytes.Count(bytes.TrimSuffix(source, []byte("\n")), []byte("\n"))))
	within := ""
	if from != 0 && from != line {
		within = fmt.Sprintf(", %s that begins on line %d", at.ContextMsg, from)
	}
	r.report(line, "not valid YAML: %s%s", at.Message, within)
}

// noticedLate are the errors of what has to be changed where it begins, although the parser only
// notices it after its end: a quote that is not closed, and a line without the colon of a key.
var noticedLate = []string{"found unexpected end of stream", "found unexpected document indicator", "could not find expected ':'"}

// visit returns the node that n stands for, or nil if too many were visited.
func (r *reading) visit(n *yaml.Node) *yaml.Node {
	if r.budget--; r.budget < 0 {
		if r.budget == -1 {
			r.report(n.Line, "aliases make the file too large: they may repeat %d values at most", maxAliased)
		}
		return nil
	}
	if n.Kind == yaml.AliasNode {
		return r.visit(n.Alias)
	}
	return n
}

// fields calls field for each field of a mapping. field returns false for a name that is unknown.
// whole reports whether n is a mapping without a merge, whose fields are missing.
func (r *reading) fields(n *yaml.Node, of string, field func(name string, value *yaml.Node) bool, names ...string) (whole bool) {
	if n = r.visit(n); n == nil {
		return false
	}
	if n.Kind != yaml.MappingNode {
		r.report(n.Line, "%s is %s: it must have the fields %s", of, kindOf(n), strings.Join(names, ", "))
		return false
	}
	whole = true
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if line, twice := seen[name.Value]; twice {
			r.report(name.Line, "field %q occurs twice: line %d has it already", name.Value, line)
			continue
		}
		seen[name.Value] = name.Line
		switch {
		case name.Tag == "!!merge":
			r.report(name.Line, "a merge (<<): write the fields out; an alias in place of a value is allowed")
			whole = false
		case name.Kind != yaml.ScalarNode || !field(name.Value, value):
			r.report(name.Line, "unknown field %q of %s: %s are allowed", name.Value, of, strings.Join(names, ", "))
		}
	}
	return whole
}

// items calls item for each item of a list.
func (r *reading) items(name string, n *yaml.Node, item func(*yaml.Node)) {
	if n = r.visit(n); n == nil || isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.report(n.Line, "%s is %s: it must be a list", name, kindOf(n))
		return
	}
	for _, one := range n.Content {
		item(one)
	}
}

var descriptorFields = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata"}

func (r *reading) descriptors(n *yaml.Node, depth int) (all []descriptor) {
	if depth > MaxDepth {
		r.report(n.Line, "descriptors are nested more than %d deep, which is the max", MaxDepth)
		return nil
	}
	r.items("descriptors", n, func(one *yaml.Node) {
		d := descriptor{line: one.Line}
		if r.fields(one, "a descriptor", func(name string, value *yaml.Node) bool {
			switch name {
			case "key":
				d.key = r.text(name, value)
			case "value":
				d.value = r.text(name, value)
			case "rate_limit":
				d.limit = r.limit(value)
			case "descriptors":
				d.descriptors = r.descriptors(value, depth+1)
			case "shadow_mode":
				d.shadow = r.isOn(name, value)
			case "quota_mode":
				d.quota = r.isOn(name, value)
			case "detailed_metric":
				d.detailed = r.isOn(name, value)
			case "value_to_metric":
				d.valueToMetric = r.isOn(name, value)
			case "share_threshold":
				d.share = r.isOn(name, value)
			case "metadata":
				d.metadata = r.metadata(value)
			default:
				return false
			}
			return true
		}, descriptorFields...) {
			all = append(all, d)
		}
	})
	return all
}

// limit returns the value of rate_limit; nil for none, and for one that is not whole.
func (r *reading) limit(n *yaml.Node) *limit {
	if isNull(n) {
		return nil
	}
	l := &limit{line: n.Line}
	if !r.fields(n, "rate_limit", func(name string, value *yaml.Node) bool {
		switch name {
		case "requests_per_unit":
			l.requests = r.number(name, value)
		case "unit":
			l.unit = r.text(name, value)
		case "unlimited":
			l.unlimited = r.isOn(name, value)
		case "name":
			l.name = r.text(name, value).string
		case "replaces":
			l.replaces = r.replaces(value)
		default:
			return false
		}
		return true
	}, "requests_per_unit", "unit", "unlimited", "name", "replaces") {
		return nil
	}
	return l
}

func (r *reading) replaces(n *yaml.Node) (all []text) {
	r.items("replaces", n, func(one *yaml.Node) {
		name := text{line: one.Line}
		if r.fields(one, "an item of replaces", func(field string, value *yaml.Node) bool {
			if field == "name" {
				name = r.text(field, value)
			}
			return field == "name"
		}, "name") {
			all = append(all, name)
		}
	})
	return all
}

// text returns a value as it is spelled: 10 and yes are texts, too.
func (r *reading) text(name string, n *yaml.Node) text {
	n = r.visit(n)
	switch {
	case n == nil:
		return text{}
	case isNull(n):
		return text{line: n.Line}
	case n.Kind != yaml.ScalarNode:
		r.report(n.Line, "%s is %s: it must be a text", name, kindOf(n))
		return text{line: n.Line, wrong: true}
	}
	return text{string: n.Value, line: n.Line}
}

// ons are the words that YAML 1.1 has for true, and offs those for false.
var (
	ons  = []string{"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"}
	offs = []string{"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"}
)

func (r *reading) isOn(name string, n *yaml.Node) bool {
	n = r.visit(n)
	switch {
	case n == nil || isNull(n):
		return false
	case n.Kind == yaml.ScalarNode && n.Style == 0 && slices.Contains(ons, n.Value):
		return true
	case n.Kind == yaml.ScalarNode && n.Style == 0 && slices.Contains(offs, n.Value):
		return false
	}
	r.report(n.Line, "%s is %s: true and false are allowed", name, valueOf(n))
	return false
}

func (r *reading) number(name string, n *yaml.Node) (value uint32) {
	n = r.visit(n)
	if n == nil || isNull(n) {
		return 0
	}
	if n.Tag != "!!int" || n.Decode(&value) != nil {
		r.report(n.Line, "%s is %s: a number from 0 to 4294967295 is allowed", name, valueOf(n))
	}
	return value
}

func (r *reading) metadata(n *yaml.Node) map[string]any {
	n = r.visit(n)
	if n == nil || isNull(n) {
		return nil
	}
	var all map[string]any
	if n.Kind != yaml.MappingNode || n.Decode(&all) != nil {
		r.report(n.Line, "metadata is %s: it must be a mapping whose keys are texts", kindOf(n))
		return nil
	}
	r.finite(n)
	return all
}

// finite reports the numbers in metadata that JSON does not have, since it is sent as JSON.
func (r *reading) finite(n *yaml.Node) {
	if n = r.visit(n); n == nil {
		return
	}
	var number float64
	if n.Kind == yaml.ScalarNode && n.Tag == "!!float" && n.Decode(&number) == nil && (math.IsNaN(number) || math.IsInf(number, 0)) {
		r.report(n.Line, "metadata has the number %s: JSON has no such number, so write a text, such as: \"NaN\"", valueOf(n))
	}
	for _, one := range n.Content {
		r.finite(one)
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// valueOf describes a value for an error.
func valueOf(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return kindOf(n)
	}
	const most = 60
	value := n.Value
	if len(value) > most {
		value = value[:most] + "…"
	}
	return strconv.Quote(value)
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if isNull(n) {
		return "empty"
	}
	return "a single value"
}
