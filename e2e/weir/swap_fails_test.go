//go:build linux

package weir

import (
	"fmt"
	"net/http"
	"os"
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

// A new version that cannot start changes nothing.
func TestASwapThatFailsChangesNothing(t *testing.T) {
	upstream, held, release := gatedUpstream(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, onePolicy(3))
	w := newSwapped(t, serveWeir(t, "--policy", policy, "--upstream", upstream, "--access-log=off"))
	slow := make(chan int, 1)
	go func() { slow <- statusAt(w.url + "/slow") }()
	<-held
	replaceFile(t, policy, "limiters: [odd]\n")
	w.signal(syscall.SIGUSR2)
	if _, err := w.stderr.await(regexp.MustCompile(`no other process serves in place of this one, which continues to serve" error="the next process, \d+, ended before it could open its parts: exit status 1`)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{http.StatusNoContent, http.StatusNoContent, http.StatusTooManyRequests} {
		if got := statusAt(w.url + "/x"); got != want {
			t.Errorf("status %d, want %d", got, want)
		}
	}
	release()
	if got := <-slow; got != http.StatusNoContent {
		t.Errorf("the slow request got status %d", got)
	}
	replaceFile(t, policy, onePolicy(4))
	w.swap()
	// Until the old process drains it accepts too, under its own policy.
	if _, err := w.stderr.await(regexp.MustCompile(`drained, good-bye`)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{http.StatusNoContent, http.StatusTooManyRequests} {
		if got := statusAt(w.url + "/x"); got != want {
			t.Errorf("after the swap: status %d, want %d", got, want)
		}
	}
	w.end()
}

// The program is found by the path that started it, so a link that names another version is enough.
// One that is killed, or that is no program, changes nothing.
func TestASwapStartsWhatIsAtThePath(t *testing.T) {
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "weir")
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, onePolicy(4))
	w := swappedProgram(t, link, "--listen", "127.0.0.1:0", "--policy", policy, "--upstream", nothingBehind(t))
	open := 0 // descriptors, with the connection to the upstream
	for content, want := range map[string]string{
		"#!/bin/sh\nkill -9 $$\n": `the next process, \d+, ended before it could open its parts: signal: killed`,
		"odd":                     `start the next process, \S+/weir: exec format error`,
		// The program would not be the process that is awaited, and that a service manager knows.
		"#!/bin/sh\n" + program + " \"$@\"\nexit $?\n": `the next process, \d+, ended before it could open its parts: exit status 1`,
	} {
		replaceProgram(t, link, content)
		w.signal(syscall.SIGUSR2)
		if _, err := w.stderr.await(regexp.MustCompile(`which continues to serve" error="` + want)); err != nil {
			t.Fatal(err)
		}
		if got := statusAt(w.url + "/x"); got != http.StatusNoContent {
			t.Errorf("status %d, want 204", got)
		}
		if open == 0 {
			open = w.descriptors()
		}
	}
	again, late := time.NewTicker(5*time.Millisecond), time.Now().Add(patience)
	defer again.Stop()
	n := w.descriptors()
	for ; n > open && time.Now().Before(late); n = w.descriptors() {
		<-again.C // a connection may be closed a moment later
	}
	if n > open {
		t.Errorf("after swaps that failed %d descriptors are open, and %d after the first", n, open)
	}
	if !strings.Contains(w.stderr.String(), "a script in place of the program must exec it") {
		t.Errorf("a script that does not exec the program is not reported:\n%s", w.stderr)
	}
	replaceProgram(t, link, "#!/bin/sh\nexec "+program+" \"$@\"\n")
	w.swap()
	for _, want := range []int{http.StatusNoContent, http.StatusTooManyRequests} {
		if got := statusAt(w.url + "/x"); got != want {
			t.Errorf("after the swap: status %d, want %d", got, want)
		}
	}
	w.end()
}

// descriptors returns how many descriptors the process has open that serves.
func (w *swapped) descriptors() int {
	w.t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.pids[len(w.pids)-1]))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(all)
}

// replaceProgram puts a program with the given text at a path.
func replaceProgram(t *testing.T, path, text string) {
	t.Helper()
	replaceFile(t, path, text)
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// A server that is to stop while the next process starts does, and so does that.
func TestAStopDuringASwapEndsBothProcesses(t *testing.T) {
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "weir")
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, onePolicy(3))
	w := swappedProgram(t, link, "--listen", "127.0.0.1:0", "--policy", policy, "--upstream", nothingBehind(t))
	replaceProgram(t, link, "#!/bin/sh\nexec sleep 1000\n")
	w.signal(syscall.SIGUSR2)
	if _, err := w.stderr.await(regexp.MustCompile(`the next process is starting`)); err != nil {
		t.Fatal(err)
	}
	w.end()
	if log := w.stderr.String(); !strings.Contains(log, "no other process serves in place of this one, which ends") || strings.Contains(log, "level=ERROR") {
		t.Errorf("it logged:\n%s", log)
	}
}

