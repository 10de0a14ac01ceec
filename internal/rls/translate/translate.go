// Package translate makes a policy of a configuration of envoyproxy/ratelimit. The two differ: a
// descriptor counts what Envoy's routes make of a request, and a limiter counts the requests of its
// own routes. What a policy cannot say is a problem with its line, and is never left out silently.
//
//	translate.go  Policy: from rules to limiters
//	rule.go       one rule: its route, its key and its window
package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/rls/config"
)

// A Result is a policy, and what is to be known about it.
type Result struct {
	Policy weir.Policy
	// Problems are rules that the policy does not have, and Notes what differs for those that it
	// has. Both name a file and a line.
	Problems, Notes []string
}

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
func Policy(c *config.Config, domain string, m Meanings) Result {
	t := translation{meanings: m}
	var rules []rule
	c.Walk(domain, func(all []config.Entry, r *config.Rule) {
		if one, ok := t.rule(all, r); ok {
			rules = append(rules, one)
		}
	})
	slices.SortFunc(rules, func(a, b rule) int {
		return cmp.Or(cmp.Compare(a.from.File, b.from.File), cmp.Compare(a.from.Line, b.from.Line))
	})
	for _, r := range rules {
		t.add(r)
	}
	t.widen()
	for _, l := range t.limiters {
		t.noteChosen(l)
		t.Policy.Limiters = append(t.Policy.Limiters, l.Limiter)
	}
	slices.Sort(t.Problems)
	return t.Result
}

// A translation collects the limiters of a domain.
type translation struct {
	Result
	meanings Meanings
	limiters []*limiter
}

// A limiter is one of the policy, with the rules that it has its windows from.
type limiter struct {
	weir.Limiter
	own []rule
}

func (t *translation) problem(r *config.Rule, format string, args ...any) {
	t.Problems = append(t.Problems, fmt.Sprintf("%s:%d: %s", r.File, r.Line, fmt.Sprintf(format, args...)))
}

func (t *translation) note(r *config.Rule, format string, args ...any) {
	t.Notes = append(t.Notes, fmt.Sprintf("%s:%d: %s", r.File, r.Line, fmt.Sprintf(format, args...)))
}

// add adds the window of a rule to the limiter of its route.
func (t *translation) add(r rule) {
	i := slices.IndexFunc(t.limiters, func(l *limiter) bool { return l.Routes[0] == r.route && (l.Mode == weir.Shadow) == r.from.ShadowMode })
	if i < 0 {
		if slices.ContainsFunc(t.limiters, func(l *limiter) bool { return l.Routes[0] == r.route }) {
			t.problem(r.from, "a limit in shadow mode beside enforced ones of %v: a policy has one mode for all windows of a route", r.route)
			return
		}
		l := &limiter{Limiter: weir.Limiter{Name: t.name(r.route), Routes: []weir.Route{r.route}}}
		if r.from.ShadowMode {
			l.Mode = weir.Shadow
		}
		t.limiters, i = append(t.limiters, l), len(t.limiters)
	}
	l := t.limiters[i]
	if t.put(l, r) {
		l.own = append(l.own, r)
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
		t.problem(r.from, "%v is one window too many for limiter %s: it has at most %d", r.window, l.Name, weir.MaxWindows)
		return false
	}
	l.Windows = append(l.Windows, r.window)
	return true
}

// widen adds to each limiter the windows of those whose routes cover its own: one limiter covers a
// request, and Envoy counts it in all descriptors.
func (t *translation) widen() {
	for _, l := range t.limiters {
		for _, wide := range t.limiters {
			if wide == l || wide.Mode != l.Mode || !covers(wide.Routes[0], l.Routes[0]) {
				continue
			}
			for _, r := range wide.own {
				if t.put(l, r) {
					t.note(r.from, "%v counts for limiter %s by itself: with Envoy, its requests and those of limiter %s have one count", r.window, l.Name, wide.Name)
				}
			}
		}
	}
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
			t.Notes = append(t.Notes, fmt.Sprintf("limiter %s counts by %v, which the caller chooses: it can make up values, and get a new budget for each", l.Name, w.Key))
		}
	}
}

// covers reports whether every request of route b is one of a.
func covers(a, b weir.Route) bool {
	path := a.Path == b.Path && !b.Prefix || a.Prefix && strings.HasPrefix(b.Path, a.Path)
	return path && (a.Host == "" || a.Host == b.Host) && (a.Method == "" || a.Method == b.Method)
}

// name returns a name for the limiter of a route that no other has.
func (t *translation) name(r weir.Route) string {
	const most = 50
	text := strings.ToLower(strings.TrimSpace(r.Method + " " + r.Host + strings.TrimSuffix(r.Path, "/")))
	name := strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, text), "-")
	for strings.Contains(name, "--") {
		name = strings.ReplaceAll(name, "--", "-")
	}
	switch {
	case name == "":
		name = "everything"
	case name[0] < 'a':
		name = "r-" + name
	}
	name = strings.TrimRight(name[:min(len(name), most)], "-")
	for i, plain := 2, name; slices.ContainsFunc(t.limiters, func(l *limiter) bool { return l.Name == name }); i++ {
		name = fmt.Sprintf("%s-%d", plain, i)
	}
	return name
}
