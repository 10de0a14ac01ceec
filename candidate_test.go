package weir_test

import (
	"errors"
	"testing"

	"github.com/weirlimit/weir"
)

func TestACandidateIsComparedAndNeverEnforced(t *testing.T) {
	x := newTried(t, policyOf(routed(limiter("live", "2 per minute by ip"), "/a*"), routed(limiter("gone", "1 per minute by ip"), "/gone")))
	x.get("/a", ip)
	if _, compared := x.take(); compared != "" {
		t.Errorf("compared %q before there was a candidate", compared)
	}
	candidate := policyOf(routed(limiter("live", "1 per minute by ip"), "/a*"), routed(limiter("new", "1 per minute by ip"), "/new"))
	if err := x.d.SetCandidate(&candidate, newStore(t, x.clock)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ path, live, compared string }{
		{"/a", "allowed 2 0 60 0", "allowed by live, allowed by live"},
		{"/a", "refused 2 0 60 60", "refused by live, refused by live"},
		{"/gone", "allowed 1 0 60 0", "allowed by gone, unlimited"},
		{"/gone", "refused 1 0 60 60", "refused by gone, unlimited"},
	} {
		x.want(x.get(want.path, ip), want.live)
		if _, got := x.take(); got != want.compared {
			t.Errorf("%s: %q, want %q", want.path, got, want.compared)
		}
	}
	for _, want := range []string{"unlimited, allowed by new", "unlimited, refused by new"} {
		if d := x.get("/new", ip); !d.Allowed || d.Outcome != weir.Unlimited {
			t.Errorf("%+v", d)
		}
		if _, got := x.take(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	x.ask("live", weir.Peek, ip)
	if _, got := x.take(); got != "" {
		t.Errorf("a peek was compared: %q", got)
	}
	x.ask("live", 0, caller{"ip": "192.0.2.9"})
	if _, got := x.take(); got != "allowed by live, allowed by live" {
		t.Errorf("by name: %q", got)
	}
	if err := x.d.SetCandidate(nil, nil); err != nil {
		t.Fatal(err)
	}
	x.get("/a", ip)
	if _, got := x.take(); got != "" {
		t.Errorf("compared %q after the candidate was taken away", got)
	}
}

func TestACostThatACandidateCanNeverServeIsCompared(t *testing.T) {
	x := newTried(t, policyOf(limiter("live", "5 per minute by ip")))
	candidate := policyOf(limiter("live", "2 per minute by ip"))
	if err := x.d.SetCandidate(&candidate, newStore(t, x.clock)); err != nil {
		t.Fatal(err)
	}
	x.want(x.ask("live", 3, ip), "allowed 5 2 60 0")
	if _, got := x.take(); got != "allowed by live, never served" {
		t.Errorf("%q", got)
	}
}

func TestAnInvalidCandidateChangesNothing(t *testing.T) {
	x := newTried(t, policyOf(routed(limiter("live", "2 per minute by ip"), "/a*")))
	good := policyOf(routed(limiter("live", "1 per minute by ip"), "/a*"))
	if err := x.d.SetCandidate(&good, newStore(t, x.clock)); err != nil {
		t.Fatal(err)
	}
	var problems *weir.PolicyError
	if err := x.d.SetCandidate(&weir.Policy{}, newStore(t, x.clock)); !errors.As(err, &problems) {
		t.Errorf("an empty candidate: %v", err)
	}
	if err := x.d.SetCandidate(&good, &slowFor{}); err == nil {
		t.Error("a remote store is accepted")
	}
	x.get("/a", ip)
	if _, got := x.take(); got != "allowed by live, allowed by live" {
		t.Errorf("%q", got)
	}
}
