package redistest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// StartTLSWithClock is StartTLS for a server with a clock of its own, as StartWithClock's.
func StartTLSWithClock(t testing.TB) (*Server, *Clock) {
	t.Helper()
	s := newServer(t, nil)
	s.setTLS(t, nil)
	return s, s.startWithClock(t)
}

// StartClusterWithClock starts a cluster of one machine that has every slot, with a clock of its own. Several could not agree
// on who is alive while their clocks jump.
func StartClusterWithClock(t testing.TB) (*Server, *Clock) {
	t.Helper()
	s, clock := StartWithClock(t, "--cluster-enabled", "yes")
	s.Do(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	clock.Advance(time.Minute) // a master waits a little before it takes slots for its own
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

// StartSentinelWithClock starts a master with a clock of its own, and the Sentinel that watches it by the usual one.
func StartSentinelWithClock(t testing.TB) (master, sentinel *Server, clock *Clock) {
	t.Helper()
	master, clock = StartWithClock(t)
	sentinel = newServer(t, nil)
	sentinel.sentinel = fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1\n", MasterName, master.port)
	sentinel.start(t)
	return master, sentinel, clock
}
