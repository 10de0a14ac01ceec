package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Parse returns the configuration in files. The error has all problems, one a line, each with its
// file and line, or with its resource and descriptor, but at most 20 of each file.
func Parse(files []File, o Options) (*Config, error) {
	b := builder{Options: o, config: &Config{domains: map[string]*Node{}}, of: map[*Node]place{}}
	var problems []error
	for _, f := range files {
		b.reading = &reading{file: f.Name}
		if f.resource != nil {
			d := b.fromResource(f.resource)
			b.domain(&d)
		} else if d, ok := b.read(f.Text); ok {
			b.domain(&d)
		}
		problems = append(problems, b.errors()...)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return b.config, nil
}

// A builder makes the tree of documents.
type builder struct {
	Options
	*reading
	config *Config
	of     map[*Node]place // where each node is declared
}

type place struct {
	file string
	line int // 0 in a resource, which has no lines
}

func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

func (b *builder) domain(d *document) {
	name := d.domain.string
	root := b.config.domains[name]
	b.at = nil
	switch {
	case d.domain.wrong:
		root = new(Node)
	case name == "":
		b.report(d.domain.line, "no domain: add it, such as: domain: edge")
		root = new(Node)
	case root == nil:
		root = new(Node)
		b.config.domains[name] = root
		b.of[root] = place{b.file, d.domain.line}
	case !b.Merge:
		one := "file"
		if d.domain.line == 0 {
			one = "resource"
		}
		b.report(d.domain.line, "domain %q occurs twice: %s has it already; give each domain one %s, or join them with --rls-merge-domains", name, b.of[root], one)
		root = new(Node)
	}
	b.add(root, []string{name}, nil, d.descriptors)
}

// add adds descriptors to their parent. path is that of the parent, and above the entries that lead
// to it. One with a problem is built below a parent of its own, so that its other problems are
// reported too.
func (b *builder) add(parent *Node, path []string, above []entry, all []descriptor) {
	for i := range all {
		parent, d := parent, &all[i]
		at := entry{d.key.string, d.value.string}
		here := append(slices.Clip(above), at)
		b.at = here
		if parent.children == nil {
			parent.children = make(map[entry]*Node, len(all))
		}
		if !b.checkKey(d) || d.value.wrong {
			parent = &Node{children: map[entry]*Node{}}
		} else if taken := parent.children[at]; taken != nil {
			b.report(d.line, "descriptor %s occurs twice: %s has it already", shown(at), b.of[taken])
			parent = &Node{children: map[entry]*Node{}}
		}
		own := append(slices.Clip(path), segment(at))
		next := &Node{Rule: b.rule(d, own), ValueToMetric: d.valueToMetric, Value: d.value.string, File: b.file, Line: d.line}
		b.of[next] = place{b.file, d.line}
		parent.children[at] = next
		b.config.Descriptors++
		if strings.Contains(at.value, "*") {
			if parent.wildcards == nil {
				parent.wildcards = make(map[string][]wildcard)
			}
			parent.wildcards[at.key] = append(parent.wildcards[at.key], newWildcard(at.value, next))
			if d.share {
				next.Share = at.value
			}
		} else if d.share && !d.value.wrong {
			b.report(d.line, "share_threshold of descriptor %s: it is only for a value with a star, such as: value: files/*", shown(at))
		}
		b.add(next, own, here, d.descriptors)
	}
}

func (b *builder) checkKey(d *descriptor) bool {
	switch key := d.key.string; {
	case d.key.wrong:
		return false
	case key == "":
		b.report(d.line, "a descriptor without a key: add it, such as: key: remote_address")
		return false
	case strings.Contains(key, "*"):
		b.report(d.key.line, "key %q: only a value can have a star", key)
		return false
	}
	return true
}

// rule returns the limit of a descriptor; nil if it has none.
func (b *builder) rule(d *descriptor, path []string) *Rule {
	l := d.limit
	if l == nil {
		return nil
	}
	b.config.Limits++
	unit := unitNamed(l.unit.string)
	switch {
	case l.unlimited && unit != Unknown:
		b.report(l.unit.line, "unit %q of an unlimited descriptor: remove one of the two", l.unit.string)
	case l.unlimited, l.unit.wrong:
	case l.unit.string == "":
		b.report(l.line, "rate_limit without a unit: add it, such as: unit: minute")
	case unit == Year:
		b.report(l.unit.line, "unit %q: the longest window is a month; use month, with a smaller requests_per_unit", l.unit.string)
	case unit == Unknown:
		b.report(l.unit.line, "unit %q is unknown: second, minute, hour, day, week and month are allowed", l.unit.string)
	}
	r := &Rule{
		Path: path, Requests: l.requests, Unit: unit, Unlimited: l.unlimited, Name: l.name,
		ShadowMode: d.shadow, QuotaMode: d.quota, DetailedMetric: d.detailed, Metadata: d.metadata,
		File: b.file, Line: d.line,
	}
	for _, other := range l.replaces {
		switch {
		case other.wrong:
		case other.string == "":
			b.report(other.line, "an item of replaces without a name: add the name of the limit that is replaced")
		case other.string == l.name:
			b.report(other.line, "the limit %q replaces itself: name another one", l.name)
		}
		r.Replaces = append(r.Replaces, other.string)
	}
	return r
}

// segment returns a level of Rule.Path.
func segment(at entry) string {
	if at.value == "" {
		return at.key
	}
	return at.key + "_" + at.value
}

// shown returns an entry for an error.
func shown(at entry) string {
	if at.value == "" {
		return at.key
	}
	return at.key + "=" + at.value
}

// pathOf returns the entries that lead to a descriptor for an error: key=value > key=value.
func pathOf(all []entry) string {
	levels := make([]string, len(all))
	for i, at := range all {
		if levels[i] = shown(at); at.key == "" {
			levels[i] = "(no key)" + levels[i]
		}
	}
	return strings.Join(levels, " > ")
}
