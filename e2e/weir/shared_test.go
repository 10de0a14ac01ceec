package weir

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/gateway"
)

// patient prevents failures of exact counts on a busy machine.
const patient = "--store-deadline=10s"

// allByAddress is a policy of one limiter.
func allByAddress(t *testing.T, limit int) string {
	t.Helper()
	return policyFile(t, fmt.Sprintf("limiters:\n  - name: all\n    routes: [/*]\n    windows: [%d per day by ip]\n", limit))
}

// anyCall is a request to a backend that answers every request with 201.
var anyCall = call{method: http.MethodPost, path: "/any", foreign: true}

// admitted counts the backend's answers, and checks that all windows end at once.
func admitted(t *testing.T, answers []standing) (n int) {
	t.Helper()
	for _, a := range answers {
		if a.status == http.StatusCreated {
			n++
		} else if a.status != http.StatusTooManyRequests || a.remaining != 0 {
			t.Errorf("%+v", a)
		}
		if a.reset != answers[0].reset {
			t.Errorf("a window ends at %d, another at %d", answers[0].reset, a.reset)
		}
	}
	return n
}

// Two servers under concurrent load admit exactly the limit together, and report
// the same reset.
func TestServersThatShareAStoreShareOneBudget(t *testing.T) {
	const limit = 500
	redis := redistest.Start(t)
	args := []string{"--store", redis.URL(), "--upstream", accepting(t), "--policy", allByAddress(t, limit), "--access-log=off", patient}
	one, two := serveWeir(t, args...), serveWeir(t, args...)
	var fromOne, fromTwo []standing
	var both sync.WaitGroup
	both.Go(func() { fromOne = flood(t, one.url, limit, anyCall) })
	both.Go(func() { fromTwo = flood(t, two.url, limit, anyCall) })
	both.Wait()
	if n := admitted(t, append(fromOne, fromTwo...)); n != limit {
		t.Errorf("%d are admitted, want %d", n, limit)
	}
	line := regexp.MustCompile(`(?m)^store +redis ` + regexp.QuoteMeta(redis.Addr()) + ` \(one server\), prefix weir; 256MiB here while it does not answer$`)
	if _, err := one.stdout.await(line); err != nil {
		t.Error(err)
	}
	if got := curl(t, one.url+"/readyz"); got.status != http.StatusOK || got.body != "ok\n" {
		t.Errorf("/readyz: %+v", got)
	}
	one.end(t)
	two.end(t)
}

