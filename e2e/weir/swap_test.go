//go:build linux

package weir

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// serves matches the line of a process that another one serves in place of.
var serves = regexp.MustCompile(`the next process serves; requests in flight may finish here" pid=(\d+) took=(\S+)`)

// metricsPage matches the line of the start-up block with the address of metrics.
var metricsPage = regexp.MustCompile(`(?m)^metrics +(http://\S+/metrics)`)

// A swapped server is a server whose process is replaced by others. Its output is that of all of
// them.
type swapped struct {
	*server
	t    *testing.T
	pids []int // of all processes, the last one serves
}

func newSwapped(t *testing.T, s *server) *swapped {
	w := &swapped{s, t, []int{s.cmd.Process.Pid}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the processes printed:\n%s", s.stderr)
		}
		for _, pid := range w.pids {
			if p, err := os.FindProcess(pid); err == nil && w.isWeir(pid) {
				_ = p.Kill()
			}
		}
	})
	return w
}

// swappedProgram starts weir serve by the path of its program.
func swappedProgram(t *testing.T, program string, args ...string) *swapped {
	t.Helper()
	cmd := exec.Command(program, append([]string{"serve", "--data", t.TempDir(), "--access-log=off"}, args...)...)
	cmd.Env = cleanEnv()
	p, err := launch(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if _, err := p.stdout.await(ready); err != nil {
		t.Fatalf("%v\nstandard error:\n%s", err, p.stderr)
	}
	s := &server{process: p}
	if m := listening.FindStringSubmatch(p.stdout.String()); m != nil {
		s.url = m[1]
	}
	return newSwapped(t, s)
}

// isWeir reports whether a process is one of the program under test: its id may be another's by
// now.
func (w *swapped) isWeir(pid int) bool {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.HasPrefix(path, binDir)
}

func (w *swapped) signal(sig syscall.Signal) {
	w.t.Helper()
	if err := syscall.Kill(w.pids[len(w.pids)-1], sig); err != nil {
		w.t.Fatal(err)
	}
}

// swap replaces the process, and returns how long neither decided.
func (w *swapped) swap() (took string) {
	w.t.Helper()
	w.signal(syscall.SIGUSR2)
	n := len(w.pids)
	again := regexp.MustCompile(fmt.Sprintf(`(?s)(?:%s.*?){%d}`, serves, n))
	m, err := w.stderr.await(again)
	if err != nil {
		w.t.Fatal(err)
	}
	pid, _ := strconv.Atoi(m[1])
	w.pids = append(w.pids, pid)
	return m[2]
}

// end ends the process that serves, and awaits the end of all.
func (w *swapped) end() {
	w.t.Helper()
	w.signal(syscall.SIGTERM)
	select {
	case <-w.done: // all have closed their output
	case <-time.After(patience):
		w.t.Fatalf("the processes do not end; they printed:\n%s", w.stderr)
	}
}

// gatedUpstream answers at once, but /slow when release is closed. A request to it is announced on
// held.
func gatedUpstream(t *testing.T) (url string, held chan struct{}, release func()) {
	held = make(chan struct{}, 1)
	opened := make(chan struct{})
	release = sync.OnceFunc(func() { close(opened) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			held <- struct{}{}
			<-opened
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(release)
	return server.URL, held, release
}

// Three times another process serves in place of the one before, while clients send requests on
// kept and on new connections, and a request of the first process is under way all the time. No
// request fails or waits for that one, and exactly the limit is admitted.
func TestSwapsUnderLoadWaitForNoRequest(t *testing.T) {
	const limit = 3000
	certificate := []string{filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")}
	if err := writeCertificate(certificate[0], certificate[1]); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{
		"cleartext": nil,
		"TLS":       {"--tls-cert", certificate[0], "--tls-key", certificate[1]},
		"metrics":   {"--metrics", "127.0.0.1:0", "--metrics-open"},
	} {
		t.Run(name, func(t *testing.T) {
			upstream, held, release := gatedUpstream(t)
			policy := filepath.Join(t.TempDir(), "policy.yaml")
			replaceFile(t, policy, fmt.Sprintf("limiters:\n  - {name: api, routes: [/*], windows: [%d per day by ip], in_flight: 100000 by ip}\n", limit))
			w := newSwapped(t, serveWeir(t, append([]string{"--policy", policy, "--upstream", upstream, "--access-log=off"}, flags...)...))
			slow := make(chan int, 1)
			// The slow request is counted first. A Transport changes its own configuration of TLS.
			callers := &tallyman{limits: map[int]bool{limit: true}, counts: []int{1}}
			insecure := func() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }
			go func() {
				client := &http.Client{Transport: &http.Transport{TLSClientConfig: insecure()}}
				response, err := client.Get(w.url + "/slow")
				if err != nil {
					t.Error(err)
					slow <- 0
					return
				}
				_ = response.Body.Close()
				slow <- response.StatusCode
			}()
			<-held

			var ended atomic.Bool
			var longest atomic.Int64 // the longest wait for the answer on a new connection
			var asking sync.WaitGroup
			for i := range 6 {
				asking.Go(func() {
					client := &http.Client{Timeout: patience, Transport: measured{&longest, &http.Transport{
						TLSClientConfig: insecure(), DisableKeepAlives: i >= 3, ForceAttemptHTTP2: i%2 == 0,
					}}}
					defer client.CloseIdleConnections()
					pace := time.NewTicker(5 * time.Millisecond)
					defer pace.Stop()
					for !ended.Load() {
						callers.ask(client, w.url+"/x")
						<-pace.C
					}
				})
			}
			if m := metricsPage.FindStringSubmatch(w.stdout.String()); m != nil {
				for range 6 {
					asking.Go(func() {
						for !ended.Load() {
							response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}).Get(strings.TrimSuffix(m[1], "/metrics") + "/livez")
							if err != nil {
								t.Errorf("the listener for metrics: %v", err)
								return
							}
							if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
								t.Errorf("status %d from the listener for metrics", response.StatusCode)
							}
						}
					})
				}
			}
			var took []string
			for range 3 {
				callers.await(t, callers.answered()+200)
				took = append(took, w.swap())
				callers.await(t, callers.answered()+200) // though the slow request is under way
			}
			select {
			case status := <-slow:
				t.Errorf("the slow request ended with %d before its backend answered", status)
			default:
			}
			callers.await(t, limit+100)
			release()
			if status := <-slow; status != http.StatusNoContent {
				t.Errorf("the slow request got status %d, want 204", status)
			}
			ended.Store(true)
			asking.Wait()
			callers.check(t)
			if n := len(callers.counts); n != limit || callers.refused == 0 {
				t.Errorf("%d requests were admitted, want %d; %d were refused", n, limit, callers.refused)
			}
			t.Logf("longest wait on a new connection %v; neither process decided for %v", time.Duration(longest.Load()), took)
			w.end()
		})
	}
}

