package replay

import (
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// lacks returns the sources that the log does not have.
func (r *Replay) lacks() []Lack {
	out := append(r.hidden(), r.hosts.unrouted()...)
	for place, source := range r.sources.all {
		if r.caller.seen>>place&1 != 0 {
			continue // the log has the source, and some callers do not
		}
		lack := Lack{Source: source}
		var instead []string
		for _, l := range r.lanes {
			requests := int64(0)
			for _, s := range l.ordered {
				if s.lacks[place] == 0 {
					continue
				}
				requests += s.lacks[place]
				if !slices.Contains(lack.Limiters, s.rules.Name) {
					lack.Limiters = append(lack.Limiters, s.rules.Name)
				}
				instead = r.instead(instead, s.rules, source)
				lack.Required = lack.Required || s.rules.Requires == source
			}
			lack.Requests = max(lack.Requests, requests)
		}
		if lack.Requests > 0 {
			lack.Instead = strings.Join(instead, ", ")
			out = append(out, lack)
		}
	}
	return out
}

// hidden returns a Lack for the requests whose agent is unknown, if there are any.
func (r *Replay) hidden() []Lack {
	lack := Lack{Source: identity.Agent}
	for _, l := range r.lanes {
		requests := int64(0)
		for _, s := range l.ordered {
			if s.hidden == 0 {
				continue
			}
			requests += s.hidden
			if !slices.Contains(lack.Limiters, s.rules.Name) {
				lack.Limiters = append(lack.Limiters, s.rules.Name)
			}
		}
		lack.Requests = max(lack.Requests, requests)
	}
	if lack.Requests == 0 {
		return []Lack{}
	}
	return []Lack{lack}
}

// instead adds to words what a limiter counts requests by that lack a source.
func (r *Replay) instead(words []string, l *weir.Limiter, source string) []string {
	add := func(word string) {
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	switch slices.Index(r.sources.all, source) {
	case placeIP:
		add("the address of the proxy")
		return words
	case placeAgent:
		add("the User-Agent")
		return words
	}
	if source == PlanKey {
		add("the windows' own limits")
		return words
	}
	for _, w := range l.Rows() {
		for _, part := range w.Key {
			i := slices.Index(part, source)
			if i < 0 {
				continue
			}
			next := identity.IP
			for _, other := range part[i+1:] {
				if r.hasSource(other) {
					next = other
					break
				}
			}
			row := weir.SourceOf(next)
			switch {
			case row.Kind == weir.Address:
				next = "address"
			case row.Kind == weir.Common:
				next = "budget of everyone"
			case row.Field != "":
				next = strings.Replace(next, ":", " ", 1) // the header X-Api-Key
			}
			add("the " + next)
		}
	}
	return words
}

// hasSource reports whether the log has any value of a source.
func (r *Replay) hasSource(source string) bool {
	place := slices.Index(r.sources.all, source)
	return place < 0 || place <= placeAgent || r.caller.seen>>place&1 != 0
}
