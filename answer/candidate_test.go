package answer_test

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/memstore"
)

// A candidate that requires a session, on real callers. A preflight needs none (D9, D27).
func TestACandidateKnowsWhoseSessionVerifies(t *testing.T) {
	live := limiters(t, map[string][]string{"a /a": {"9 per minute by ip"}})
	candidate := limiters(t, map[string][]string{"a /a requires session": {"9 per minute by ip"}})
	d := open(t, live, answer.Options{})
	var got []weir.Effect
	var stores [2]weir.Store
	for i := range stores {
		store, err := memstore.New(memstore.Options{Now: d.clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = store
	}
	decider, err := weir.New(live, stores[0], weir.Options{OnCandidate: func(c weir.Compared) { got = append(got, c.Effect()) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := decider.SetCandidate(&candidate, stores[1]); err != nil {
		t.Fatal(err)
	}
	if d.judge, err = answer.New(decider, answer.Options{Identity: d.who}); err != nil {
		t.Fatal(err)
	}
	q := answer.Question{Method: "GET", Path: "/a"}
	preflight := answer.Question{Method: "OPTIONS", Path: "/a", Public: true}
	d.ask(from("192.0.2.7", ""), q)
	d.ask(from("192.0.2.7", "Authorization", "Bearer a.b.c"), q)
	d.ask(from("192.0.2.7", "Authorization", d.session("s")), q)
	d.ask(from("192.0.2.7", ""), preflight)
	want := []weir.Effect{weir.NewlyRefused, weir.NewlyRefused, weir.Same, weir.Same}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
