package clients

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/child"
)

// clients/php before the real program, with the real PHP-FPM and MariaDB.
func TestPHP(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it waits for many windows")
	}
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	db := startPHPDatabase(t)
	t.Run("its own tests pass", func(t *testing.T) { runPHPUnit(t, db) })
	s := startPHPServer(t, bin)
	f := startPHPFPM(t, 8)
	dir := t.TempDir()
	t.Run("eight workers on one file are refused nothing", func(t *testing.T) {
		warm := url.Values{"store": {"file:" + dir + "/warm"}} // the workers load what they run
		s.pages(t, f, "/warm", warm, 40)
		run := s.pages(t, f, "/long", url.Values{"store": {"file:" + dir + "/view"}}, 4*phpUsable+10)
		run.wantWell(t)
		run.wantWindows(t)
		run.logUsed(t, phpLong)
		run.logOverhead(t)
	})
	t.Run("what a request costs while there is budget", func(t *testing.T) {
		run := s.pages(t, f, "/wide", url.Values{"store": {"file:" + dir + "/wide"}, "more": {"4"}}, 500)
		run.wantWell(t)
		run.logOverhead(t)
	})
	t.Run("nor are they in APCu", func(t *testing.T) {
		s.pages(t, f, "/apcu", url.Values{"store": {"apcu"}}, 3*phpUsable).wantWell(t)
	})
	t.Run("nor in MariaDB", func(t *testing.T) {
		query := url.Values{"store": {db.dsn}, "user": {"root"}}
		once := url.Values{"create": {"1"}}
		for k, v := range query {
			once[k] = v
		}
		s.pages(t, f, "/other", once, 1).wantWell(t)
		s.pages(t, f, "/database", query, 3*phpUsable).wantWell(t)
	})
	for _, ahead := range []string{"600", "-600"} {
		t.Run("a clock that is wrong by "+ahead+" seconds changes nothing", func(t *testing.T) {
			query := url.Values{"store": {"file:" + dir + "/clock" + ahead}, "ahead": {ahead}}
			s.pages(t, f, "/clock"+ahead, query, 3*phpUsable).wantWell(t)
		})
	}
	t.Run("in a page view that may not wait the error says when", func(t *testing.T) {
		query := url.Values{"store": {"file:" + dir + "/view"}, "wait": {"0"}}
		run := s.pages(t, f, "/page", query, 2*phpUsable)
		waits := 0
		for _, v := range run.views {
			if v.Error != "" && (v.Again < 1 || v.Again > phpShort+1 || v.Waited) {
				t.Errorf("a page view got %+v", v)
			}
			if v.Error != "" {
				waits++
			}
		}
		if waits == 0 || run.refused > 0 {
			t.Errorf("%d of %d page views were to come back, and %d were refused", waits, len(run.views), run.refused)
		}
	})
	t.Run("each adapter with its client", func(t *testing.T) { phpAdapters(t, s, dir) })
	t.Run("a token stays home", phpRedirects)
	t.Run("the examples of the README run", func(t *testing.T) { phpReadme(t, s, t.TempDir()) })
	t.Run("the manifest is valid", phpComposer)
	t.Run("workers that are killed and a file that is cut lose nothing", func(t *testing.T) { phpTrouble(t, s, f, dir) })
	t.Run("a full disk stops nobody", phpFullDisk)
}

const (
	phpLimit  = 60
	phpUsable = phpLimit - 5 + 1 // by the threshold
	phpLong   = 5                // seconds of the window of /long
	phpShort  = 2                // of the others
)

// A phpServer is the program before a backend of the test.
type phpServer struct {
	url string

	mu     sync.Mutex
	served map[string]int         // by path and body
	at     map[string][]time.Time // by path
}

