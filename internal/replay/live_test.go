package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dchest/siphash"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/accesslog"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/memstore"
)

// A log of the gateway's own requests is decided, request by request, as the gateway decided them.

func TestAReplayedLogIsJudgedAsItWasLive(t *testing.T) {
	refused, special := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		asked := drawTraffic(t, time.Second)
		for i := range asked {
			asked[i].xAgent = "" // the format does not have it
		}
		live := serve(t, p, asked)
		got, out := replayed(t, Options{Policy: p, Against: &p, Forwarded: -1}, accesslog.Options{Stdin: strings.NewReader(combined(asked))})
		compare(t, asked, live, got, out)
		for _, v := range live.verdicts {
			if v.outcome == "refused" {
				refused++
			}
		}
		special += live.shadowRefused
	})
	if !testing.Short() && (refused < 500 || special < 20) {
		t.Errorf("%d requests were refused, %d by a shadow: the traffic is too tame to judge", refused, special)
	}
}

func TestALogWithMoreFieldsIsJudgedAsItWasLiveToo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t, "tenant", "agent+tenant")
		asked := drawTraffic(t, time.Millisecond)
		live := serve(t, p, asked, identity.Options{
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			Extra: []identity.Source{{Source: weir.Source{Name: "tenant"}, Find: func(r identity.Request, _ string) (string, bool) {
				v := r.Header("X-Tenant")
				return strings.Join(v, ""), len(v) > 0
			}}},
		})
		fields := []string{"request.headers.X-Forwarded-For.0", "request.headers.X-Tenant.0", "request.headers.X-Agent-Id.0"}
		got, out := replayed(t, Options{Policy: p, Forwarded: 0, Keys: map[string]int{"tenant": 1, "agent": 2}, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
			accesslog.Options{Stdin: strings.NewReader(caddy(t, asked)), Format: "caddy", Fields: fields})
		compare(t, asked, live, got, out)
	})
}

// Weir's own log has the hash of the agent and no query, in both of its formats.
func TestWeirsOwnLogIsJudgedAsItWasLive(t *testing.T) {
	refused, byAgent := 0, 0
	for name, format := range map[string]gateway.LogFormat{"weir": gateway.LogText, "weir-json": gateway.LogJSON} {
		rapid.Check(t, func(t *rapid.T) {
			p := drawPolicy(t, "ip+agent")
			asked := drawTraffic(t, time.Millisecond)
			for i := range asked {
				// The log has no query, and a query alone can make a request unreadable.
				path, query, _ := strings.Cut(asked[i].target, "?")
				if query == "#" || identity.AgentIsAmbiguous(query) {
					asked[i].target = path
				}
			}
			var log bytes.Buffer
			access := gateway.NewAccessLog(&log, format, slog.New(slog.DiscardHandler))
			live := serveLogged(t, p, asked, access)
			if err := access.Close(); err != nil {
				t.Fatal(err)
			}
			text, numbers := atTheirTimes(t, log.String(), asked, live)
			got, out := replayed(t, Options{Policy: p, Against: &p, Forwarded: -1}, accesslog.Options{Stdin: strings.NewReader(text), Format: name})
			moved := make(map[int64]judged, len(got))
			for line, v := range got {
				moved[numbers[line]] = v
			}
			compare(t, asked, live, moved, out)
			if out.Policy.Unknown+out.Policy.Shadow.Unknown+out.Difference.Unknown > 0 {
				t.Fatalf("%+v is unknown", out.Policy)
			}
			refused += int(out.Policy.Refused)
			byAgent += strings.Count(text, "agent")
		})
	}
	if !testing.Short() && (refused < 500 || byAgent < 500) {
		t.Errorf("%d requests were refused, %d had an agent: the traffic is too tame to judge", refused, byAgent)
	}
}

var loggedTime = regexp.MustCompile(`^(time=|\{"time":")[0-9TZ:.-]+`)

// atTheirTimes replaces the times in a log, which are the machine's, by the times at which the
// requests were sent. It returns the number of each line's request, both from 1.
func atTheirTimes(t *rapid.T, log string, all []asked, live served) (text string, numbers map[int64]int64) {
	numbers = make(map[int64]int64)
	lines := slices.Collect(strings.Lines(log))
	var b strings.Builder
	for i, v := range live.verdicts {
		if v.outcome == "400" { // the gateway has not seen it
			continue
		}
		line := int64(len(numbers))
		if int(line) == len(lines) {
			t.Fatalf("%d lines are too few: %s", line, log)
		}
		at := time.Unix(noon, 0).Add(all[i].at).UTC().Format("2006-01-02T15:04:05.000Z")
		b.WriteString(loggedTime.ReplaceAllString(lines[line], "${1}"+at))
		numbers[line+1] = int64(i + 1)
	}
	return b.String(), numbers
}

