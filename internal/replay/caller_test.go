package replay

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/accesslog"
	"github.com/weirlimit/weir/internal/target"
)

func TestAPeerIsReadAsTheGatewayReadsIt(t *testing.T) {
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := caller{sources: newSources(&Options{})}
	for text, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "192.0.2.7:80": "192.0.2.7", "2001:db8::7": "2001:db8::7", "[2001:db8::7]:80": "2001:db8::7",
		"[2001:db8::7]": "2001:db8::7", "::ffff:192.0.2.7": "192.0.2.7", "::1": "::1", "fe80::1%eth0": "fe80::1", "1::2:3": "1::2:3",
		"unix:": "", "": "", "-": "", "192.0.2": "", "192.0.2.07": "", "a:b": "", "::g": "", "1:2:3": "", "@": "",
	} {
		t.Run(text, func(t *testing.T) {
			c.start(resolver, &accesslog.Line{Peer: []byte(text)}, "")
			var addr netip.Addr
			if want != "" {
				addr = netip.MustParseAddr(want)
			}
			if got := c.Addr(); got != addr {
				t.Errorf("%q is %v, want %v", text, got, addr)
			}
		})
	}
}

// fromLog replays lines of a log_format with the peer, a request and three fields.
func fromLog(t rapid.TB, o Options, lines ...string) *Report {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	in, err := accesslog.Open(accesslog.Options{
		Stdin: strings.NewReader(strings.Join(lines, "\n")), Reorder: -1,
		Format:    `$remote_addr $msec "$request" "$http_authorization" "$http_x_tenant" "$http_x_forwarded_for"`,
		Fields:    []string{"http_authorization", "http_x_tenant", "http_x_forwarded_for"},
		Malformed: func(m accesslog.Malformed) { t.Fatalf("%s: %q", m.Reason, m.Text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var l accesslog.Line
	for {
		if err := in.Next(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if err := r.Add(&l); err != nil {
			t.Fatal(err)
		}
	}
	return report(t, r)
}

func logged(peer, authorization, tenant, forwarded string) string {
	return fmt.Sprintf(`%s %d.000 "GET / HTTP/1.1" "%s" "%s" "%s"`, peer, noon, authorization, tenant, forwarded)
}

func names(l Limiter) (out []string) {
	for _, c := range l.Worst {
		out = append(out, c.Name)
	}
	return out
}

func TestAFieldIsTakenForAVerifiedCredential(t *testing.T) {
	o := Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by token or session or ip")), Forwarded: -1, Keys: map[string]int{"token": 0, "session": 0}}
	out := fromLog(t, o,
		logged("192.0.2.1", "Bearer wpt_abcdefgh23_secret", "-", "-"),
		logged("192.0.2.2", "bearer wpt_abcdefgh23_other", "-", "-"), // the id counts
		logged("192.0.2.3", "wpt_abcdefgh23", "-", "-"),
		logged("192.0.2.4", "-", "-", "-"), logged("192.0.2.4", "-", "-", "-"))
	l := out.Policy.Limiters[0]
	if got := names(l); !slices.Equal(got, []string{"token abcdefgh23", "ip 192.0.2.4"}) {
		t.Errorf("worst %q", got)
	}
	if len(out.Log.Lacks) > 0 {
		t.Errorf("%+v: the log has tokens, and a caller without one has none", out.Log.Lacks)
	}

	o.Policy = policyOf(limiterOf(t, "all", "1 per minute by session or ip"))
	out = fromLog(t, o, logged("192.0.2.1", "Bearer eyJ.secret", "-", "-"), logged("192.0.2.2", "Bearer eyJ.secret", "-", "-"), logged("192.0.2.2", "Bearer wpt_abcdefgh23_x", "-", "-"))
	l = out.Policy.Limiters[0]
	if got := names(l); len(got) != 1 || !strings.HasPrefix(got[0], "session #") || len(got[0]) != len("session #01234567") || l.Refused != 1 {
		t.Errorf("worst %q, %d refused", got, l.Refused)
	}
}

// A request without the credential that its limiter requires is answered 401, and spends nothing of
// what everyone shares (D16, D27).
func TestARequestWithoutTheRequiredTokenSpendsNothingShared(t *testing.T) {
	l := limiterOf(t, "all", "2 per minute by everyone")
	log := []string{}
	for range 3 {
		log = append(log, logged("192.0.2.4", "-", "-", "-"))
	}
	for range 3 {
		log = append(log, logged("192.0.2.1", "wpt_abcdefgh23", "-", "-"))
	}
	for _, test := range []struct {
		requires string
		keys     map[string]int
		refused  int64
		rejected int64 // of refused
	}{
		// the three of the address, and the third of all
		{"token", map[string]int{"token": 0}, 4, 2},
		// the log does not show who has a token
		{"token", nil, 4, 0},
		{"", map[string]int{"token": 0}, 4, 0},
	} {
		l.Requires = test.requires
		out := fromLog(t, Options{Policy: policyOf(l), Forwarded: -1, Keys: test.keys}, log...)
		if got := out.Policy.Limiters[0]; got.Refused != test.refused || got.Unauthenticated != test.rejected {
			t.Errorf("requires %q, fields %v: %d refused, %d of them 401; want %d, %d", test.requires, test.keys, got.Refused, got.Unauthenticated, test.refused, test.rejected)
		}
	}
}

// A policy that begins to require a token refuses those without one, and one that no longer does
// admits them. What is not counted by its status stays so if that is 401.
func TestWhoLacksWhatASecondPolicyRequiresIsNewlyRefused(t *testing.T) {
	free, closed := policyOf(limiterOf(t, "all", "9 per minute by ip")), policyOf(limiterOf(t, "all", "9 per minute by ip"))
	closed.Limiters[0].Requires = "token"
	closed.Limiters[0].Count = weir.Count{Not: true, Statuses: []weir.Statuses{{Low: 401, High: 401}}}
	var log []string
	for range 3 {
		log = append(log, logged("192.0.2.4", "-", "-", "-"), logged("192.0.2.1", "wpt_abcdefgh23", "-", "-"))
	}
	o := Options{Policy: free, Against: &closed, Forwarded: -1, Keys: map[string]int{"token": 0}}
	out := fromLog(t, o, log...)
	if d, under := out.Difference, out.Against; d.NewlyRefused != 3 || d.NewlyAdmitted != 0 || d.NewlyTouched.N != 1 || under.Unauthenticated != 3 || under.Limiters[0].Settled.GivenBack != 3 {
		t.Errorf("%+v, %+v, %+v", d, under, under.Limiters[0].Settled)
	}
	o.Policy, o.Against = closed, &free
	if d := fromLog(t, o, log...).Difference; d.NewlyRefused != 0 || d.NewlyAdmitted != 3 {
		t.Errorf("%+v", d)
	}
	o.Keys = nil
	out = fromLog(t, o, log...)
	if got := out.Log.Lacks; out.Difference.NewlyAdmitted != 0 || len(got) != 1 || got[0].Source != "token" || !got[0].Required || got[0].Instead != "" || got[0].Requests != 6 {
		t.Errorf("%+v, %+v", out.Difference, got)
	}
}

func TestATokensLimitIsItsOwn(t *testing.T) {
	l := limiterOf(t, "all", "2 per minute by token or ip")
	// the same as for all others
	l.Overrides = []weir.Override{{Limit: 2, Per: l.Windows[0].Per, For: weir.Who{Token: "abcdefgh23"}}}
	l.Exempt = []weir.Who{{Token: "zzzzzzzz22"}}
	own, exempt := logged("192.0.2.1", "wpt_abcdefgh23_x", "-", "-"), logged("192.0.2.1", "wpt_zzzzzzzz22_x", "-", "-")
	out := fromLog(t, Options{Policy: policyOf(l), Forwarded: -1, Keys: map[string]int{"token": 0}, Touch: 0.5},
		own, own, own, own, exempt, exempt, exempt, exempt, exempt, logged("192.0.2.1", "-", "-", "-"))
	w := out.Policy.Limiters[0].Windows[0]
	if w.Callers.N != 3 || w.Touched.N != 1 || w.Refused != 2 || w.Peak != 5 || w.Recommend == nil || w.Recommend.Callers.N != 1 || w.Recommend.Limit != 1 {
		t.Errorf("%+v, %+v", w, w.Recommend)
	}
}

func TestWhatTheLogLacksIsReported(t *testing.T) {
	p := policyOf(limiterOf(t, "all", "1 per minute by session or ip", "9 per hour by tenant", "9 per day by agent"))
	line := logged("192.0.2.1", "-", "a", "-")
	out := fromLog(t, Options{Policy: p, Forwarded: -1}, line, line)
	want := []Lack{
		{Source: "agent", Limiters: []string{"all"}, Requests: 2}, // the format has no User-Agent
		{Source: "session", Limiters: []string{"all"}, Requests: 2, Instead: "the address"},
		{Source: "tenant", Limiters: []string{"all"}, Requests: 2, Instead: "the address"},
	}
	if got := out.Log.Lacks; !slices.EqualFunc(got, want, func(a, b Lack) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Errorf("lacks %+v", got)
	}
	out = fromLog(t, Options{Policy: p, Forwarded: -1, Keys: map[string]int{"tenant": 1, "agent": 1, "session": 0}}, line, line)
	if got := out.Log.Lacks; len(got) != 1 || got[0].Source != "session" { // a field without values
		t.Errorf("lacks %+v", got)
	}
	out = fromLog(t, Options{Policy: p, Forwarded: -1, Keys: map[string]int{"tenant": 1, "agent": 2, "session": 1}}, line, line)
	if got := out.Log.Lacks; len(got) != 1 || got[0].Source != "agent" || got[0].Requests != 2 {
		t.Errorf("lacks %+v", got)
	}
}

func TestAProxysWordNeedsAField(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	o := Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by ip")), Forwarded: 2, TrustedProxies: trusted}
	lines := []string{logged("10.0.0.1", "-", "-", "198.51.100.1"), logged("10.0.0.1", "-", "-", "spoofed, 198.51.100.2"), logged("10.0.0.2", "-", "-", "198.51.100.2, 10.0.0.9"), logged("192.0.2.1", "-", "-", "198.51.100.2")}
	out := fromLog(t, o, lines...)
	if got := names(out.Policy.Limiters[0]); !slices.Equal(got, []string{"ip 198.51.100.2"}) || len(out.Log.Lacks) > 0 {
		t.Errorf("worst %q, lacks %+v", got, out.Log.Lacks)
	}
	o.Forwarded = -1
	out = fromLog(t, o, lines...)
	if got := out.Log.Lacks; len(got) != 1 || got[0].Source != "ip" || got[0].Requests != 3 {
		t.Errorf("lacks %+v", got)
	}
	o.Forwarded = 1 // a field without values
	if got := fromLog(t, o, lines...).Log.Lacks; len(got) != 1 || got[0].Source != "ip" || got[0].Requests != 3 {
		t.Errorf("lacks %+v", got)
	}
	o.Keys = map[string]int{"ip": 2} // the field is the address, whichever proxies are trusted
	out = fromLog(t, o, logged("10.0.0.1", "-", "-", "10.0.0.7"), logged("10.0.0.1", "-", "-", "10.0.0.7"))
	if got := names(out.Policy.Limiters[0]); !slices.Equal(got, []string{"ip 10.0.0.7"}) || len(out.Log.Lacks) > 0 {
		t.Errorf("worst %q, lacks %+v", got, out.Log.Lacks)
	}
}

func TestCallersAreNamedInWords(t *testing.T) {
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by ip+agent"))})
	for name, c := range map[string]struct {
		key, peer, agent string
	}{
		`ip 192.0.2.7, agent "demo"`: {"ip+agent", "192.0.2.7", "demo"},
		`ip 2001:db8::/64`:           {"ip", "2001:db8::7", ""},
		`everyone`:                   {"everyone", "192.0.2.7", ""},
		`no address`:                 {"ip", "-", ""},
		`agent "a\"\n\xff"`:          {"agent", "192.0.2.7", "a\"\n\xff"},
		`agent "` + strings.Repeat("x", 60) + `"…`: {"agent", "192.0.2.7", strings.Repeat("x", 61)},
		`ip 192.0.2.7`: {"session or token", "192.0.2.7", ""},
	} {
		key, err := weir.ParseKey(c.key)
		if err != nil {
			t.Fatal(err)
		}
		r.caller.start(r.resolver, &accesslog.Line{Peer: []byte(c.peer), UserAgent: []byte(c.agent), HasAgent: true}, "")
		if got := string(r.namer.name(nil, key, &r.caller)); got != name {
			t.Errorf("%q, want %q", got, name)
		}
	}
}

// Such requests share a budget with all others of their kind, which the figures do not show.
func TestRequestsWithoutAnAddressAreReported(t *testing.T) {
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "2 per minute by ip"))})
	for i, peer := range []string{"192.0.2.7", "", "203.0.113.xxx", "crawler.example.com", "2001:db8::1"} {
		send(t, r, float64(i), peer)
	}
	out := report(t, r)
	if want := (NoAddress{Requests: 3, Example: "203.0.113.xxx"}); out.Log.NoAddress != want || out.Policy.Refused != 1 || out.Policy.Callers.N != 3 {
		t.Errorf("%+v, want %+v; %+v", out.Log.NoAddress, want, out.Policy)
	}
	elsewhere := limiterOf(t, "elsewhere", "2 per minute by ip")
	elsewhere.Routes[0].Path = "/elsewhere/"
	r = start(t, Options{Policy: policyOf(elsewhere)})
	send(t, r, 0, "crawler.example.com")
	if out := report(t, r); out.Log.NoAddress.Requests != 0 {
		t.Errorf("%+v: no limiter asked for it", out.Log.NoAddress)
	}
}

// More addresses than the cache holds take turns, each twice in a row and again: none is taken for
// another.
func TestNoCallerIsTakenForAnEarlierOne(t *testing.T) {
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "2 per day by ip"))})
	const n = 40_000
	var peer []byte
	for round := range 2 {
		for i := range n {
			peer = fmt.Appendf(peer[:0], "10.0.%d.%d", i>>8, i&255)
			if i%2 == 0 {
				peer = fmt.Appendf(peer[:0], "2001:db8:%x::1", i)
			}
			for range 1 + i%5/4 + round*(i%3/2) {
				l := lineAt(float64(round), "")
				l.Peer = peer
				if err := r.Add(l); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	refused, touched := int64(0), int64(0)
	for i := range n {
		if over := int64(2+2*(i%5/4)+i%3/2) - 2; over > 0 {
			refused, touched = refused+over, touched+1
		}
	}
	if o := report(t, r).Policy; o.Refused != refused || o.Touched.N != touched || o.Callers.N != n || o.Limiters[0].Windows[0].Callers.N != n {
		t.Errorf("%d refused, %d of %d touched; want %d, %d of %d", o.Refused, o.Touched.N, o.Callers.N, refused, touched, n)
	}
}

// A query that readers interpret differently is answered 400 by the gateway, and not counted by an
// agent here either (D10).
func TestAnAgentThatReadersDifferAboutIsRefusedAsTheGatewayDoes(t *testing.T) {
	var kinds []target.Kind
	o := Options{
		Policy: policyOf(limiterOf(t, "all", "1 per minute by ip+agent")), Forwarded: -1, Keys: map[string]int{"agent": 1},
		OnVerdict: func(v Verdict) { kinds = append(kinds, v.Kind) },
	}
	line := func(query, agent string) string {
		return fmt.Sprintf(`192.0.2.1 %d.000 "GET /x?%s HTTP/1.1" "-" "%s" "-"`, noon, query, agent)
	}
	fromLog(t, o, line("agent_id=a", "-"), line("agent_id=a;agent_id=b", "-"), line("agent_id=a", "-"), line("agent_id=%zz", "-"), line("agent_id=%zz", "named"))
	if want := []target.Kind{target.Plain, target.AmbiguousQuery, target.Plain, target.AmbiguousQuery, target.Plain}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
}