// For each kind of store, the start-up text names it, and two servers share one
// count.
func TestEveryKindOfStoreIsShared(t *testing.T) {
	tls, cluster, sentinel := redistest.StartTLS(t), redistest.StartCluster(t, 3, 0), redistest.StartSentinel(t)
	nodes, sentinels := strings.Join(cluster.Addrs(), ","), strings.Join(sentinel.Addrs(), ",")
	for _, test := range []struct{ name, url, line string }{
		{"TLS", tls.URL() + "/3?prefix=edge&ca=" + tls.CAFile, "redis " + tls.Addr() + " (one server) by TLS, database 3, prefix edge"},
		{"cluster", "redis://" + nodes, "redis " + nodes + " (a cluster), prefix weir"},
		{"a node of it", "redis://" + cluster.Nodes[1].Addr() + "?prefix=other", "redis " + cluster.Nodes[1].Addr() + " (a cluster), prefix other"},
		{"Sentinels", sentinel.URL(), "redis weir, by Sentinel " + sentinels + ", prefix weir"},
	} {
		t.Run(test.name, func(t *testing.T) {
			const limit = 20
			args := []string{"--store", test.url, "--upstream", accepting(t), "--policy", allByAddress(t, limit), patient}
			one, two := serveWeir(t, args...), serveWeir(t, args...)
			answers := append(flood(t, one.url, limit*3/4, anyCall), flood(t, two.url, limit*3/4, anyCall)...)
			if n := admitted(t, answers); n != limit {
				t.Errorf("%d are admitted, want %d", n, limit)
			}
			line := regexp.MustCompile(`(?m)^store +` + regexp.QuoteMeta(test.line) + `; 256MiB here while it does not answer$`)
			if _, err := one.stdout.await(line); err != nil {
				t.Error(err)
			}
		})
	}
	split := policyFile(t, "limiters:\n  - name: all\n    routes: [/*]\n    windows: [20 per day by ip, 2 per minute by agent]\n    chosen: yes\n")
	_, stderr, code := weirCommand(t.Context(), t, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--policy", split, "--store", "redis://"+nodes)
	if code != cli.Failed || !strings.Contains(stderr, `limiter "all"`) || !strings.Contains(stderr, "\nhint: ") {
		t.Errorf("a policy whose windows are on several nodes: status %d, it printed:\n%s", code, stderr)
	}
	_, stderr, code = weirCommand(t.Context(), t, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--store", tls.URL()+"?ca="+policyFile(t, "none"))
	if code != cli.Failed || !strings.Contains(stderr, "holds none in PEM") {
		t.Errorf("an invalid CA file: status %d, it printed:\n%s", code, stderr)
	}
}

// If a server is killed, its counts are kept. The other server and the replacement
// continue with them.
func TestAKilledServersCountsStayInTheStore(t *testing.T) {
	const limit = 40
	args := []string{"--store", redistest.Start(t).URL(), "--upstream", accepting(t), "--policy", allByAddress(t, limit), patient}
	one, two := serveWeir(t, args...), serveWeir(t, args...)
	answers := flood(t, one.url, limit/2, anyCall)
	if code, err := one.signal(syscall.SIGKILL); err != nil || code != -1 {
		t.Fatalf("SIGKILL: status %d, %v", code, err)
	}
	answers = append(answers, flood(t, two.url, limit/4, anyCall)...)
	answers = append(answers, flood(t, serveWeir(t, args...).url, limit, anyCall)...)
	if n := admitted(t, answers); n != limit {
		t.Errorf("%d are admitted, want %d", n, limit)
	}
}

// Servers are restarted under load, each once the one before is ready. Together
// they admit exactly the limit.
func TestARollingRestartAdmitsExactlyTheLimit(t *testing.T) {
	const limit, servers, callers = 6000, 3, 16
	args := []string{"--store", redistest.Start(t).URL(), "--upstream", accepting(t), "--policy", allByAddress(t, limit), "--access-log=off", patient}
	var running [servers]atomic.Pointer[server]
	for i := range running {
		running[i].Store(serveWeir(t, args...))
	}
	var passed, asked atomic.Int64
	var restarted atomic.Bool
	step := make(chan struct{}, limit) // a token for every admitted request
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() {
			// A connection for each request: if a draining server closes it, no
			// request is lost.
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for i := n; ; i++ {
				last := restarted.Load()
				got, err := anyCall.send(t.Context(), client, running[i%servers].Load().url)
				switch {
				case err != nil && strings.Contains(err.Error(), "X-Ratelimit"), err == nil && got.status != http.StatusCreated && got.status != http.StatusTooManyRequests:
					t.Errorf("%+v, %v", got, err)
					return
				case err != nil: // the server has just ended
					continue
				case got.status == http.StatusCreated:
					passed.Add(1)
					step <- struct{}{}
				case last:
					return
				}
				asked.Add(1)
			}
		})
	}
	for i := range running {
		for range limit / (servers + 2) { // under load, and with budget left
			<-step
		}
		t.Logf("server %d is restarted when %d are admitted", i+1, passed.Load())
		before := running[i].Load()
		running[i].Store(serveWeir(t, args...))
		before.end(t)
	}
	restarted.Store(true)
	all.Wait()
	t.Logf("%d of %d requests are admitted", passed.Load(), asked.Load())
	if n := passed.Load(); n != limit {
		t.Errorf("%d are admitted, want %d", n, limit)
	}
}

