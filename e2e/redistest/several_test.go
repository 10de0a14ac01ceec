package redistest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
)

func TestAServerSpeaksTLS(t *testing.T) {
	s := redistest.StartTLS(t, "--requirepass", "secret")
	if got := text(t, s, "PING"); got != "PONG" {
		t.Errorf("PING = %q", got)
	}
	if want := "rediss://:secret@" + s.Addr(); s.URL() != want {
		t.Errorf("URL = %s, want %s", s.URL(), want)
	}
	if _, err := ping(dial(t, s.Addr())); err == nil {
		t.Error("it speaks in clear too")
	}
}

func TestAClusterFailsOver(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	first := c.MasterOf(t, "a")
	if !slices.Contains(c.Nodes[:3], first) {
		t.Fatalf("%s serves a and is no master", first.Addr())
	}
	first.Do(t, "SET", "a", "1")
	second := c.Failover(t, first)
	if got := text(t, second, "GET", "a"); got != "1" {
		t.Errorf("after the failover GET = %q, want 1", got)
	}
	if got := c.Crash(t, second); got != first {
		t.Errorf("after the crash %s serves, want %s", got.Addr(), first.Addr())
	}
	if got := text(t, first, "GET", "a"); got != "1" {
		t.Errorf("after the crash GET = %q, want 1", got)
	}
}

func TestAClusterMovesSlots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	from, to := c.MasterOf(t, "a"), c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	from.Do(t, "SET", "a", "1")
	finish := c.BeginMove(t, c.Slot(t, "a"), to)
	if err := from.Try("GET", "a").Error(); err == nil || !strings.HasPrefix(err.Error(), "ASK ") {
		t.Errorf("while the slot moves: %v", err)
	}
	finish()
	if err := from.Try("GET", "a").Error(); err == nil || !strings.HasPrefix(err.Error(), "MOVED ") {
		t.Errorf("after it has moved: %v", err)
	}
	if got := text(t, to, "GET", "a"); got != "1" {
		t.Errorf("there GET = %q, want 1", got)
	}
	const inFirstSlot = "06S"
	low, high := c.MasterOf(t, inFirstSlot), c.Nodes[1]
	low.Do(t, "SET", inFirstSlot, "1")
	c.Reshard(t, low, high, 2)
	if slot, now := c.Slot(t, inFirstSlot), c.MasterOf(t, inFirstSlot); slot != 0 || low == high || now != high {
		t.Errorf("slot %d was at %s, is at %s, want it at %s", slot, low.Addr(), now.Addr(), high.Addr())
	}
	if got := text(t, high, "GET", inFirstSlot); got != "1" {
		t.Errorf("there GET = %q, want 1", got)
	}
}

func TestSentinelsReplaceTheMaster(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	first := s.Master(t)
	if first != s.Nodes[0] {
		t.Fatalf("%s is the master", first.Addr())
	}
	if want := "redis-sentinel://" + strings.Join(s.Addrs(), ",") + "/weir"; s.URL() != want || len(s.Addrs()) != 3 {
		t.Errorf("URL = %s, want %s", s.URL(), want)
	}
	first.Do(t, "SET", "a", "1")
	first.Do(t, "WAIT", "2", "5000")
	second := s.Failover(t)
	if got := text(t, second, "GET", "a"); got != "1" {
		t.Errorf("after the failover GET = %q, want 1", got)
	}
	if killed := s.KillMaster(t); killed != second {
		t.Errorf("%s was killed, want %s", killed.Addr(), second.Addr())
	}
	third := s.WaitForMaster(t, second)
	if got := text(t, third, "GET", "a"); got != "1" {
		t.Errorf("after the crash GET = %q, want 1", got)
	}
}
