package admin_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/policyfile"
)

func TestARefusalIsExplained(t *testing.T) {
	var sealer *denial.Sealer
	f := newFixture(t, func(o *admin.Options) {
		var err error
		if sealer, err = denial.New(func() []byte { return []byte(strings.Repeat("k", 32)) }, func() string { return live.Version(o.Decider.Policy()) }, strings.NewReader(strings.Repeat("salt", 100)), nil); err != nil {
			t.Fatal(err)
		}
		o.Denials = sealer.Open
	})
	f.spend(5, "/leads", "192.0.2.7:1")
	caller := address{netip.MustParseAddr("192.0.2.7")}
	d, err := f.decider.Decide(t.Context(), weir.Request{Method: "POST", Path: "/leads", Keys: caller})
	if err != nil || d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	id := sealer.ID(&d, caller, nil)
	var x struct {
		Limiter, Window, Kinds, Line, Reads, Changed string
		Limit, Count, At, Reset                      int64
		Same                                         bool `json:"policy_in_force"`
	}
	f.answered(call{method: "GET", path: "/denials/" + id}, &x)
	if x.Limiter != "leads" || x.Window != "5 per minute by session or ip" || x.Kinds != "ip" || x.Limit != 5 || x.Count != 5 || x.At != start || x.Reset != start+60 || !x.Same || x.Line != "stream:3" {
		t.Errorf("%+v", x)
	}
	var got inspection
	f.answered(f.post("/keys/reset", `{"denial":"`+id+`","why":"x"}`), &got)
	if got.String() != "leads 0/5, leads 0/20" {
		t.Errorf("%v", got)
	}
	f.refused(f.post("/keys/reset", `{"denial":"`+id+`","limiter":"sync","why":"x"}`), 422, "other_limiter")
	f.refused(call{method: "GET", path: "/denials/" + id[:len(id)-2]}, 422, "invalid_denial")
	f.refused(call{method: "GET", path: "/denials/%1b%5b31m%00"}, 422, "invalid_denial")
	next := strings.ReplaceAll(policyText, "5 per minute", "6 per minute")
	f.answered(call{method: "POST", path: "/policy", body: next, header: map[string]string{"Content-Type": "application/yaml"}}, nil)
	f.answered(call{method: "GET", path: "/denials/" + id}, &x)
	if x.Same || !strings.HasPrefix(x.Reads, "6 per minute by session or ip") || x.Changed == "" {
		t.Errorf("%+v", x)
	}
}

// The id of a denied caller tells by which item of deny, and by which network of a file.
func TestADenialIsExplainedByItsItem(t *testing.T) {
	var sealer *denial.Sealer
	f := newFixture(t, func(o *admin.Options) {
		var err error
		if sealer, err = denial.New(func() []byte { return []byte(strings.Repeat("k", 32)) }, func() string { return "v" }, strings.NewReader(strings.Repeat("salt", 100)), nil); err != nil {
			t.Fatal(err)
		}
		o.Denials = sealer.Open
	})
	p := f.decider.Policy()
	blocked, err := policyfile.ParseNetworks("blocked.txt", "blocked.txt", []byte("198.51.100.0/24\n2001:db8::/32\n"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Limiters {
		p.Limiters[i].Deny = []weir.Who{{Network: netip.MustParsePrefix("192.0.2.7/32")}, {Networks: blocked}}
	}
	if err := f.decider.Swap(p); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "198.51.100.9": "@blocked.txt (198.51.100.0/24)", "2001:db8:1::9": "@blocked.txt (2001:db8::/32)",
	} {
		caller := exact{address{netip.MustParseAddr(from)}}
		d, err := f.decider.Decide(t.Context(), weir.Request{Method: "POST", Path: "/leads", Keys: caller})
		if err != nil || d.Outcome != weir.Denied {
			t.Fatalf("%+v, %v", d, err)
		}
		var x struct {
			Kinds  string
			Denied bool
			By     string `json:"denied_by"`
		}
		if f.answered(call{method: "GET", path: "/denials/" + sealer.ID(&d, caller, nil)}, &x); !x.Denied || x.By != want || x.Kinds != "ip" {
			t.Errorf("%s: %+v, want %s", from, x, want)
		}
	}
}

type address struct{ netip.Addr }

func (a address) AppendKey(dst []byte, source string) ([]byte, bool) {
	if source != "ip" {
		return dst, false
	}
	return append(dst, a.AsSlice()...), true
}

// An exact caller is one whose address networks are compared with.
type exact struct{ address }

func (e exact) Addr() netip.Addr { return e.address.Addr }
