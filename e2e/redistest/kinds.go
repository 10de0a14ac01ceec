package redistest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// StartTLSWithClock is StartTLS with a clock as in StartWithClock.
func StartTLSWithClock(t testing.TB) (*Server, *Clock) {
	t.Helper()
	s := newServer(t, nil)
	s.setTLS(t, nil)
	return s, s.startWithClock(t)
}

// StartClusterWithClock starts a cluster of one machine with every slot and a clock of its own.
// Several machines could not agree on failures while their clocks jump.
func StartClusterWithClock(t testing.TB) (*Server, *Clock) {
	t.Helper()
	s, clock := StartWithClock(t, "--cluster-enabled", "yes")
	s.Do(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	clock.Advance(time.Minute) // a master waits a little before it claims slots
	err := eventually(func() error {
		state, err := s.Try("CLUSTER", "INFO").ToString()
		if err == nil && !strings.Contains(state, "cluster_state:ok") {
			err = errors.New(state)
		}
		return err
	})
	if err != nil {
		t.Fatalf("wait for the cluster: %v", err)
	}
	return s, clock
}

// StartSentinelWithClock starts a master with a clock of its own, and a Sentinel with the system's
// clock that watches it.
func StartSentinelWithClock(t testing.TB) (master, sentinel *Server, clock *Clock) {
	t.Helper()
	master, clock = StartWithClock(t)
	return master, StartSentinelOf(t, master), clock
}

// StartSentinelOf starts a single Sentinel that watches a master.
func StartSentinelOf(t testing.TB, master *Server) *Server {
	t.Helper()
	sentinel := newServer(t, nil)
	sentinel.sentinel = fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1\n", MasterName, master.port)
	sentinel.start(t)
	return sentinel
}
