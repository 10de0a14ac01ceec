package weir_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/netfile"
)

// netset are Networks of a test.
type netset struct {
	name     string
	networks []netip.Prefix
}

func networks(name string, list ...string) *netset {
	s := &netset{name: name}
	for _, n := range list {
		s.networks = append(s.networks, netip.MustParsePrefix(n))
	}
	return s
}

func (s *netset) Contains(addr netip.Addr) bool {
	for _, n := range s.networks {
		if n.Contains(addr) {
			return true
		}
	}
	return false
}

func (s *netset) Network(addr netip.Addr) (longest netip.Prefix) {
	for _, n := range s.networks {
		if n.Contains(addr) && n.Bits() > longest.Bits() {
			longest = n
		}
	}
	return longest
}

func (s *netset) String() string { return "@" + s.name }

func (b *bench) ofKeys(keys weir.Keys) weir.Decision {
	b.Helper()
	d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: keys})
	if err != nil {
		b.Fatal(err)
	}
	return d
}

func TestADeniedCallerIsRefusedWithoutBeingCounted(t *testing.T) {
	l := limiter("l", "2 per minute by ip")
	l.Deny = []weir.Who{whom("10.0.0.0/8"), {Networks: networks("blocked.txt", "198.51.100.0/24")}, whom("token abc")}
	b := newBench(t, policyOf(l))
	for _, bad := range []weir.Keys{from("10.1.2.3", ""), from("198.51.100.7", ""), from("192.0.2.1", "abc"), from("::ffff:10.1.2.3", "")} {
		d := b.ofKeys(bad)
		if d.Allowed || d.Outcome != weir.Denied || d.DeniedBy == nil || d.DeniedBy.Name != "l" || len(d.Standings()) != 0 || d.RetryAfter() != 0 {
			t.Errorf("%v: %+v", bad, d)
		}
		if d.Binding() != (weir.Standing{}) {
			t.Errorf("%v has a binding window: %+v", bad, d.Binding())
		}
	}
	// the address of the denied token was not charged
	b.want(b.ofKeys(from("192.0.2.1", "")), "allowed 2 1 60 0")
	// only an exact address is one of a network
	if d := b.ofKeys(caller{"ip": "10.1.2.3"}); d.Outcome == weir.Denied {
		t.Errorf("a key source that may be a whole network is denied: %+v", d)
	}
}

func TestADeniedCallerOfOneNamedLimiterIsChargedToNone(t *testing.T) {
	open, closed := limiter("open", "2 per minute by ip"), limiter("closed", "2 per minute by ip")
	closed.Deny = []weir.Who{whom("10.0.0.0/8")}
	b := newBench(t, policyOf(open, closed))
	for _, order := range [][]string{{"open", "closed"}, {"closed", "open"}} {
		d, err := b.d.Decide(context.Background(), weir.Request{Limiters: order, Keys: from("10.1.2.3", "")})
		if err != nil || d.Outcome != weir.Denied || d.DeniedBy.Name != "closed" {
			t.Errorf("%v: %+v, %v", order, d, err)
		}
	}
	b.want(b.ask("open", weir.Peek, caller{"ip": "10.1.2.3"}), "allowed 2 2 60 0")
}

func TestDenyWinsOverExempt(t *testing.T) {
	l := limiter("l", "2 per minute by ip")
	l.Exempt = []weir.Who{whom("10.1.2.3"), {Networks: networks("office.txt", "10.1.2.0/24")}, whom("token vip")}
	l.Deny = []weir.Who{whom("10.0.0.0/8"), whom("token both")}
	b := newBench(t, policyOf(l))
	for _, keys := range []weir.Keys{from("10.1.2.3", ""), from("10.1.2.3", "vip"), from("10.1.2.4", "")} {
		if d := b.ofKeys(keys); d.Outcome != weir.Denied {
			t.Errorf("%v: %+v", keys, d)
		}
	}
	if d := b.ofKeys(from("192.0.2.1", "vip")); !d.Exempt {
		t.Errorf("an exempt token: %+v", d)
	}
}

// curious are Keys that report whether they were asked for a token.
type curious struct {
	at
	asked *bool
}

func (c curious) AppendKey(dst []byte, source string) ([]byte, bool) {
	*c.asked = *c.asked || source == "token"
	return c.at.AppendKey(dst, source)
}