// startPHPServer starts the program with a limit for each first segment of a path.
func startPHPServer(t *testing.T, bin string) *phpServer {
	t.Helper()
	s := &phpServer{served: map[string]int{}, at: map[string][]time.Time{}}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.served[r.URL.Path+" "+string(body)]++
		s.at[r.URL.Path] = append(s.at[r.URL.Path], time.Now())
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(backend.Close)
	policy := fmt.Sprintf("limiters:\n  - {name: long, routes: [/long], windows: [%d per %d seconds by ip]}\n", phpLimit, phpLong)
	policy += "  - {name: wide, routes: [/wide], windows: [100000 per minute by ip]}\n"
	for _, name := range []string{"apcu", "database", "clock600", "clock-600", "page", "trouble", "other", "warm",
		"guzzle", "symfony", "symfony-native", "guzzle-two", "symfony-two", "symfony-native-two", "v1/things"} {
		policy += fmt.Sprintf("  - {name: %s, routes: [/%s], windows: [%d per %d seconds by ip]}\n", strings.ReplaceAll(name, "/", "-"), name, phpLimit, phpShort)
	}
	s.url = servePolicy(t, bin, policy, backend.URL)
	return s
}

// servePolicy starts the program with a policy before a backend, and returns its address.
func servePolicy(t *testing.T, bin, policy, backend string) (url string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "serve", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--policy", file, "--upstream", backend)
	cmd.Env = append(os.Environ(), "WEIR_ADMIN=127.0.0.1:0")
	p, err := child.Start(cmd, filepath.Join(dir, "log"), syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(child.Patience) })
	listening := regexp.MustCompile(`(?m)^listening +(http://\S+)`)
	if err := p.Await("it listens", func() bool {
		m := listening.FindStringSubmatch(p.Output())
		if m != nil {
			url = m[1]
		}
		return m != nil
	}); err != nil {
		t.Fatal(err)
	}
	return url
}

// A phpRun is what happened to some page views.
type phpRun struct {
	views   []phpView
	refused int
	failed  int         // page views whose worker was killed
	at      []time.Time // of the requests that were served
	served  int
	twice   int
}

