package redisstore

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// A gate that is closed again while the machines are looked at stays closed.
func TestAGateClosedMeanwhileStaysClosed(t *testing.T) {
	var g gate
	if waited, err := g.await(t.Context(), t.Context()); waited || err != nil {
		t.Errorf("an open gate: waited %v, %v", waited, err)
	}
	g.close()
	before := g.closings()
	g.close()
	g.open(before)
	ended, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	if _, err := g.await(ended, t.Context()); err == nil {
		t.Error("it was closed again, and is open")
	}
	g.open(g.closings())
	if _, err := g.await(ended, t.Context()); err != nil {
		t.Errorf("it was opened: %v", err)
	}
}

// Takes wait for the look at a new connection also if nothing was counted yet: it would be noted in
// the journal before the promotion is seen, and be given to the replica that has it.
func TestTheFirstTakeWaitsForTheLook(t *testing.T) {
	p := newPromotions()
	p.lookSoon()
	if waited, _ := p.gate.await(t.Context(), t.Context()); waited {
		t.Error("a take waits although there are no replicas")
	}
	p.journal.on.Store(true)
	p.lookSoon()
	ended, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	if _, err := p.gate.await(ended, t.Context()); err == nil {
		t.Error("a take does not wait")
	}
}

// A closed store does not keep a take waiting.
func TestNobodyWaitsAtTheGateOfAClosedStore(t *testing.T) {
	var g gate
	g.close()
	closed, end := context.WithCancel(t.Context())
	end()
	if _, err := g.await(t.Context(), closed); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// The newest connection is the last one that has not ended, whichever way it ends.
func TestTheNewestConnection(t *testing.T) {
	var live connections
	begin := func(address string) (*watchedConn, net.Conn) {
		ours, theirs := net.Pipe()
		w := &watchedConn{Conn: ours, epoch: new(epoch), live: &live, address: address, began: 5}
		if err := live.begin(w); err != nil {
			t.Fatal(err)
		}
		return w, theirs
	}
	check := func(want string) {
		t.Helper()
		if got := live.newest(5); got != want {
			t.Errorf("the newest is %q, want %q", got, want)
		}
	}
	check("")
	a, _ := begin("a:1")
	b, theirs := begin("b:1")
	check("b:1")
	theirs.Close()
	if _, err := b.Read(make([]byte, 1)); err == nil {
		t.Fatal("it can be read")
	}
	check("a:1")
	b.Close()
	c, _ := begin("c:1")
	a.Close()
	check("c:1")
	if got := live.newest(6); got != "" {
		t.Errorf("%s began earlier", got)
	}
	c.Close()
	check("")
}

// Connections to a stale master end, and no other begins until it is no longer one.
func TestConnectionsToAStaleMaster(t *testing.T) {
	var live connections
	connection := func(address string) (*watchedConn, net.Conn) {
		ours, theirs := net.Pipe()
		return &watchedConn{Conn: ours, epoch: new(epoch), live: &live, address: address}, theirs
	}
	old, theirs := connection("a:1")
	other, _ := connection("b:1")
	if err := errors.Join(live.begin(old), live.begin(other)); err != nil {
		t.Fatal(err)
	}
	m := &staleMaster{history: "h", by: seenMachine{address: "b:1", master: true, history: "i", before: "h"}}
	live.leave("a:1", m)
	if _, err := theirs.Read(make([]byte, 1)); err == nil {
		t.Error("its connection has not ended")
	}
	again, _ := connection("a:1")
	if err := live.begin(again); !errors.Is(err, errStale) {
		t.Errorf("another begins: %v", err)
	}
	if got, due := live.staleAt("a:1", askStaleEvery); got != m || !due {
		t.Errorf("%v, %v: it is not asked", got, due)
	}
	if got, due := live.staleAt("a:1", 2*askStaleEvery-1); got != m || due {
		t.Errorf("%v, %v: it is asked again at once", got, due)
	}
	if !live.isLeft("a:1", m.by) || live.isLeft("b:1", m.by) || live.isLeft("a:1", seenMachine{history: "j", before: "h"}) {
		t.Error("it was left for another replica")
	}
	live.rejoin(m)
	if err := live.begin(again); err != nil || !live.isLeft("a:1", m.by) {
		t.Errorf("it has rejoined: %v", err)
	}
}

// A stale master is left for as long as the replica in its place is seen there.
func TestAStaleMasterIsLeftForAReplicaThatIsSeen(t *testing.T) {
	by := seenMachine{address: "b:1", master: true, history: "i", before: "h"}
	follows, renamed := by, by
	follows.master, renamed.history = false, "j"
	for name, c := range map[string]struct {
		all  []seenMachine
		now  int64
		left bool
	}{
		"seen":               {[]seenMachine{by}, 2 * staleLasts, true},
		"not seen lately":    {nil, staleLasts - 1, true},
		"not seen":           {nil, staleLasts, false},
		"a replica again":    {[]seenMachine{follows}, 1, false},
		"of another history": {[]seenMachine{renamed}, 1, false},
	} {
		var live connections
		live.leave("a:1", &staleMaster{history: "h", by: by})
		live.keepStale(c.all, c.now)
		if got := live.isLeft("a:1", by); got != c.left {
			t.Errorf("%s: left: %v", name, got)
		}
	}
}
