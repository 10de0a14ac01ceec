package weir_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// at is a caller with an exact address.
type at struct {
	caller
	addr netip.Addr
}

func (a at) Addr() netip.Addr { return a.addr }

func from(addr, token string) at {
	c := caller{"ip": addr}
	if token != "" {
		c["token"] = token
	}
	return at{c, netip.MustParseAddr(addr)}
}

func whom(s string) weir.Who {
	w, err := weir.ParseWho(s)
	if err != nil {
		panic(err)
	}
	return w
}

func override(s string) weir.Override {
	o, err := weir.ParseOverride(s)
	if err != nil {
		panic(err)
	}
	return o
}

func TestAnExemptCallerIsCountedAndNeverRefused(t *testing.T) {
	l := limiter("l", "2 per minute by ip")
	l.Exempt = []weir.Who{whom("10.0.0.0/8"), whom("token vip")}
	b := newBench(t, policyOf(l))
	for _, vip := range []weir.Keys{from("10.1.2.3", ""), from("192.0.2.9", "vip")} {
		for i := range 5 {
			d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: vip})
			if err != nil || !d.Allowed || !d.Exempt || d.Binding().Count != int64(i+1) {
				t.Fatalf("request %d: %+v, %v", i+1, d, err)
			}
			b.want(d, "allowed 2 2 60 0") // the whole limit remains, even if many were sent
		}
	}
	other := from("192.0.2.9", "other") // counts in the window that vip has filled
	d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: other})
	if err != nil || d.Allowed || d.Exempt {
		t.Errorf("another caller at a full address: %+v, %v", d, err)
	}
	// If a caller has its address only as a key source, it matches no network,
	// because the source may be one.
	d, err = b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: caller{"ip": "10.1.2.3"}})
	if err != nil || d.Exempt {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestTheClosestOverrideApplies(t *testing.T) {
	l := limiter("l", "10 per minute by ip", "100 per hour by ip")
	l.Overrides = []weir.Override{
		override("20 per minute for 10.0.0.0/8"), override("200 per hour for 10.0.0.0/8"),
		override("30 per minute for 10.1.0.0/16"), override("5 per minute for 10.1.2.3"),
		override("40 per minute for token vip"), override("60 per minute for 2001:db8::/32"),
	}
	b := newBench(t, policyOf(l))
	for _, want := range []struct {
		keys         weir.Keys
		minute, hour int64
	}{
		{from("192.0.2.1", ""), 10, 100},
		{from("10.9.9.9", ""), 20, 200},
		{from("10.1.9.9", ""), 30, 200},
		{from("10.1.2.3", ""), 5, 200},
		{from("10.1.2.3", "vip"), 40, 200},
		{from("192.0.2.2", "vip"), 40, 100},
		{from("2001:db8::1", ""), 60, 100},
		{from("2001:db9::1", ""), 10, 100},
		{from("::ffff:10.9.9.8", ""), 20, 200},
	} {
		d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: want.keys, Cost: weir.Peek})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range d.Standings() {
			limit := want.minute
			if s.Window.Per == time.Hour {
				limit = want.hour
			}
			if s.Limit != limit || s.Remaining != limit {
				t.Errorf("%v: %d of %d left of %v, want %d", want.keys, s.Remaining, s.Limit, s.Window, limit)
			}
		}
	}
}

func TestAnOverrideIsExact(t *testing.T) {
	l := limiter("l", "2 per minute by ip")
	l.Overrides = []weir.Override{override("4 per minute for token vip"), override("1 per minute for 192.0.2.8")}
	b := newBench(t, policyOf(l))
	admitted := func(keys weir.Keys) (n int) {
		for range 10 {
			d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				n++
			}
		}
		return n
	}
	if vip, slow, other := admitted(from("192.0.2.7", "vip")), admitted(from("192.0.2.8", "")), admitted(from("192.0.2.9", "")); vip != 4 || slow != 1 || other != 2 {
		t.Errorf("admitted %d, %d and %d", vip, slow, other)
	}
}

// An exempt caller is admitted even if its request cannot be counted.
func TestAnExemptCallerPassesWhileTheStoreIsSilent(t *testing.T) {
	l := limiter("l", "2 per minute by ip")
	l.OnStoreFailure, l.Exempt = weir.FailDeny, []weir.Who{whom("10.0.0.0/8")}
	d, err := weir.New(policyOf(l), &slowFor{Store: silent{}}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]weir.Outcome{"10.1.2.3": weir.AllowedUncounted, "192.0.2.1": weir.StoreUnavailable} {
		got, err := d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: from(addr, "")})
		if err != nil || got.Outcome != want || got.Allowed != (want == weir.AllowedUncounted) {
			t.Errorf("%s: %+v, %v", addr, got, err)
		}
	}
}

// silent never answers.
type silent struct{}

func (silent) Take(context.Context, []weir.Charge, *weir.Receipt) error {
	return errors.New("no server")
}

// Of all networks that have a caller, the longest holds, whether the policy or a file has it; of
// equally long ones that of the policy, and then the first file that is named.
func TestTheLongestNetworkOfAllSetsHolds(t *testing.T) {
	wide, narrow := networks("wide.txt", "10.0.0.0/8", "10.1.0.0/16", "10.3.3.0/24"), networks("narrow.txt", "10.1.2.0/24", "10.3.3.0/24")
	of := func(limit int64, n weir.Networks) weir.Override {
		return weir.Override{Limit: limit, Per: time.Minute, For: weir.Who{Networks: n}}
	}
	l := limiter("l", "100 per minute by ip")
	l.Overrides = []weir.Override{
		of(11, wide), of(22, narrow), override("33 per minute for 10.1.2.128/25"), override("44 per minute for 10.1.0.0/16"), override("55 per minute for 10.0.0.0/7"),
		of(66, plainSet{networks("plain.txt", "10.1.2.3/32", "192.0.2.0/24")}),
	}
	b := newBench(t, policyOf(l))
	d, err := weir.New(policyOf(routed(l, "/a")), newStore(t, b.clock), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]int64{
		"10.1.2.3":    22,  // /24 of the second file
		"10.1.2.200":  33,  // /25 of the policy
		"10.1.9.9":    44,  // /16 of both
		"10.9.9.9":    11,  // /8 of the first file
		"10.3.3.3":    11,  // /24 of two files
		"11.0.0.1":    55,  // /7 of the policy
		"192.0.2.1":   66,  // a set that does not know its networks
		"203.0.113.1": 100, // none
	} {
		keys := from(addr, "")
		if got := b.ofKeys(keys); got.Binding().Limit != want {
			t.Errorf("%s: limit %d, want %d", addr, got.Binding().Limit, want)
		}
		got := d.Match("GET", "", "/a").CallerLimits(keys)
		if len(got) != 1 || got[0].Limit != want || (got[0].Override == nil) != (want == 100) || got[0].Override != nil && got[0].Override.Limit != want {
			t.Errorf("%s: %+v, want %d", addr, got, want)
		}
	}
}

// A plainSet does not know which of its networks has an address.
type plainSet struct{ set *netset }

func (s plainSet) Contains(addr netip.Addr) bool { return s.set.Contains(addr) }
func (s plainSet) String() string                { return s.set.String() }