// pages has eight clients view a page n times altogether. Each view sends one request to a path of
// the server.
func (s *phpServer) pages(t *testing.T, f *phpFPM, path string, query url.Values, n int, each ...func(i int, query url.Values)) *phpRun {
	t.Helper()
	run := &phpRun{}
	next := make(chan int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range next {
				q := url.Values{"url": {s.url + path}, "n": {strconv.Itoa(i)}, "wait": {"60"}}
				for k, v := range query {
					q[k] = v
				}
				for _, change := range each {
					change(i, q)
				}
				v, err := f.view(q)
				mu.Lock()
				if err != nil {
					run.failed++
				} else {
					run.views = append(run.views, v)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	for _, v := range run.views {
		run.refused += v.Refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	run.at = slices.Clone(s.at[path])
	for i := range n {
		switch times := s.served[path+" "+strconv.Itoa(i)]; {
		case times > 1:
			run.twice++
			fallthrough
		case times == 1:
			run.served++
		}
	}
	return run
}

// wantWell wants every request served once, and none refused.
func (run *phpRun) wantWell(t *testing.T) {
	t.Helper()
	for _, v := range run.views {
		if v.Status != http.StatusNoContent || len(v.Failures) > 0 {
			t.Errorf("a page view got %+v", v)
		}
	}
	if run.refused > 0 || run.failed > 0 || run.served != len(run.views) || run.twice > 0 {
		t.Errorf("%d of %d requests were served, %d twice; %d were refused, and %d page views failed", run.served, len(run.views), run.twice, run.refused, run.failed)
	}
}

// wantWindows wants all requests served in as many windows as their number needs, or one more.
func (run *phpRun) wantWindows(t *testing.T) {
	t.Helper()
	resets := map[int64]bool{}
	for _, v := range run.views {
		resets[v.Reset] = true
	}
	need := (len(run.views) + phpUsable - 1) / phpUsable
	if resets[0] || len(resets) < need || len(resets) > need+1 {
		t.Errorf("%d requests were served in %d windows, want %d or %d", len(run.views), len(resets), need, need+1)
	}
}

// logUsed logs how much of the budget was used until the last window of some seconds opened: that
// one is not used up. A window opens with the first request after a pause.
func (run *phpRun) logUsed(t *testing.T, seconds float64) {
	t.Helper()
	last := 0
	for i := 1; i < len(run.at); i++ {
		if run.at[i].Sub(run.at[i-1]) > time.Second {
			last = i
		}
	}
	windows := run.at[last].Sub(run.at[0]).Seconds() / seconds
	t.Logf("%d requests in %.2f windows: %.1f %% of the usable budget", last, windows, 100*float64(last)/(windows*phpUsable))
}

// logOverhead logs what a request costs besides itself.
func (run *phpRun) logOverhead(t *testing.T) {
	t.Helper()
	var wall, cpu, more []float64
	for _, v := range run.views {
		if !v.Waited {
			wall, cpu, more = append(wall, float64(v.Overhead)/1000), append(cpu, v.CPU), append(more, v.More...)
		}
	}
	for name, all := range map[string][]float64{"wall time of the first request": wall, "processor time of it": cpu, "processor time of further requests": more} {
		slices.Sort(all)
		sum := 0.0
		for _, one := range all {
			sum += one
		}
		if n := len(all); n > 0 {
			t.Logf("%d page views that did not wait, %s: %.0f µs in the median, %.0f µs in the mean, %.0f µs in the 99th percentile",
				len(cpu), name, all[n/2], sum/float64(n), all[n*99/100])
		}
	}
	if len(cpu) == 0 {
		t.Fatal("every request waited")
	}
}

// phpTrouble kills workers inside of the lock, and cuts the file, while eight clients view pages.
func phpTrouble(t *testing.T, s *phpServer, f *phpFPM, dir string) {
	file := filepath.Join(dir, "trouble")
	killed := 0
	var mu sync.Mutex
	run := s.pages(t, f, "/trouble", url.Values{"store": {"file:" + file}}, 3*phpUsable, func(i int, q url.Values) {
		mu.Lock()
		defer mu.Unlock()
		switch i % 50 {
		case 20:
			killed++
			q.Set("die", "1")
		case 40:
			if err := os.Truncate(file, 500_000); err != nil {
				t.Error(err)
			}
		}
	})
	for _, v := range run.views {
		if v.Status != http.StatusNoContent {
			t.Errorf("a page view got %+v", v)
		}
	}
	// after a cut the view is made anew, and does not know what the others have in flight
	if run.failed != killed || run.served != 3*phpUsable || run.twice > 0 || run.refused > 16 {
		t.Errorf("%d requests were served, %d twice, and %d refused; %d page views failed, and %d were killed", run.served, run.twice, run.refused, run.failed, killed)
	}
}

// phpFullDisk fills the disk of the file, before the file exists and after.
func phpFullDisk(t *testing.T) {
	flags := []string{"--mount"}
	if os.Getuid() != 0 {
		flags = append(flags, "--map-root-user")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "unshare", append(flags, "php", "testdata/php/disk.php", t.TempDir())...).CombinedOutput()
	if err != nil || string(out) != "done\n" {
		t.Errorf("disk.php: %v\n%s", err, out)
	}
}

// A phpDatabase is a running MariaDB.
type phpDatabase struct{ dsn string }

func startPHPDatabase(t *testing.T) *phpDatabase {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-php") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	install := exec.Command("mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--user="+me.Username, "--datadir="+dir+"/data")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("mariadb-install-db: %v (scripts/deps installs what tests need)\n%s", err, out)
	}
	socket := filepath.Join(dir, "sock")
	p, err := child.Start(exec.Command("/usr/sbin/mariadbd", "--no-defaults", "--user="+me.Username, "--skip-networking", "--datadir="+dir+"/data",
		"--socket="+socket, "--pid-file="+dir+"/pid", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"), filepath.Join(dir, "log"), syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(child.Patience) })
	if err := p.Await("MariaDB answers", func() bool {
		return exec.Command("mariadb", "--no-defaults", "-S", socket, "-u", "root", "-e", "CREATE DATABASE IF NOT EXISTS weir").Run() == nil
	}); err != nil {
		t.Fatal(err)
	}
	return &phpDatabase{dsn: "mysql:unix_socket=" + socket + ";dbname=weir"}
}

// runPHPUnit runs the tests of clients/php, which run pacer's tables too.
func runPHPUnit(t *testing.T, db *phpDatabase) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "php", "-d", "apc.enable_cli=1", "-d", "memory_limit=512M", "/usr/bin/phpunit", "-c", "phpunit.xml")
	cmd.Dir = "../../clients/php"
	cmd.Env = append(os.Environ(), "WEIR_PDO="+db.dsn, "PDO_USER=root")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "Skipped") {
		t.Fatalf("phpunit: %v\n%s", err, out)
	}
}