// An asked is one request as it is sent.
type asked struct {
	at                     time.Duration
	peer, method, target   string
	agent, forwarded       string // empty: not sent
	tenant, xAgent, origin string
}

func (a asked) raw() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: example.com\r\n", a.method, a.target)
	for _, f := range [][2]string{{"User-Agent", a.agent}, {"X-Forwarded-For", a.forwarded}, {"X-Tenant", a.tenant}, {"X-Agent-Id", a.xAgent}, {"Origin", a.origin}} {
		if f[1] != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", f[0], f[1])
		}
	}
	if a.method == http.MethodOptions { // as a replay interprets it
		b.WriteString("Origin: https://shop.example\r\nAccess-Control-Request-Method: POST\r\n")
	}
	return b.String() + "\r\n"
}

// A judged is the result of a request: limiter, and outcome in words; both empty if no limiter was
// asked.
type judged struct{ limiter, outcome string }

type served struct {
	verdicts                []judged
	shadowed, shadowRefused int
}

// serve sends requests through a gateway, one after another, with its store's clock at each one's
// time.
func serve(t *rapid.T, p weir.Policy, all []asked, who ...identity.Options) served {
	return serveLogged(t, p, all, nil, who...)
}

// serveLogged is serve with an access log, in which agents are named by a hash.
func serveLogged(t *rapid.T, p weir.Policy, all []asked, access *gateway.AccessLog, who ...identity.Options) served {
	var out served
	now := time.Unix(noon, 0)
	store, err := memstore.New(memstore.Options{Memory: memstore.MinMemory, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	d, err := weir.New(p, store, weir.Options{OnShadow: func(s weir.Shadowed) {
		out.shadowed++
		if !s.Decision.Allowed {
			out.shadowRefused++
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := identity.New(append(who, identity.Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	var last judged
	g, err := gateway.New(gateway.Options{
		Decider: d, Identity: resolver, Log: slog.New(slog.DiscardHandler),
		Backend:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		AccessLog: access, ValueHash: func(agent string) (uint64, bool) { return siphash.Hash(1, 2, []byte(agent)), true },
		Observe: func(o answer.Observation) { last = judged{o.Limiter, o.Outcome.String()} },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		now = time.Unix(noon, 0).Add(a.at)
		last = judged{}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(a.raw())))
		if err != nil { // net/http answers 400
			out.verdicts = append(out.verdicts, judged{"", "400"})
			continue
		}
		r.RemoteAddr = a.peer
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, r)
		if (w.Code == http.StatusTooManyRequests) != (last.outcome == answer.Refused.String()) {
			t.Fatalf("%v: status %d, observed %v", a, w.Code, last)
		}
		out.verdicts = append(out.verdicts, last)
	}
	return out
}

// replayed reads a log and returns the result of each line, by its number.
func replayed(t *rapid.T, o Options, from accesslog.Options) (map[int64]judged, *Report) {
	got := make(map[int64]judged)
	o.OnVerdict = func(v Verdict) {
		j := judged{v.Limiter, answer.Admitted.String()}
		switch {
		case v.Limiter == "":
			j.outcome = answer.Unlimited.String()
		case !v.Decision.Allowed:
			j.outcome = answer.Refused.String()
		}
		got[v.Line.Number] = j
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	from.Malformed = func(m accesslog.Malformed) { t.Fatalf("line %d is malformed: %s: %q", m.Line, m.Reason, m.Text) }
	lines, err := accesslog.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	for {
		var l accesslog.Line
		if err := lines.Next(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if err := r.Add(&l); err != nil {
			t.Fatal(err)
		}
	}
	out, err := r.Report()
	if err != nil {
		t.Fatal(err)
	}
	return got, out
}

func compare(t *rapid.T, all []asked, live served, got map[int64]judged, out *Report) {
	requests, unlimited, refused := 0, 0, 0
	for i, want := range live.verdicts {
		g, ok := got[int64(i+1)]
		if want.outcome == "400" {
			if ok {
				t.Fatalf("request %d, %+v: no request to net/http, %v to the replay", i, all[i], g)
			}
			continue
		}
		requests++
		if want.limiter == "" { // health checks are not even observed
			want.outcome = answer.Unlimited.String()
			unlimited++
		}
		if want.outcome == answer.Refused.String() {
			refused++
		}
		if !ok || g != want {
			t.Fatalf("request %d, %+v: live %v, replayed %v (%v)", i, all[i], want, g, ok)
		}
	}
	o := out.Policy
	var sum, turned, shadowed, shadowRefused int64
	for _, l := range o.Limiters {
		if l.Mode == "shadow" {
			shadowed, shadowRefused = shadowed+l.Requests, shadowRefused+l.Refused
		} else {
			sum, turned = sum+l.Requests, turned+l.Refused
		}
	}
	if o.Requests != int64(requests) || o.Unlimited != int64(unlimited) || o.Refused != int64(refused) || sum+o.Unlimited != o.Requests || turned != o.Refused {
		t.Fatalf("%d requests, %d unlimited, %d refused; replayed %d, %d, %d; over limiters %d, %d", requests, unlimited, refused, o.Requests, o.Unlimited, o.Refused, sum, turned)
	}
	if shadowed != int64(live.shadowed) || shadowRefused != int64(live.shadowRefused) {
		t.Fatalf("shadows: live %d, %d, replayed %d, %d", live.shadowed, live.shadowRefused, shadowed, shadowRefused)
	}
	if d := out.Difference; d != nil { // compared with itself
		if !reflect.DeepEqual(out.Policy, *out.Against) || d.NewlyRefused+d.NewlyAdmitted+d.NewlyTouched.N+d.Freed.N != 0 || len(d.Worst)+len(d.Limiters) > 0 {
			t.Fatalf("%+v, under the same again %+v: %+v", out.Policy, *out.Against, d)
		}
	}
	if out.Log.OutOfOrder != 0 {
		t.Fatalf("%d lines out of order", out.Log.OutOfOrder)
	}
}

// combined renders requests as nginx does.
func combined(all []asked) string {
	var b strings.Builder
	for _, a := range all {
		peer, err := netip.ParseAddrPort(a.peer)
		if err != nil {
			panic(err) // drawTraffic's
		}
		agent := escaped(a.agent)
		if agent == "" {
			agent = "-"
		}
		fmt.Fprintf(&b, "%s - - [%s] \"%s %s HTTP/1.1\" 200 0 \"-\" \"%s\"\n", peer.Addr(), time.Unix(noon, 0).Add(a.at).UTC().Format("02/Jan/2006:15:04:05 -0700"), escaped(a.method), escaped(a.target), agent)
	}
	return b.String()
}

func escaped(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\x%02X`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// caddy renders requests as Caddy does.
func caddy(t *rapid.T, all []asked) string {
	var b strings.Builder
	for _, a := range all {
		peer, err := netip.ParseAddrPort(a.peer)
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string][]string{}
		for name, v := range map[string]string{"User-Agent": a.agent, "X-Forwarded-For": a.forwarded, "X-Tenant": a.tenant, "X-Agent-Id": a.xAgent} {
			if v != "" {
				fields[name] = []string{v}
			}
		}
		at := noon*1000 + a.at.Milliseconds()
		line, err := json.Marshal(map[string]any{
			"level": "info", "logger": "http.log.access", "msg": "handled request", "ts": json.Number(fmt.Sprintf("%d.%03d", at/1000, at%1000)),
			"duration": 0, "status": 200, "size": 0,
			"request": map[string]any{"remote_ip": peer.Addr().String(), "remote_port": fmt.Sprint(peer.Port()), "client_ip": peer.Addr().String(), "proto": "HTTP/1.1", "method": a.method, "host": "example.com", "uri": a.target, "headers": fields},
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

// drawTraffic draws requests in the order of time, in steps of unit or of 0.
func drawTraffic(t *rapid.T, unit time.Duration) []asked {
	at := time.Duration(0)
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) asked {
		at += rapid.SampledFrom([]time.Duration{0, 0, 0, 0, 0, 0, 1, 1, 3, 17, 61}).Draw(t, "later") * max(unit, 250*time.Millisecond)
		if unit < time.Second {
			at += rapid.SampledFrom([]time.Duration{0, 1, 499}).Draw(t, "more") * unit
		}
		return asked{
			at:        at,
			peer:      rapid.SampledFrom([]string{"192.0.2.7:1", "192.0.2.7:1", "192.0.2.8:2", "10.0.0.1:3", "[2001:db8::1]:4", "[2001:db8::2]:4", "[2001:db8:0:1::1]:5", "[::ffff:192.0.2.7]:6"}).Draw(t, "peer"),
			method:    rapid.SampledFrom([]string{"GET", "GET", "POST", "POST", "HEAD", "OPTIONS", "DELETE", "BREW", "get", "CONNECT", "X-1", "G(T"}).Draw(t, "method"),
			target:    drawTarget(t),
			agent:     rapid.SampledFrom([]string{"", "curl/8", `odd "one" \ é`, "Mozilla/5.0"}).Draw(t, "agent"),
			forwarded: rapid.SampledFrom([]string{"", "", "198.51.100.7", "198.51.100.7, 10.0.0.2", "nobody", "2001:db8::99"}).Draw(t, "forwarded"),
			tenant:    rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "tenant"),
			xAgent:    rapid.SampledFrom([]string{"", "", "demo"}).Draw(t, "x-agent"),
		}
	}), 40, 200).Draw(t, "traffic")
}

func drawTarget(t *rapid.T) string {
	if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
		return rapid.SampledFrom([]string{"*", "/healthz", "/readyz?x", "/healthz/", "/%zz", "/a%00", "/a%2fb", "x", "/v1/wp%2fstatus", "/api/v1/widget/..;/a", "//", "/..", "/\xc3\xa4", "/%ff"}).Draw(t, "target")
	}
	path := rapid.SampledFrom([]string{"/api/v1/widget/init", "/api/v1/widget/messages", "/v1/wp/status", "/else", "/else/below", "/"}).Draw(t, "path")
	switch rapid.IntRange(0, 12).Draw(t, "spelling") {
	case 0:
		path = strings.ToUpper(path)
	case 1:
		path = "/." + path
	case 2:
		path += "/x/.."
	case 3:
		path = strings.ReplaceAll(path, "i", "%69")
	case 4:
		path += ";v=1"
	case 5:
		path = "/" + path
	case 6:
		path += ".json"
	}
	return path + rapid.SampledFrom([]string{"", "", "", "?agent_id=demo", "?a=1&agent_id=x%20y", "?agent_id=&agent_id=z", "?a;agent_id=q", "?agent%5fid=w", "?agent_id=p+q&agent_id=r", "?#"}).Draw(t, "query")
}

// drawPolicy draws a policy of small limits.
func drawPolicy(t *rapid.T, keys ...string) weir.Policy {
	keys = append(keys, "ip", "ip", "agent", "ip+agent", "everyone", "session or ip", "token or agent")
	routes := rapid.Permutation([]string{"/*", "POST /api/v1/widget/init", "/api/v1/widget/*", "/v1/wp/*", "GET /v1/wp/status", "/else*", "GET /else", "/api/v1/widget/messages"}).Draw(t, "routes")
	var p weir.Policy
	n := rapid.IntRange(1, 5).Draw(t, "limiters")
	for i := range n {
		l := weir.Limiter{Name: fmt.Sprintf("l%d", i), Cost: int64(rapid.IntRange(0, 3).Draw(t, "cost"))}
		if i == 0 && rapid.Bool().Draw(t, "other") {
			l.Name = "widget-other" // counts preflights
		}
		for j := i; j < len(routes); j += n {
			route, err := weir.ParseRoute(routes[j])
			if err != nil {
				t.Fatal(err)
			}
			l.Routes = append(l.Routes, route)
		}
		lengths := rapid.Permutation([]int{1, 2, 7, 60, 600}).Draw(t, "lengths")
		for j := range rapid.IntRange(1, 3).Draw(t, "windows") {
			key, err := weir.ParseKey(rapid.SampledFrom(keys).Draw(t, "key"))
			if err != nil {
				t.Fatal(err)
			}
			l.Windows = append(l.Windows, weir.Window{Limit: int64(rapid.IntRange(3, 8).Draw(t, "limit")), Per: time.Duration(lengths[j]) * time.Second, Key: key})
		}
		if rapid.IntRange(0, 3).Draw(t, "shadow") == 0 {
			l.Mode = weir.Shadow
		}
		drawSpecial(t, &l)
		p.Limiters = append(p.Limiters, l)
	}
	return p
}

func drawSpecial(t *rapid.T, l *weir.Limiter) {
	if rapid.IntRange(0, 3).Draw(t, "exempt") == 0 {
		l.Exempt = append(l.Exempt, weir.Who{Network: netip.MustParsePrefix(rapid.SampledFrom([]string{"192.0.2.8/32", "2001:db8::2/128", "2001:db8::/32"}).Draw(t, "who"))})
	}
	w := &l.Windows[0]
	if rapid.IntRange(0, 2).Draw(t, "override") == 0 && !w.Key.Uses("everyone") {
		l.Overrides = append(l.Overrides, weir.Override{Limit: int64(rapid.IntRange(3, 20).Draw(t, "own")), Per: w.Per,
			For: weir.Who{Network: netip.MustParsePrefix(rapid.SampledFrom([]string{"192.0.2.0/24", "192.0.2.7/32", "2001:db8::1/128", "198.51.100.0/24"}).Draw(t, "whose"))}})
	}
}