func TestADeniedAddressIsNotAskedForItsToken(t *testing.T) {
	l := limiter("l", "2 per minute by token or ip")
	l.Exempt, l.Deny = []weir.Who{whom("token vip")}, []weir.Who{whom("10.0.0.0/8")}
	b := newBench(t, policyOf(l))
	asked := false
	if d := b.ofKeys(curious{from("10.1.2.3", "vip"), &asked}); d.Outcome != weir.Denied || asked {
		t.Errorf("asked for the token: %v; %+v", asked, d)
	}
	if d := b.ofKeys(curious{from("192.0.2.1", "vip"), &asked}); d.Outcome == weir.Denied || !asked {
		t.Errorf("asked for the token: %v; %+v", asked, d)
	}
}

func TestNetworksOfAFileAreExemptOrHaveOverrides(t *testing.T) {
	office, partners := networks("office.txt", "10.0.0.0/8"), networks("partners.txt", "192.0.2.0/24", "2001:db8::/32")
	l := limiter("l", "2 per minute by ip")
	l.Exempt = []weir.Who{{Networks: office}}
	l.Overrides = []weir.Override{{Limit: 5, Per: time.Minute, For: weir.Who{Networks: partners}}, override("7 per minute for 192.0.2.9")}
	b := newBench(t, policyOf(l))
	if d := b.ofKeys(from("10.1.2.3", "")); !d.Exempt {
		t.Errorf("%+v", d)
	}
	b.want(b.ofKeys(from("192.0.2.1", "")), "allowed 5 4 60 0")
	b.want(b.ofKeys(from("2001:db8::1", "")), "allowed 5 4 60 0")
	// a network that is written out comes first
	b.want(b.ofKeys(from("192.0.2.9", "")), "allowed 7 6 60 0")
	b.want(b.ofKeys(from("198.51.100.1", "")), "allowed 2 1 60 0")
}

func TestADenyingLimiterInShadowModeOnlyReports(t *testing.T) {
	l := shadowOf(routed(limiter("s", "9 per minute by ip"), "/a*", "/b*"))
	l.Deny = []weir.Who{whom("10.0.0.0/8")}
	x := newTried(t, policyOf(l, routed(limiter("l", "9 per minute by ip"), "/a*")))
	if d := x.get("/a", from("10.1.2.3", "")); !d.Allowed || d.Binding().Remaining != 8 {
		t.Errorf("%+v", d)
	}
	x.wantShadows("s false")
	if d := x.get("/b", from("10.1.2.3", "")); !d.Allowed || d.Outcome != weir.Unlimited {
		t.Errorf("%+v", d)
	}
}

func TestACandidateThatDeniesIsComparedAndNotEnforced(t *testing.T) {
	l := routed(limiter("l", "9 per minute by ip"), "/*")
	x := newTried(t, policyOf(l))
	l.Deny = []weir.Who{whom("10.0.0.0/8")}
	p := policyOf(l)
	if err := x.d.SetCandidate(&p, newStore(t, x.clock)); err != nil {
		t.Fatal(err)
	}
	if d := x.get("/a", from("10.1.2.3", "")); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if _, compared := x.take(); compared != "allowed by l, denied by l" {
		t.Errorf("compared: %q", compared)
	}
}

