// Package config reads the configuration of envoyproxy/ratelimit: files in YAML, or resources of a
// control plane, each with a domain and a tree of descriptors. It finds the limit of a descriptor,
// and counts nothing.
//
//	config.go    Config, Node and Rule, and one step from an entry to the next node
//	unit.go      the units of time
//	pattern.go   values with stars
//	read.go      Read: a file or a directory
//	document.go  one file, strictly, every problem with its line
//	resource.go  one resource, which has no lines: every problem with its descriptor
//	build.go     the tree of a document
//	watch.go     Watch: the files again when they change
package config

import (
	"maps"
	"slices"
)

// A Config is a set of domains. It is read only, and safe for concurrent use.
type Config struct {
	domains map[string]*Node
	// Limits is the number of descriptors with a limit, and Descriptors that of all.
	Limits, Descriptors int
}

// Domain returns the root of a domain, or nil if there is no such domain.
func (c *Config) Domain(name string) *Node { return c.domains[name] }

// Domains returns the number of domains.
func (c *Config) Domains() int { return len(c.domains) }

// A Node is one descriptor of the configuration, or the root of a domain.
type Node struct {
	// Rule is the limit of requests whose last entry leads here; nil: there is none.
	Rule *Rule
	// Share is the pattern of the value if all values that match it share one count
	// (share_threshold); empty: each value has its own.
	Share string
	// ValueToMetric means that the value of the request is part of the metrics' names.
	ValueToMetric bool
	// Value is the value of the descriptor as the configuration has it; empty: it has none.
	Value string
	// File and Line are where the descriptor begins; Line is 0 in a resource.
	File string
	Line int

	children  map[entry]*Node
	wildcards map[string][]wildcard // by key, in the order of the file
}

// An entry is a key and a value of the configuration; the value may be empty.
type entry struct{ key, value string }

// A Found is how an entry of a request has led to a Node.
type Found uint8

const (
	// None: the configuration has no such entry.
	None Found = iota
	// Exact: it has the key with this value.
	Exact
	// Wildcard: it has the key with a value whose stars match this one.
	Wildcard
	// KeyAlone: it has the key without a value.
	KeyAlone
)

// Step returns the node that an entry leads to: the one with the exact value, else that of the
// first listed value with stars that matches, else that of the key alone. It returns nil and None
// if there is none.
func (n *Node) Step(key, value string) (*Node, Found) {
	if value != "" {
		if next := n.children[entry{key, value}]; next != nil {
			return next, Exact
		}
	}
	if n.wildcards != nil {
		for i := range n.wildcards[key] {
			if w := &n.wildcards[key][i]; w.matches(value) {
				return w.node, Wildcard
			}
		}
	}
	if next := n.children[entry{key, ""}]; next != nil {
		return next, KeyAlone
	}
	return nil, None
}

// IsLeaf reports whether no entry leads on from the node.
func (n *Node) IsLeaf() bool { return len(n.children) == 0 }

// A Rule is the limit of a descriptor.
type Rule struct {
	// Path names the descriptor: its domain, and then for each level its key, or its key, "_" and
	// its value.
	Path []string
	// Requests is requests_per_unit. 0 refuses every request.
	Requests uint32
	Unit     Unit
	// Unlimited means that requests are neither limited nor counted. Unit is Unknown then.
	Unlimited bool
	Name      string
	// Replaces are the names of rules that do not apply to a request that this one applies to.
	Replaces []string
	// ShadowMode counts, and refuses nothing.
	ShadowMode bool
	// QuotaMode refuses a request only if all of its descriptors with quota_mode refuse.
	QuotaMode bool
	// DetailedMetric makes the values of the request part of the metrics' names.
	DetailedMetric bool
	// Metadata is what a response tells of the descriptor if it does not refuse; nil: nothing.
	Metadata map[string]any

	// File and Line are where the descriptor begins; Line is 0 in a resource.
	File string
	Line int
}

// Rules iterates over all rules, in no order. values reports whether the names of a rule's metrics
// have values of the request.
func (c *Config) Rules(yield func(r *Rule, values bool) bool) {
	for _, root := range c.domains {
		if !root.rules(false, yield) {
			return
		}
	}
}

func (n *Node) rules(values bool, yield func(*Rule, bool) bool) bool {
	values = values || n.ValueToMetric
	if n.Rule != nil && !yield(n.Rule, values || n.Rule.DetailedMetric) {
		return false
	}
	for _, next := range n.children {
		if !next.rules(values, yield) {
			return false
		}
	}
	return true
}

// An Entry is one level of a descriptor as the configuration has it.
type Entry struct {
	Key    string
	Value  string // empty: every value, each with a count of its own
	Shared bool   // all values that the stars match have one count
}

// Walk calls visit for each descriptor of a domain, in no order, with the entries that lead to it.
// visit must not keep them.
func (c *Config) Walk(domain string, visit func(all []Entry, n *Node)) {
	if root := c.domains[domain]; root != nil {
		root.walk(nil, visit)
	}
}

func (n *Node) walk(above []Entry, visit func([]Entry, *Node)) {
	for at, next := range n.children {
		all := append(above, Entry{at.key, at.value, next.Share != ""})
		visit(all, next)
		next.walk(all, visit)
	}
}

// Names returns the names of the domains, sorted.
func (c *Config) Names() []string { return slices.Sorted(maps.Keys(c.domains)) }
