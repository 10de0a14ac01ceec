package weir_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// A bearer is a caller with credentials: it lacks those that it has no value for.
type bearer struct{ caller }

func (b bearer) Lacks(credential string) bool { _, ok := b.caller[credential]; return !ok }

func requiring(l weir.Limiter, credential string) weir.Limiter {
	l.Requires = credential
	return l
}

// judgedBy returns what a candidate reports of requests under it and the policy in force.
func judgedBy(t *testing.T, live, candidate weir.Policy, callers ...weir.Keys) (got []weir.Compared) {
	t.Helper()
	x := newBench(t, live)
	d, err := weir.New(live, newStore(t, x.clock), weir.Options{OnCandidate: func(c weir.Compared) {
		inForce, would := *c.Live, *c.Candidate // it reuses them
		c.Live, c.Candidate = &inForce, &would
		got = append(got, c)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetCandidate(&candidate, newStore(t, x.clock)); err != nil {
		t.Fatal(err)
	}
	for _, c := range callers {
		if _, err := d.Decide(t.Context(), weir.Request{Method: "GET", Path: "/a", Keys: c}); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// A request that a policy admits and answers 401 is not served (D16, D27).
func TestACandidateKnowsWhoLacksTheCredentialThatItRequires(t *testing.T) {
	open := policyOf(routed(limiter("a", "2 per minute by ip"), "/a"))
	closed := policyOf(routed(requiring(limiter("a", "2 per minute by ip"), "session"), "/a"))
	with, without := bearer{caller{"ip": "192.0.2.1", "session": "s"}}, bearer{caller{"ip": "192.0.2.2"}}
	for _, test := range []struct {
		name            string
		live, candidate weir.Policy
		callers         []weir.Keys
		want            []weir.Effect
	}{
		{"without it", open, closed, []weir.Keys{without, without, without}, []weir.Effect{weir.NewlyRefused, weir.NewlyRefused, weir.Same}},
		{"with it", open, closed, []weir.Keys{with}, []weir.Effect{weir.Same}},
		{"no longer required", closed, open, []weir.Keys{without, with}, []weir.Effect{weir.NewlyAdmitted, weir.Same}},
		{"required by both", closed, closed, []weir.Keys{without, with}, []weir.Effect{weir.Same, weir.Same}},
		{"of a door that answers no 401", open, closed, []weir.Keys{without.caller}, []weir.Effect{weir.Same}},
	} {
		var got []weir.Effect
		for _, c := range judgedBy(t, test.live, test.candidate, test.callers...) {
			got = append(got, c.Effect())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// A caller that is rejected spends nothing of what all callers share, under each policy by what
// that requires (D16).
func TestACandidateCountsWhoLacksTheCredentialApart(t *testing.T) {
	open := policyOf(routed(limiter("a", "9 per minute by everyone"), "/a"))
	closed := policyOf(routed(requiring(limiter("a", "9 per minute by everyone"), "session"), "/a"))
	with, without := bearer{caller{"ip": "192.0.2.1", "everyone": "", "session": "s"}}, bearer{caller{"ip": "192.0.2.2", "everyone": ""}}
	for _, test := range []struct {
		name            string
		live, candidate weir.Policy
		want            [2]int64 // left in force and under the candidate
	}{
		{"required by the candidate", open, closed, [2]int64{6, 8}},
		{"required in force", closed, open, [2]int64{8, 6}},
	} {
		got := judgedBy(t, test.live, test.candidate, without, without, with)
		last := got[len(got)-1]
		if left := [2]int64{last.Live.Binding().Remaining, last.Candidate.Binding().Remaining}; left != test.want {
			t.Errorf("%s: %v left, want %v", test.name, left, test.want)
		}
	}
}

// What a limiter does not count by its status, it does not count of a request that it rejects.
func TestACandidateSettlesWhatItRejects(t *testing.T) {
	open := policyOf(routed(limiter("a", "9 per minute by ip"), "/a"))
	closed := requiring(limiter("a", "9 per minute by ip"), "session")
	closed.Count = weir.Count{Not: true, Statuses: []weir.Statuses{{Low: 401, High: 401}}}
	without := bearer{caller{"ip": "192.0.2.2"}}
	got := judgedBy(t, open, policyOf(routed(closed, "/a")), without, without)
	if left := got[1].Candidate.Binding().Remaining; left != 8 {
		t.Errorf("%d left, want 8", left)
	}
}

// A limiter in Shadow mode reports whom it would reject, and settles it as if it had.
func TestAShadowLimiterKnowsWhoLacksTheCredentialThatItRequires(t *testing.T) {
	closed := requiring(limiter("closed", "2 per minute by ip"), "session")
	uncounted := requiring(limiter("uncounted", "2 per minute by ip"), "session")
	uncounted.Count = weir.Count{Not: true, Statuses: []weir.Statuses{{Low: 401, High: 401}}}
	with, without := bearer{caller{"ip": "192.0.2.1", "session": "s"}}, bearer{caller{"ip": "192.0.2.2"}}
	type answer struct{ Allowed, Rejects bool }
	admits, rejects, refuses := answer{true, false}, answer{true, true}, answer{false, false}
	for _, test := range []struct {
		limiter weir.Limiter
		keys    weir.Keys
		want    []answer
	}{
		{closed, with, []answer{admits, admits, refuses}},
		{closed, without, []answer{rejects, rejects, refuses}},
		// Of a door that answers no 401.
		{closed, without.caller, []answer{admits, admits, refuses}},
		{uncounted, without, []answer{rejects, rejects, rejects}},
	} {
		p := policyOf(routed(shadowOf(test.limiter), "/a"), routed(limiter("a", "9 per minute by ip"), "/a"))
		clock := storetest.StartManualClock()
		store := newStore(t, clock)
		for _, s := range []weir.Store{store, &yieldingSettler{Settler: store}} {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var got []answer
				d, err := weir.New(p, s, weir.Options{OnShadow: func(s weir.Shadowed) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, answer{s.Decision.Allowed, s.Rejects})
				}})
				if err != nil {
					t.Fatal(err)
				}
				for range test.want {
					live, err := d.Decide(t.Context(), weir.Request{Method: "GET", Path: "/a", Keys: test.keys})
					if err != nil || !live.Allowed {
						t.Fatalf("%v, %v", live.Outcome, err)
					}
					synctest.Wait()
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("%s, in this process %v: %v, want %v", test.limiter.Name, s == weir.Store(store), got, test.want)
				}
			})
			clock.Advance(time.Minute)
		}
	}
}