func TestAnOperatorSeesTheWindowsOfADeniedCaller(t *testing.T) {
	l := limiter("l", "9 per minute by ip")
	b := newBench(t, policyOf(l))
	b.ofKeys(from("10.1.2.3", ""))
	l.Deny = []weir.Who{whom("10.0.0.0/8")}
	if err := b.d.Swap(policyOf(l)); err != nil {
		t.Fatal(err)
	}
	all, err := b.d.Inspect(context.Background(), "l", from("10.1.2.3", ""))
	if err != nil || len(all) != 1 || !all[0].Denied || all[0].Count != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err = b.d.Inspect(context.Background(), "l", from("192.0.2.1", "")); err != nil || all[0].Denied {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestProblemsOfDenyAndOfNetworks(t *testing.T) {
	file := networks("a.txt", "10.0.0.0/8")
	for name, x := range map[string]struct {
		change func(*weir.Limiter)
		want   string
	}{
		"denied twice":      {func(l *weir.Limiter) { l.Deny = []weir.Who{whom("10.0.0.1"), whom("10.0.0.1")} }, "10.0.0.1 is denied twice"},
		"denied and exempt": {func(l *weir.Limiter) { l.Exempt, l.Deny = []weir.Who{{Networks: file}}, []weir.Who{{Networks: file}} }, "@a.txt is exempt and denied"},
		"denied with override": {func(l *weir.Limiter) {
			l.Deny, l.Overrides = []weir.Who{whom("10.0.0.1")}, []weir.Override{override("5 per minute for 10.0.0.1")}
		}, "these callers are denied"},
		"not read":    {func(l *weir.Limiter) { l.Deny = []weir.Who{whom("@a.txt")} }, "@a.txt: the file was not read"},
		"two at once": {func(l *weir.Limiter) { l.Deny = []weir.Who{{Token: "a", Networks: file}} }, "at once"},
		"no name":     {func(l *weir.Limiter) { l.Deny = []weir.Who{{Networks: networks("")}} }, "networks without a name"},
		"no caller":   {func(l *weir.Limiter) { l.Deny = []weir.Who{{}} }, "deny: no caller is named"},
	} {
		l := limiter("l", "9 per minute by ip")
		x.change(&l)
		problems := policyOf(l).Problems(nil)
		if len(problems) != 1 || !strings.Contains(problems[0].Message, x.want) {
			t.Errorf("%s: %+v", name, problems)
		}
	}
	if _, err := weir.ParseWho("@"); err == nil {
		t.Error("@ alone is a caller")
	}
	if name, ok := whom("@lists/a b.txt").NetworksName(); !ok || name != "lists/a b.txt" {
		t.Errorf("%q, %v", name, ok)
	}
	if _, ok := whom("10.0.0.1").NetworksName(); ok {
		t.Error("an address has the name of networks")
	}
}

func TestMapNetworksLeavesThePolicyAsItWas(t *testing.T) {
	l := limiter("l", "9 per minute by ip")
	l.Exempt, l.Deny = []weir.Who{whom("@a"), whom("10.0.0.1")}, []weir.Who{whom("@b")}
	l.Overrides = []weir.Override{override("5 per minute for @c")}
	p := policyOf(l)
	out := p.MapNetworks(func(n weir.Networks) weir.Networks { return networks(n.String()[1:], "192.0.2.0/24") })
	if problems := out.Problems(nil); len(problems) > 0 {
		t.Errorf("%+v", problems)
	}
	if problems := p.Problems(nil); len(problems) != 3 {
		t.Errorf("the policy was changed: %+v", problems)
	}
}

// A hundred thousand blocked networks may cost at most 60 ns a decision.
func BenchmarkDecideBesideDeniedNetworks(b *testing.B) {
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "%d.%d.%d.0/24\n", 1+i%200, i/200%250, i%7)
	}
	blocked, err := netfile.Parse("blocked.txt", []byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	for name, deny := range map[string][]weir.Who{"none": nil, "100000": {{Networks: blocked}}} {
		b.Run(name, func(b *testing.B) {
			l := limiter("l", "1000000000 per hour by ip")
			l.Deny = deny
			d := newDecider(b, policyOf(l))
			var out weir.Decision
			r := weir.Request{Limiters: []string{"l"}, Keys: &addressKeys{netip.MustParseAddr("203.0.113.77")}, Scratch: new(weir.Scratch)}
			b.ReportAllocs()
			for b.Loop() {
				if err := d.DecideInto(context.Background(), &r, &out); err != nil || !out.Allowed {
					b.Fatal(out, err)
				}
			}
		})
	}
}

type addressKeys struct{ addr netip.Addr }

func (k *addressKeys) Addr() netip.Addr { return k.addr }

func (k *addressKeys) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, "203.0.113.77"...), source == "ip"
}

func TestDecideDoesNotAllocateBesideDeniedNetworks(t *testing.T) {
	l := limiter("l", "1000000000 per hour by ip")
	blocked, err := netfile.Parse("blocked.txt", []byte("192.0.2.0/24\n198.51.100.7\n2001:db8::/32"))
	if err != nil {
		t.Fatal(err)
	}
	l.Deny = []weir.Who{{Networks: blocked}, whom("10.0.0.0/8")}
	d := newDecider(t, policyOf(l))
	var out weir.Decision
	for addr, denied := range map[string]bool{"203.0.113.77": false, "192.0.2.9": true} {
		r := weir.Request{Limiters: []string{"l"}, Keys: &addressKeys{netip.MustParseAddr(addr)}, Scratch: new(weir.Scratch)}
		n := testing.AllocsPerRun(100, func() {
			if err := d.DecideInto(context.Background(), &r, &out); err != nil || out.Allowed == denied {
				t.Fatal(out, err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", addr, n)
		}
	}
}