// measured measures how long requests on new connections take, with the connection.
type measured struct {
	longest *atomic.Int64
	http.RoundTripper
}

func (m measured) RoundTrip(r *http.Request) (*http.Response, error) {
	begun, fresh := time.Now(), false
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { fresh = !i.Reused }}))
	response, err := m.RoundTripper.RoundTrip(r)
	if took := int64(time.Since(begun)); err == nil && fresh {
		for last := m.longest.Load(); took > last && !m.longest.CompareAndSwap(last, took); last = m.longest.Load() {
		}
	}
	return response, err
}

// statusAt returns the status of the answer to a request on a new connection; 0 if there is none.
func statusAt(url string) int {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Get(url)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// The slots that the requests of an old process hold are held in the new one too, until they have
// ended or their process is killed.
func TestSlotsOfAnOldProcessAreHeldUntilItEnds(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", kill), func(t *testing.T) {
			upstream, held, release := gatedUpstream(t)
			policy := filepath.Join(t.TempDir(), "policy.yaml")
			replaceFile(t, policy, "limiters:\n  - {name: api, routes: [/*], in_flight: 1 by ip}\n")
			w := newSwapped(t, serveWeir(t, "--policy", policy, "--upstream", upstream, "--access-log=off"))
			slow := make(chan int, 1)
			go func() { slow <- statusAt(w.url + "/slow") }()
			<-held
			w.swap()
			w.swap()
			if got := statusAt(w.url + "/x"); got != http.StatusTooManyRequests {
				t.Errorf("with the slot taken: status %d, want 429", got)
			}
			if kill {
				if err := syscall.Kill(w.pids[0], syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			} else {
				release()
			}
			if got, want := <-slow, map[bool]int{true: 0, false: http.StatusNoContent}[kill]; got != want {
				t.Errorf("the slow request got status %d, want %d", got, want)
			}
			late := time.Now().Add(patience)
			got := statusAt(w.url + "/x")
			// It is noticed soon after the end.
			for kill && got != http.StatusNoContent && time.Now().Before(late) {
				got = statusAt(w.url + "/x")
			}
			if got != http.StatusNoContent {
				t.Errorf("with the slot free: status %d, want 204", got)
			}
			w.end()
		})
	}
}

// Under a service manager the new process becomes the main one, and is notified of as any.
func TestASwapIsReportedToTheServiceManager(t *testing.T) {
	m := newManager(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, onePolicy(1000))
	w := newSwapped(t, m.start(t.TempDir(), []string{"WATCHDOG_USEC=200000"}, "--policy", policy, "--upstream", nothingBehind(t)))
	m.await(`READY=1`)
	w.swap()
	m.await(fmt.Sprintf(`(?s)READY=1.*MAINPID=%d\n.*READY=1\nSTATUS=serving`, w.pids[1]))
	m.await(`(?s)MAINPID=.*(WATCHDOG=1\n.*){3}`)
	if got := statusAt(w.url + "/x"); got != http.StatusNoContent {
		t.Errorf("status %d from the new process", got)
	}
	if strings.Contains(m.received.String(), "STOPPING") {
		t.Errorf("the manager received that the service stops:\n%s", m.received)
	}
	w.end()
	m.await(`STOPPING=1`)
}

// A Unix socket stays where it is.
func TestASwapKeepsAUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, onePolicy(2))
	key := filepath.Join(t.TempDir(), "session.key")
	replaceFile(t, key, strings.Repeat("k", 32))
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	w := swappedProgram(t, program, "--listen", "unix:"+path, "--trusted-proxies", "127.0.0.1", "--policy", policy, "--upstream", nothingBehind(t), "--jwt-key", key)
	get := func() int {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
		response, err := client.Get("http://localhost/x")
		if err != nil {
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if got := get(); got != http.StatusNoContent {
		t.Errorf("status %d before the swap", got)
	}
	// The next process fails when it has the socket already.
	replaceFile(t, key, "short")
	w.signal(syscall.SIGUSR2)
	if _, err := w.stderr.await(regexp.MustCompile(`no other process serves in place of this one`)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a swap that has failed: %v", err)
	}
	replaceFile(t, key, strings.Repeat("k", 32))
	w.swap()
	for _, want := range []int{http.StatusNoContent, http.StatusTooManyRequests} {
		if got := get(); got != want {
			t.Errorf("status %d after the swap, want %d", got, want)
		}
	}
	w.end()
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left behind")
	}
}
