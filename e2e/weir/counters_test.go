package weir

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// A visitor spends its leads, and the server ends right after its last answer, by
// SIGTERM or SIGKILL. After the restart the next lead is refused, until the same
// reset.
func TestARestartKeepsTheCounts(t *testing.T) {
	for name, sig := range map[string]os.Signal{"kill -9": syscall.SIGKILL, "SIGTERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			policy, data := leadsPerDay(t), t.TempDir()
			first := serveIn(t, data, "--policy", policy)
			c := call{method: http.MethodPost, path: "/api/v1/widget/leads", body: leadBody,
				header: map[string]string{"Authorization": "Bearer " + session(t, first.url)}}
			var last standing
			for n := range int64(30) {
				var err error
				if last, err = c.send(t.Context(), http.DefaultClient, first.url); err != nil || last.status != http.StatusCreated || last.remaining != 29-n {
					t.Fatalf("lead %d: %+v, %v", n+1, last, err)
				}
			}
			if _, err := first.signal(sig); err != nil {
				t.Fatal(err)
			}
			second := serveIn(t, data, "--policy", policy)
			got, err := c.send(t.Context(), http.DefaultClient, second.url)
			if err != nil || got.status != http.StatusTooManyRequests || got.remaining != 0 || got.reset != last.reset {
				t.Errorf("after the restart lead 31: %+v, %v; want a 429 until %d", got, err, last.reset)
			}
			second.end(t)
		})
	}
}

// killedPolicy has a limiter with two windows: one by address, which has many
// agents, and one by agent.
const killedPolicy = `limiters:
  - name: all
    routes: [/*]
    windows:
      - %d per day by ip
      - 1000000 per 2 days by ip+agent
`

// A server is killed repeatedly under load. In total it admits at most the limit.
// It loses at most the units of requests in flight at a kill.
func TestAServerKilledUnderLoadAdmitsAtMostTheLimit(t *testing.T) {
	const limit, kills, callers = 2000, 6, 16
	policy, data, upstream := policyFile(t, fmt.Sprintf(killedPolicy, limit)), t.TempDir(), accepting(t)
	var admitted atomic.Int64
	life := func(last bool) {
		s := serveIn(t, data, "--upstream", upstream, "--policy", policy, "--access-log=off")
		killAt := admitted.Load() + 1 + rand.Int64N(limit/kills)
		enough := sync.OnceFunc(func() {
			if !last {
				_ = s.cmd.Process.Kill()
			}
		})
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() {
				transport := &http.Transport{MaxConnsPerHost: 1}
				defer transport.CloseIdleConnections()
				client := &http.Client{Transport: transport}
				for i := 0; ; i++ {
					c := call{method: http.MethodPost, path: "/any", foreign: true, header: map[string]string{"X-Agent-Id": fmt.Sprint("agent ", n, i%50)}}
					switch got, err := c.send(t.Context(), client, s.url); {
					case err != nil && !last: // the server is dead
						return
					case err != nil:
						t.Error(err)
						return
					case got.status == http.StatusCreated:
						if admitted.Add(1) >= killAt {
							enough()
						}
					case got.status == http.StatusTooManyRequests:
						enough()
						return
					default:
						t.Errorf("%+v", got)
						enough()
						return
					}
				}
			})
		}
		all.Wait()
		if last {
			s.end(t)
			return
		}
		if code, err := s.wait(); err != nil || code != -1 {
			t.Fatalf("SIGKILL: status %d, %v", code, err)
		}
	}
	for range kills {
		life(false)
	}
	life(true)
	t.Logf("%d admitted and answered of %d", admitted.Load(), limit)
	if n := admitted.Load(); n > limit || n < limit-kills*callers {
		t.Errorf("%d admitted over all lives, want at most %d, and at least that less %d in flight at %d kills", n, limit, callers, kills)
	}
}

// setAside matches the log's line about it.
var setAside = regexp.MustCompile(`level=ERROR .*set aside.* file=\S+/counters .*reason=.* kept=\S+/counters.set-aside-`)

// If the file of counts is invalid, it is set aside and not deleted, the log
// reports it, and the server serves.
func TestAForeignFileOfCountsIsSetAside(t *testing.T) {
	data, foreign := t.TempDir(), "not a file of counts"
	if err := os.WriteFile(filepath.Join(data, "counters"), []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveIn(t, data)
	session(t, s.url)
	s.end(t)
	aside, err := filepath.Glob(filepath.Join(data, "counters"+".set-aside-*"))
	if err != nil || len(aside) != 1 {
		t.Fatalf("%q are set aside, %v; it printed:\n%s", aside, err, s.stderr)
	}
	if kept, err := os.ReadFile(aside[0]); err != nil || string(kept) != foreign {
		t.Errorf("%q is kept of it, %v", kept, err)
	}
	if _, err := s.stderr.await(setAside); err != nil {
		t.Error(err)
	}
}
