package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// A world is a random policy, and a server that enforces it in random conditions.
type world struct {
	policy  string
	latency time.Duration // of the backend, at most
	losses  int           // one answer in so many is lost; none if 0
	busy    bool          // others spend the address's budgets, too
	body    string
	quick   bool
	real    bool
	workers int
	settles settling
}

func drawWorld(t *rapid.T) world {
	keys := []string{"ip", "ip+agent", "session or ip", "token or ip", "everyone", "ip+session or ip", "agent",
		"cookie:sid or ip", "ip+query:tenant", "host", "header:X-Tenant+cookie:sid", "claim:sid or ip", "session or query:tenant or ip"}
	routes := []string{"POST /things", "/things*", "/a/b", "GET /a/*", "/a/*", "PUT /deep/er/thing", "/deep/*", "/v1/wp/*"}
	var b strings.Builder
	b.WriteString("limiters:\n")
	taken := map[string]bool{}
	for i := range rapid.IntRange(1, 3).Draw(t, "limiters") {
		route := rapid.SampledFrom(routes).Filter(func(r string) bool { return !taken[r] }).Draw(t, "route")
		taken[route] = true
		limit, cost := rapid.IntRange(1, 40).Draw(t, "limit"), 1
		if rapid.IntRange(0, 3).Draw(t, "costs") == 0 {
			cost = rapid.IntRange(1, min(limit, 3)).Draw(t, "cost")
		}
		fmt.Fprintf(&b, "  - name: l%d\n    routes: [%s]\n    cost: %d\n", i, route, cost)
		key := rapid.SampledFrom(keys).Draw(t, "key")
		per := rapid.SampledFrom([]int{1, 2, 7, 30, 60}).Draw(t, "per")
		fmt.Fprintf(&b, "    windows: [%d per %d seconds by %s", limit, per, key)
		longer, chosen := 0, isChosenKey(key)
		if rapid.Bool().Draw(t, "longer") {
			more := limit + rapid.IntRange(0, 60).Draw(t, "more")
			longer = per * rapid.IntRange(2, 5).Draw(t, "times")
			by := rapid.SampledFrom(keys).Draw(t, "longer key")
			fmt.Fprintf(&b, ", %d per %d seconds by %s", more, longer, by)
			chosen = chosen || isChosenKey(by)
			if by == "everyone" {
				longer = 0
			}
		}
		b.WriteString("]\n")
		if chosen {
			b.WriteString("    chosen: yes\n")
		}
		if strings.Contains(key, "session") && rapid.Bool().Draw(t, "requires") {
			b.WriteString("    requires: session\n")
		}
		if key == "everyone" {
			per = 0
		}
		if key != "everyone" && rapid.IntRange(0, 4).Draw(t, "penalty") == 0 {
			fmt.Fprintf(&b, "    penalty: {after: %d refusals per %d seconds, refuse_for: %d seconds}\n",
				rapid.IntRange(1, 30).Draw(t, "after"), rapid.IntRange(1, 90).Draw(t, "within"), rapid.IntRange(1, 150).Draw(t, "refuse for"))
		}
		drawExceptions(t, &b, per, longer)
	}
	return world{
		policy:  b.String(),
		latency: time.Duration(rapid.SampledFrom([]int{0, 0, 3, 40, 700}).Draw(t, "latency")) * time.Millisecond,
		losses:  rapid.SampledFrom([]int{0, 0, 0, 23}).Draw(t, "losses"),
		busy:    rapid.IntRange(0, 3).Draw(t, "busy") == 0,
		body:    rapid.SampledFrom([]string{"", "ok", `{"error":{"code":"unprocessable","message":"no"}}`}).Draw(t, "body"),
		quick:   rapid.IntRange(0, 5).Draw(t, "quick") == 0,
		real:    rapid.Bool().Draw(t, "real"),
		workers: rapid.IntRange(1, 12).Draw(t, "workers"),
	}
}

// isChosenKey reports whether a key counts by what the caller chooses.
func isChosenKey(key string) bool {
	parsed, err := weir.ParseKey(key)
	return err == nil && slices.ContainsFunc(parsed, func(p weir.Part) bool { return slices.ContainsFunc(p, isChosen) })
}

