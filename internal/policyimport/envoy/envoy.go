// Package envoy makes a policy of a configuration of envoyproxy/ratelimit. The two differ: a
// descriptor counts what Envoy's routes make of a request, and a limiter counts the requests of its
// own routes. What a policy cannot say is a problem with its line, and is never left out silently.
//
//	envoy.go  Policy: from descriptors to limiters
//	place.go  the descriptors that Envoy counts the requests of a route in
//	rule.go   one rule: its route, its key and its window
package envoy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/policyimport"
	"github.com/weirlimit/weir/internal/rls/config"
)

// Meanings are what keys of descriptors mean: Path, Method or Host, which a limiter covers by its
// routes, or the name of a key source.
type Meanings map[string]string

// The meanings that are not key sources. Host without a value is the key source of that name.
const (
	Path   = "path"
	Method = "method"
	Host   = "host"
)

// Usual returns the meanings of keys that Envoy's actions write by default.
func Usual() Meanings {
	return Meanings{"remote_address": "ip", "masked_remote_address": "ip", Path: Path, Method: Method}
}

// Policy returns the policy of a domain.
func Policy(c *config.Config, domain string, m Meanings) *policyimport.Result {
	t := translation{root: c.Domain(domain), meanings: m, names: policyimport.Names{}, rules: map[*config.Node]rule{}, queries: map[string]bool{}}
	var all []descriptor
	c.Walk(domain, func(entries []config.Entry, n *config.Node) {
		all = append(all, descriptor{slices.Clone(entries), n})
	})
	slices.SortFunc(all, func(a, b descriptor) int {
		return cmp.Or(cmp.Compare(a.node.File, b.node.File), cmp.Compare(a.node.Line, b.node.Line), cmp.Compare(last(a.entries), last(b.entries)))
	})
	for _, d := range all {
		before := len(t.Notes)
		t.read(d)
		if !slices.ContainsFunc(t.Notes[before:], func(n policyimport.Note) bool { return n.Lost }) {
			t.noteLeftOut(d)
		}
	}
	t.cross()
	for _, p := range t.places {
		t.limit(p)
	}
	for _, j := range t.joining {
		t.join(j)
	}
	if len(t.open) > 0 {
		t.limiters = append(t.limiters, &limiter{Limiter: t.names.Unlimited(t.open)})
	}
	for _, d := range t.values {
		t.exempt(d)
	}
	for _, l := range t.limiters {
		t.noteChosen(l)
		t.Policy.Limiters = append(t.Policy.Limiters, l.Limiter)
	}
	slices.SortStableFunc(t.Notes, func(a, b policyimport.Note) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return &t.Result
}

// A translation collects the limiters of a domain.
type translation struct {
	policyimport.Result
	root     *config.Node
	meanings Meanings
	names    policyimport.Names
	rules    map[*config.Node]rule
	chains   [][]string // the keys of descriptors, each list once
	places   []*place
	values   []descriptor // those without a limit for one value of a key source
	open     []weir.Route
	joining  []joining
	limiters []*limiter
	queries  map[string]bool // the paths of which noteQuery has a note
}

// A descriptor is one of the configuration.
type descriptor struct {
	entries []config.Entry
	node    *config.Node
}

// isFree reports whether nothing counts the descriptor.
func (d descriptor) isFree() bool { return d.node.Rule == nil || d.node.Rule.Unlimited }

// A limiter is one of the policy, with the rules that it has its windows from.
type limiter struct {
	weir.Limiter
	rules []rule
}

// lost notes a rule that the policy does not have.
func (t *translation) lost(n *config.Node, format string, args ...any) {
	t.Notes = append(t.Notes, policyimport.Note{File: n.File, Line: n.Line, Text: fmt.Sprintf(format, args...), Lost: true})
}

// note notes what differs for a rule that the policy has.
func (t *translation) note(n *config.Node, format string, args ...any) {
	t.Notes = append(t.Notes, policyimport.Note{File: n.File, Line: n.Line, Text: fmt.Sprintf(format, args...)})
}

// noteLeftOut notes the fields of an imported descriptor that a policy does not have. Only metadata
// is lost: it changes what Envoy gets. The others change no answer to a request.
func (t *translation) noteLeftOut(d descriptor) {
	n, r := d.node, d.node.Rule
	if n.ValueToMetric {
		t.note(n, "%s has value_to_metric: the metrics of a policy have no values of requests", last(d.entries))
	}
	if r == nil {
		return
	}
	if r.DetailedMetric {
		t.note(n, "%s has detailed_metric: the metrics of a policy have no values of requests", last(d.entries))
	}
	if r.Name != "" {
		t.note(n, "%s has a limit with the name %q: a policy has names of limiters, which are others", last(d.entries), r.Name)
	}
	if r.Metadata != nil {
		t.lost(n, "%s has metadata, which a policy does not have: it is left out", last(d.entries))
	}
}

// put adds a window to a limiter. Of two windows with one length and key the lower limit counts. It
// returns false if the limiter has not got it.
func (t *translation) put(l *limiter, r rule) bool {
	i := slices.IndexFunc(l.Windows, func(w weir.Window) bool { return w.Per == r.window.Per && w.Key.String() == r.window.Key.String() })
	switch {
	case i >= 0 && l.Windows[i].Limit <= r.window.Limit:
		t.note(r.from, "%v does not count for limiter %s, whose own %v is reached before it", r.window, l.Name, l.Windows[i])
		return false
	case i >= 0:
		t.note(r.from, "%v counts for limiter %s in place of %v, which is reached after it", r.window, l.Name, l.Windows[i])
		l.Windows[i] = r.window
		return true
	case len(l.Windows) == weir.MaxWindows:
		t.lost(r.from, "%v is one window too many for limiter %s: it has at most %d", r.window, l.Name, weir.MaxWindows)
		return false
	}
	l.Windows = append(l.Windows, r.window)
	return true
}

// noteChosen lets a limiter count by what its callers choose, as the configuration does.
func (t *translation) noteChosen(l *limiter) {
	kindOf := func(p weir.Part) weir.SourceKind {
		s, _ := weir.FindSource(weir.Sources(), p[0])
		return s.Kind
	}
	isFirm := func(p weir.Part) bool { return kindOf(p) == weir.Address || kindOf(p) == weir.Credential }
	for _, w := range l.Windows {
		isChosen := slices.ContainsFunc(w.Key, func(p weir.Part) bool { return kindOf(p) == weir.Chosen })
		if isChosen && !l.Chosen && !slices.ContainsFunc(w.Key, isFirm) {
			l.Chosen = true
			t.note(l.rules[0].from, "limiter %s counts by %v, which the caller chooses: it can make up values, and get a new budget for each", l.Name, w.Key)
		}
	}
}

// Unused returns the keys that no descriptor of a domain has, sorted.
func (m Meanings) Unused(c *config.Config, domain string) []string {
	left := maps.Clone(m)
	c.Walk(domain, func(entries []config.Entry, _ *config.Node) {
		delete(left, entries[len(entries)-1].Key)
	})
	return slices.Sorted(maps.Keys(left))
}

// Check returns what is wrong with a meaning; nil: nothing.
func Check(meaning string) error {
	if meaning == Path || meaning == Method || meaning == Host {
		return nil
	}
	key, err := weir.ParseKey(meaning)
	if err != nil {
		return err
	}
	for _, source := range slices.Concat(key...) {
		if _, ok := weir.FindSource(weir.Sources(), source); !ok {
			return fmt.Errorf("key source %q is unknown: path, method, %s are allowed", source, weir.SourceNames(weir.Sources()))
		}
	}
	return nil
}