// A next process that is to end before it decides leaves the counts and the sockets where they are.
func TestANextProcessThatIsToEndDoesNotTakeOver(t *testing.T) {
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	policy, key := filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "session.key")
	replaceFile(t, policy, onePolicy(2))
	secret := strings.Repeat("k", 32)
	replaceFile(t, key, secret)
	w := swappedProgram(t, program, "--listen", "127.0.0.1:0", "--policy", policy, "--upstream", nothingBehind(t), "--jwt-key", key)
	// The next process waits for its key.
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(key, 0o600); err != nil {
		t.Fatal(err)
	}
	w.signal(syscall.SIGUSR2)
	m, err := w.stderr.await(regexp.MustCompile(`the next process is starting" pid=(\d+)`))
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(m[1])
	var pipe *os.File
	late, again := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for pipe == nil {
		select {
		case <-again.C:
			// fails while nobody reads
			pipe, _ = os.OpenFile(key, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		case <-late:
			t.Fatalf("the next process does not read its key:\n%s", w.stderr)
		}
	}
	defer pipe.Close()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := w.stderr.await(regexp.MustCompile(`draining`)); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.WriteString(secret); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.stderr.await(regexp.MustCompile(`which continues to serve" error="the next process, \d+, ended before it could open its parts: exit status 0`)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{http.StatusNoContent, http.StatusNoContent, http.StatusTooManyRequests} {
		if got := statusAt(w.url + "/x"); got != want {
			t.Errorf("status %d, want %d", got, want)
		}
	}
	w.end()
}

// The signal that a previous process passes its own end on with drains, also if the service manager
// has sent one of its own.
func TestAnEndThatIsPassedOnDrains(t *testing.T) {
	upstream, held, release := gatedUpstream(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, onePolicy(3))
	w := newSwapped(t, serveWeir(t, "--policy", policy, "--upstream", upstream, "--access-log=off"))
	slow := make(chan int, 1)
	go func() { slow <- statusAt(w.url + "/slow") }()
	<-held
	for _, sent := range []struct {
		signal syscall.Signal
		logged string
	}{
		{syscall.SIGUSR1, `draining, because the previous process was to end`},
		{syscall.SIGTERM, `draining: requests in flight may finish; a second signal`},
	} {
		w.signal(sent.signal)
		if _, err := w.stderr.await(regexp.MustCompile(sent.logged)); err != nil {
			t.Fatal(err)
		}
	}
	release()
	if got := <-slow; got != http.StatusNoContent {
		t.Errorf("the slow request got status %d, want 204", got)
	}
	if code, err := w.wait(); code != 0 || err != nil {
		t.Errorf("exit status %d, want 0: %v", code, err)
	}
}

// The old process is killed at several instants of a hand-over. Whatever the next one has by then,
// it serves, and no unit of the limit is admitted twice.
func TestAKillInASwapAdmitsNoUnitTwice(t *testing.T) {
	const limit = 1500
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, onePolicy(limit))
	w := newSwapped(t, serveWeir(t, "--policy", policy, "--upstream", nothingBehind(t), "--access-log=off"))
	var mu sync.Mutex
	admitted := map[string]bool{} // by what remains
	var answered, refused atomic.Int64
	var ended atomic.Bool
	var asking sync.WaitGroup
	for i := range 4 {
		asking.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 0}, Timeout: patience}
			defer client.CloseIdleConnections()
			for !ended.Load() {
				response, err := client.Post(w.url+"/x", "", nil)
				if err != nil {
					continue // it was under way in a process that was killed
				}
				_ = response.Body.Close()
				remaining := response.Header.Get("X-RateLimit-Remaining")
				switch response.StatusCode {
				case http.StatusNoContent:
					mu.Lock()
					if admitted[remaining] {
						t.Errorf("two requests were admitted with %s remaining", remaining)
					}
					admitted[remaining] = true
					mu.Unlock()
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("status %d", response.StatusCode)
				}
				answered.Add(1)
			}
		})
	}
	more := func(n int64) { // answers
		t.Helper()
		again := time.NewTicker(time.Millisecond)
		defer again.Stop()
		late := time.After(patience)
		for want := answered.Load() + n; answered.Load() < want; {
			select {
			case <-again.C:
			case <-late:
				t.Fatalf("no requests are answered any more; the processes printed:\n%s", w.stderr)
			}
		}
	}
	for n, later := range []int64{0, 1, 4, 10, 25, 60} {
		more(50)
		w.signal(syscall.SIGUSR2)
		m, err := w.stderr.await(regexp.MustCompile(fmt.Sprintf(`(?s)(?:the next process is starting" pid=(\d+).*?){%d}`, n+1)))
		if err != nil {
			t.Fatal(err)
		}
		if later > 0 {
			more(later)
		}
		w.signal(syscall.SIGKILL)
		pid, _ := strconv.Atoi(m[1])
		w.pids = append(w.pids, pid)
		more(50)
		if _, err := w.stdout.await(regexp.MustCompile(fmt.Sprintf(`(?s)(?:\nready\n.*?){%d}`, n+2))); err != nil {
			t.Fatal(err)
		}
	}
	for refused.Load() == 0 {
		more(50)
	}
	ended.Store(true)
	asking.Wait()
	w.end()
}