// drawExceptions draws another limit for the verifier or other callers, or none.
func drawExceptions(t *rapid.T, b *strings.Builder, pers ...int) {
	who := rapid.SampledFrom([]string{"192.0.2.0/24", "198.51.100.7"}).Draw(t, "who")
	switch per := rapid.SampledFrom(pers).Draw(t, "of"); rapid.IntRange(0, 7).Draw(t, "exception") {
	case 2:
		fmt.Fprintf(b, "    deny: [%s]\n", who)
	case 0:
		fmt.Fprintf(b, "    exempt: [%s]\n", who)
	case 1:
		if per > 0 { // a shared budget has no exceptions
			fmt.Fprintf(b, "    overrides: [%d per %d seconds for %s]\n", rapid.IntRange(3, 90).Draw(t, "instead"), per, who)
		}
	}
}

const testSecret = "a secret of the tests, of 32 bytes or more"

func testSession(t *testing.T, id string) string {
	t.Helper()
	s, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sid": id, "exp": time.Now().Add(time.Hour).Unix()}).SignedString([]byte(testSecret))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// verify verifies the world's server in a bubble of its own, and returns the report's faults.
func (w world) verify(t *testing.T, seed uint64) (faults string) {
	synctest.Test(t, func(t *testing.T) { faults = w.report(t, seed) })
	return faults
}

func (w world) report(t *testing.T, seed uint64) string {
	key, err := identity.NewSecretKey("", []byte(testSecret))
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := identity.NewSessions(identity.SessionsOptions{Keys: []identity.SessionKey{key}})
	if err != nil {
		t.Fatal(err)
	}
	dice := &dice{random: rand.New(rand.NewPCG(seed, 1))}
	m, err := httplimit.New(w.settles.decider(t, policyOf(t, w.policy), dice), httplimit.Options{Identity: resolver(t, identity.Options{Sessions: sessions})})
	if err != nil {
		t.Fatal(err)
	}
	handler := m.Wrap(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.settles.read(r)
		time.Sleep(time.Duration(dice.under(int64(w.latency) + 1)))
		if w.losses > 0 && dice.under(int64(w.losses)) == 0 {
			panic(http.ErrAbortHandler)
		}
		if w.settles.answer(rw, r, dice) {
			return
		}
		if strings.HasPrefix(w.body, "{") {
			rw.WriteHeader(http.StatusUnprocessableEntity)
		}
		_, _ = rw.Write([]byte(w.body))
	}))
	n := newNetwork()
	var arrived atomic.Int64
	stop := n.serving(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		handler.ServeHTTP(rw, r)
	}))
	// Handlers of callers who left, and settlements, end before the bubble.
	defer time.Sleep(2 * time.Second)
	defer stop()
	done := make(chan struct{})
	var others sync.WaitGroup
	if w.busy {
		others.Go(func() { w.disturb(handler, dice, done) })
	}
	defer others.Wait()
	defer close(done)
	o := n.options(policyOf(t, w.policy))
	o.Quick, o.Real, o.Workers = w.quick, w.real, w.workers
	o.Sessions = []string{testSession(t, "one"), testSession(t, "two")}
	plan, err := NewPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	report, err := plan.Run(t.Context())
	switch {
	case arrived.Load() > int64(plan.Requests) || report.Sent > plan.Requests:
		return fmt.Sprintf("%d requests arrived, %d were planned", arrived.Load(), plan.Requests)
	case report.Broken():
		return table(report)
	case len(report.Results) != len(Clauses)*len(o.Policy.Limiters):
		return fmt.Sprintf("%d results, error %v", len(report.Results), err)
	}
	return ""
}

// disturb sends other callers' requests from the same address.
func (w world) disturb(handler http.Handler, dice *dice, done chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(dice.under(int64(400 * time.Millisecond)))):
		}
		for _, target := range []string{"POST /things", "GET /a/b", "GET /deep/x", "GET /v1/wp/x"} {
			method, path, _ := strings.Cut(target, " ")
			r, err := http.NewRequest(method, "http://api.example.com"+path, http.NoBody)
			if err != nil {
				panic(err)
			}
			r.RemoteAddr = "192.0.2.1:999"
			serveOther(handler, r)
		}
	}
}

func serveOther(handler http.Handler, r *http.Request) {
	defer func() { _ = recover() }() // the answer is lost; it is not needed here
	handler.ServeHTTP(nowhere{http.Header{}}, r)
}

type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header       { return n.header }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}

// dice are a random source that goroutines share.
type dice struct {
	mu     sync.Mutex
	random *rand.Rand
}

func (d *dice) under(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.Int64N(n)
}

// A lagging store settles some time later, like one in another process.
type lagging struct {
	weir.Settler
	lag  time.Duration
	dice *dice
}

func (l lagging) Settle(ctx context.Context, t *weir.Ticket, changes []weir.Change) error {
	time.Sleep(time.Duration(l.dice.under(int64(l.lag))))
	return l.Settler.Settle(ctx, t, changes)
}