func TestAServerWithoutAccessToItsStoreDoesNotStart(t *testing.T) {
	redis := redistest.Start(t, "--requirepass", "s3cret-of-the-server")
	for name, store := range map[string]string{"another password": "redis://:hunter2@" + redis.Addr(), "none": "redis://" + redis.Addr()} {
		_, stderr, code := weirCommand(t.Context(), t, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--store", store)
		if code != cli.Failed || !strings.Contains(stderr, "error: open the store: ") || !strings.Contains(stderr, "denies access") ||
			!strings.Contains(stderr, "\nhint: is the password right?") || strings.Contains(stderr, "hunter2") {
			t.Errorf("%s: status %d, it printed:\n%s", name, code, stderr)
		}
	}
	_, stderr, code := weirCommand(t.Context(), t, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--store", "redis-sentinel://:hunter2@"+redis.Addr()+"/m")
	if code != cli.Failed || !strings.Contains(stderr, "?sentinel_password= the Sentinels'") || strings.Contains(stderr, "hunter2") {
		t.Errorf("a Sentinel that wants a password of its own: status %d, it printed:\n%s", code, stderr)
	}
	s := serveWeir(t, "--store", redis.URL(), "--policy", "contract", "--upstream", accepting(t))
	s.end(t)
	if output := s.stdout.String() + s.stderr.String(); strings.Contains(output, "s3cret") || strings.Contains(output, "level=ERROR") {
		t.Errorf("with the password it printed:\n%s", output)
	}
}

// Two nodes with different secrets would be two budgets (D18). If the store's user
// lacks a right, the start fails, and the error names the right and how to grant
// it.
func TestAServerWithoutARightInItsStoreDoesNotStart(t *testing.T) {
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "weir", "on", ">hunter2", "~weir:*", "+@all", "-evalsha", "-decrby")
	store := "redis://weir:hunter2@" + redis.Addr()
	_, stderr, code := weirCommand(t.Context(), t, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--store", store)
	if code != cli.Failed || !strings.Contains(stderr, "user weir may not run 'evalsha', 'decrby'\n") ||
		!strings.Contains(stderr, "\nhint: on the server: ACL SETUSER weir ~weir:* +eval +evalsha ") || strings.Contains(stderr, "hunter2") {
		t.Errorf("status %d, it printed:\n%s", code, stderr)
	}
	_, hint, _ := strings.Cut(stderr, "on the server: ")
	redis.Do(t, strings.Fields(hint)...)
	s := serveWeir(t, "--store", store, "--policy", "contract", "--upstream", accepting(t))
	s.end(t)
	if output := s.stdout.String() + s.stderr.String(); strings.Contains(output, "level=ERROR") || strings.Contains(output, "hunter2") {
		t.Errorf("with the rights it printed:\n%s", output)
	}
}

func TestServersWithDifferentSecretsDoNotShareAStore(t *testing.T) {
	redis := redistest.Start(t)
	secret := func(text string) string {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const limit = 2
	text := strings.Repeat("hunter2 ", 8)
	args := []string{"--store", redis.URL(), "--upstream", accepting(t), "--policy", allByAddress(t, limit), patient}
	one := serveWeir(t, append(args, "--key-secret", secret(text))...)
	two := serveWeir(t, append(args, "--key-secret", secret(text+"\n"))...) // an editor's newline
	answers := append(flood(t, one.url, limit, anyCall), flood(t, two.url, limit, anyCall)...)
	if n := admitted(t, answers); n != limit {
		t.Errorf("%d are admitted, want %d", n, limit)
	}
	for name, other := range map[string][]string{"another": {"--key-secret", secret(text + "x")}, "none": nil} {
		_, stderr, code := weirCommand(t.Context(), t, append(append([]string{"serve", "--listen", "127.0.0.1:0", "--data", t.TempDir()}, args...), other...)...)
		if code != cli.Failed || !strings.Contains(stderr, "keyed with another secret") || !strings.Contains(stderr, "\nhint: give all nodes the same --key-secret") ||
			strings.Contains(stderr, "hunter2") {
			t.Errorf("%s: status %d, it printed:\n%s", name, code, stderr)
		}
	}
}

var (
	silent = regexp.MustCompile(`level=ERROR msg="the store does not answer" store="redis \S+" error=.* meanwhile="requests of 1 limiter are counted here \(local\)"`)
	again  = regexp.MustCompile(`level=INFO msg="the store answers again" store="redis \S+" after=\S+ "decided without it"=(\d+) "units given back"=(\d+) "units lost"=(\d+)`)
)

// The store stops and returns (D25). Meanwhile requests are answered, starting from
// the last counts. /readyz and one log line each report the outage and its end.
// Afterwards the local counts are in the store.
func TestAnOutageOfTheStoreIsReportedAndBridged(t *testing.T) {
	const limit = 10_000
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s := serveWeir(t, "--store", redis.URL(), "--upstream", accepting(t), "--policy", allByAddress(t, limit), "--access-log=off", patient)
	flood(t, s.url, 100, anyCall)
	redis.Kill()
	asked := int64(100)
	ask := func() standing {
		t.Helper()
		asked++
		got, err := anyCall.send(t.Context(), http.DefaultClient, s.url)
		if err != nil || got.status != http.StatusCreated {
			t.Fatalf("request %d: %+v, %v", asked, got, err)
		}
		return got
	}
	until := func(log *regexp.Regexp) []string { // until sends requests until the log matches
		t.Helper()
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for deadline := time.After(patience); ; {
			ask()
			if m := log.FindStringSubmatch(s.stderr.String()); m != nil {
				return m
			}
			select {
			case <-ticker.C:
			case <-deadline:
				t.Fatalf("waited in vain for %v in:\n%s", log, s.stderr)
			}
		}
	}
	until(silent)
	for range 30 {
		if got := ask(); got.remaining != limit-asked {
			t.Errorf("without the store request %d: %+v; want %d remaining", asked, got, limit-asked)
		}
	}
	if got := curl(t, s.url+"/readyz"); got.status != http.StatusOK || !strings.HasPrefix(got.body, "degraded: the store does not answer; ") {
		t.Errorf("/readyz: %+v", got)
	}
	redis.Restart(t)
	reported := until(again)
	if reported[1] == "0" || reported[2] != reported[1] || reported[3] != "0" {
		t.Errorf("%s were decided here, %s given back, %s lost", reported[1], reported[2], reported[3])
	}
	if got := ask(); got.remaining != limit-asked {
		t.Errorf("request %d: %+v; want %d remaining", asked, got, limit-asked)
	}
	if got := curl(t, s.url+"/readyz"); got.status != http.StatusOK || got.body != "ok\n" {
		t.Errorf("/readyz: %+v", got)
	}
	s.end(t)
	for _, line := range []*regexp.Regexp{silent, again} {
		if n := len(line.FindAllString(s.stderr.String(), -1)); n != 1 {
			t.Errorf("%v is logged %d times in:\n%s", line, n, s.stderr)
		}
	}
}

// The store's clock decides (D6). Two edges whose clocks differ by 14 minutes admit
// exactly the limit together, report the same Reset, Retry-After and Date, and
// admit requests again at the same moment.
func TestEdgesWithDifferentClocksReportTheSameTime(t *testing.T) {
	const limit = 60
	redis, clock := redistest.StartWithClock(t)
	policy := parsed(t, fmt.Sprintf("limiters:\n  - name: all\n    routes: [/*]\n    windows: [%d per minute by ip]\n", limit))
	upstream, err := url.Parse(accepting(t))
	if err != nil {
		t.Fatal(err)
	}
	var edges [2]string
	onBothEngines(t.Name())
	for i, skew := range []time.Duration{-7 * time.Minute, 7 * time.Minute} {
		c := inProcess(t, policy, func() time.Time { return clock.Now().Add(skew) })
		c.StoreDeadline, c.Sites, c.Log = 10*time.Second, gateway.To(upstream), slog.New(slog.NewTextHandler(t.Output(), nil))
		if testEngine == engineStd {
			c.Engine = gateway.EngineStd
		}
		if err := c.Store.Set(redis.URL()); err != nil {
			t.Fatal(err)
		}
		edges[i] = runEdge(t, openEdge(t, c))
	}
	// reported holds the times that both edges must report.
	type reported struct{ status, date, reset, retryAfter string }
	ask := func(url string) (at reported) {
		response, err := http.Get(url)
		if err != nil {
			t.Error(err)
			return at
		}
		defer response.Body.Close()
		h := response.Header
		return reported{fmt.Sprint(response.StatusCode), h.Get("Date"), h.Get("X-RateLimit-Reset"), h.Get("Retry-After")}
	}
	for _, round := range []struct {
		at   time.Duration // since the start
		want map[bool]int  // how many of twice the limit are admitted, and refused
		wait int           // seconds until the reset
	}{
		{0, map[bool]int{true: limit, false: limit}, 60},
		{59 * time.Second, map[bool]int{false: 2 * limit}, 1},
		{60 * time.Second, map[bool]int{true: limit, false: limit}, 60},
	} {
		start := time.Unix(1_800_000_000, 123_456_789)
		clock.Advance(start.Add(round.at).Sub(clock.Now()))
		at := start.Add(round.at).Unix()
		date, reset := time.Unix(at, 0).UTC().Format(http.TimeFormat), fmt.Sprint(at+int64(round.wait))
		yes, no := reported{"201", date, reset, ""}, reported{"429", date, reset, fmt.Sprint(round.wait)}
		var mu sync.Mutex
		got := map[bool]int{}
		var all sync.WaitGroup
		for i := range 2 * limit {
			all.Go(func() {
				output := ask(edges[i%2])
				mu.Lock()
				defer mu.Unlock()
				if output != yes && output != no {
					t.Errorf("after %v edge %d reports %+v, want %+v or %+v", round.at, i%2, output, yes, no)
				}
				got[output.status == "201"]++
			})
		}
		all.Wait()
		for _, admitted := range []bool{true, false} {
			if got[admitted] != round.want[admitted] {
				t.Errorf("after %v, %d answers have admitted %v, want %d", round.at, got[admitted], admitted, round.want[admitted])
			}
		}
	}
}
