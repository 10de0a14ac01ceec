package redis_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// aMoment is much longer than any deadline here, and much shorter than the timeout
// of a silent connection.
const aMoment = 20 * time.Second

// within fails if f takes longer than aMoment.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(aMoment):
		t.Fatalf("%s: not done after %v", what, aMoment)
	}
}

// More callers than the client's ring holds wait for a suspended server. Each
// continues at its deadline, even if the abandoned commands of others still fill
// the ring.
func TestCallersBeyondTheQueueContinueAtTheirDeadline(t *testing.T) {
	server := redistest.Start(t)
	o := at(server)
	o.Timeout = time.Minute // keeps a silent connection open
	n := newNode(t, open(t, o), 100*time.Millisecond, hourly(1<<30))
	n.decide("a")
	server.Pause(t)
	defer server.Resume(t)
	within(t, "9,000 decisions at a server that has stopped", func() {
		var done sync.WaitGroup
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for range 90 {
			for range 100 {
				done.Go(func() { n.decide("a") })
			}
			<-ticker.C
		}
		done.Wait()
	})
}

// A node that has lost access still knows the last counts (D25).
func TestANodeThatLosesAccessKeepsItsCounts(t *testing.T) {
	server := redistest.Start(t, "--user", "weir", "on", ">right", "~*", "&*", "+@all")
	s := open(t, redisstore.Options{Addresses: []string{server.Addr()}, Username: "weir", Password: "right"})
	n := newNode(t, s, time.Second, hourly(5)) // a busy machine may need 50 ms
	for range 3 {
		n.decide("a")
	}
	server.Do(t, "ACL", "SETUSER", "weir", "resetpass", ">another")
	server.Do(t, "CLIENT", "KILL", "USER", "weir")
	eventually(t, "the keeper noticed", func() bool { return errors.Is(s.State().Err, redisstore.ErrDenied) })
	for range 10 {
		n.decide("a")
	}
	if there, here := n.allowed[weir.Counted].Load(), n.allowed[weir.CountedLocally].Load(); there != 3 || here != 2 {
		t.Errorf("%d were admitted by the server and %d without it, of a limit of 5", there, here)
	}
}

// An error does not contain the arguments of a command that the server rejected.
func TestErrorsDoNotContainCommands(t *testing.T) {
	for _, command := range []string{"AUTH", "EVAL", "INCRBY"} {
		server := redistest.Start(t, "--rename-command", command, "", "--rename-command", "HELLO", "",
			"--user", "weir", "on", ">sekrit", "~*", "&*", "+@all")
		_, err := redisstore.New(t.Context(), redisstore.Options{Addresses: []string{server.Addr()}, Username: "weir", Password: "sekrit"})
		if !errors.Is(err, redisstore.ErrServer) {
			t.Errorf("without %s: %v", command, err)
		}
		if err != nil && (strings.Contains(err.Error(), "sekrit") || strings.Contains(err.Error(), "local call")) {
			t.Errorf("without %s the error repeats what was sent: %v", command, err)
		}
	}
}
