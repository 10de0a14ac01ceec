package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/memstore"
)

// explain judges a request without sending it. sent is a path as a client would send it, escapes and all.
func explain(p weir.Policy, method, sent string, who caller) (*explanation, error) {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	d, err := weir.New(p, store, weir.Options{Sources: identity.Sources()})
	if err != nil {
		return nil, err
	}
	e := &explanation{Method: method, Path: sent, Windows: []explainedWindow{}}
	escaped, query, asks := strings.Cut(sent, "?")
	ambiguous := identity.AgentIsAmbiguous(query)
	path, err := target.Canonical(escaped)
	if err != nil { // D10: no single safe reading
		e.because(fmt.Sprintf("%v: backends differ in how they read that, so it is answered 400 invalid_request, and charged to the surface's fallback", err))
		var unreadable target.Choice
		target.Choose(d, &target.Request{Method: method, Raw: escaped}, &unreadable)
		return e, e.fill(unreadable.Match, who)
	}
	e.Canonical = path
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return nil, fmt.Errorf("decode the canonical path %q: %w", path, err)
	}
	if path != escaped {
		e.because(fmt.Sprintf("%s is another spelling of %s: dot segments are resolved, empty segments folded, needless escapes undone; the backend receives this form", escaped, path))
	}
	var choice target.Choice
	target.Choose(d, &target.Request{Method: method, Path: decoded, Ambiguous: ambiguous}, &choice)
	if choice.Kind == target.Health {
		e.because("the gateway answers health checks itself, outside all limits")
		return e, nil
	}
	if choice.Kind == target.AmbiguousAgent {
		e.because("readers differ about the agent that the query names: without X-Agent-Id it is answered 400 invalid_request, and charged to the surface's fallback")
		return e, e.fill(choice.Match, who)
	}
	if asks {
		e.because("the query plays no part in the choice")
	}
	match := choice.Match
	if err := e.fill(match, who); err != nil {
		return nil, err
	}
	e.explainRoute(p, method, decoded, match)
	e.explainShadows(p, method, decoded, match)
	e.explainMethod(d, method, decoded)
	return e, nil
}

func (e *explanation) because(why string) { e.Why = append(e.Why, why) }

// fill takes over the limiter of a match, if there is one.
func (e *explanation) fill(m weir.Match, who caller) error {
	l := m.Limiter()
	if l == nil {
		return nil
	}
	text, err := messageText(answer.MessageOf(l))
	if err != nil {
		return err
	}
	e.Limiter, e.Route, e.Cost = l.Name, m.Route().String(), max(l.Cost, 1)
	e.Message = &messageJSON{Name: answer.MessageOf(l), Text: text}
	for _, w := range l.Windows {
		e.Windows = append(e.Windows, explainWindow(w, who))
	}
	e.explainExceptions(l, who)
	return nil
}

// explainExceptions says what a limiter has for this caller alone.
func (e *explanation) explainExceptions(l *weir.Limiter, who caller) {
	for _, x := range l.Exempt {
		if who.is(x) {
			e.because(fmt.Sprintf("%s is exempt: counted, and never refused", x))
		}
	}
	for _, o := range l.Overrides {
		if who.is(o.For) {
			e.because(fmt.Sprintf("an override fits the caller: %s; of several the closest holds", o))
		}
	}
}

// explainShadows names the limiters in mode shadow that stand over the one that is enforced.
func (e *explanation) explainShadows(p weir.Policy, method, path string, m weir.Match) {
	if !m.HasTrials() {
		return
	}
	for _, l := range p.Limiters {
		if l.Mode != weir.Shadow {
			continue
		}
		for _, r := range l.Routes {
			if covers(r, method, path) && (m.Limiter() == nil || !moreSpecific(m.Route(), r)) {
				e.because(fmt.Sprintf("%s (%s, mode shadow) judges it too, and refuses nothing", r, l.Name))
				break
			}
		}
	}
}

// moreSpecific reports whether a beats b (D8).
func moreSpecific(a, b weir.Route) bool {
	switch {
	case len(a.Path) != len(b.Path):
		return len(a.Path) > len(b.Path)
	case a.Prefix != b.Prefix:
		return b.Prefix
	}
	return a.Method != "" && b.Method == ""
}

// explainRoute says why the route of m covers path, and why it beat the others that do (D8, D9).
func (e *explanation) explainRoute(p weir.Policy, method, path string, m weir.Match) {
	if m.Limiter() == nil {
		e.because("no route covers it")
		return
	}
	won := m.Route()
	switch {
	case won.Path != path && !won.Prefix:
		e.because(fmt.Sprintf("%s also covers what follows it after / or . or ;, in letters of any case: a backend may take that for the same endpoint", won))
	case won.Prefix:
		e.because(fmt.Sprintf("%s covers every path that begins with %s, and the bare prefix", won, won.Path))
	}
	for _, l := range p.Limiters {
		for _, r := range l.Routes {
			if r != won && l.Mode == weir.Enforce && covers(r, method, path) {
				e.because(fmt.Sprintf("%s beats %s (%s): %s", won, r, l.Name, advantage(won, r)))
			}
		}
	}
}

// covers says whether a route alone would match.
func covers(r weir.Route, method, path string) bool {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		return false
	}
	defer store.Close()
	key, err := weir.ParseKey("ip")
	if err != nil {
		return false
	}
	alone := weir.Policy{Limiters: []weir.Limiter{{
		Name: "alone", Routes: []weir.Route{r}, Windows: []weir.Window{{Limit: 1, Per: weir.MaxPer, Key: key}}}}}
	d, err := weir.New(alone, store, weir.Options{})
	return err == nil && d.Match(method, path).Limiter() != nil
}

// advantage names the rule by which won is the more specific of two routes that cover a path.
func advantage(won, lost weir.Route) string {
	switch {
	case !won.Prefix && lost.Prefix:
		return "a literal path beats a prefix"
	case len(won.Path) > len(lost.Path):
		return "the longer path beats the shorter one"
	default:
		return "a route with a method beats one without"
	}
}

// explainMethod says what becomes of requests whose method is special (D9, D10).
func (e *explanation) explainMethod(d *weir.Decider, method, path string) {
	catchAll := d.CatchAll(path).Limiter()
	switch {
	case method == http.MethodOptions && catchAll != nil:
		e.because(fmt.Sprintf("with Origin and Access-Control-Request-Method it is a CORS preflight: answered by the gateway itself, and charged to %s", catchAll.Name))
	case method != strings.ToUpper(method):
		e.because("methods are case-sensitive: " + method + " is not " + strings.ToUpper(method) + ", and is answered 405")
	}
}
