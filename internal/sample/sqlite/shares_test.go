package sqlite

import "testing"

// A world holds the usage of all visitors.
type world struct {
	most                                      int64
	visitors                                  int64
	workspaces, networks, addresses, sessions map[string]int64
	refused                                   Share // the last share that refused
}

func newWorld(most int64) *world {
	return &world{most: most, workspaces: map[string]int64{}, networks: map[string]int64{}, addresses: map[string]int64{}, sessions: map[string]int64{}}
}

// stores stores n bytes of a session if there is room, and reports whether there was. An empty
// network means none.
func (w *world) stores(n int64, workspace, network, address, session string) bool {
	h := holdings{visitors: w.visitors + n, workspace: w.workspaces[workspace] + n, address: w.addresses[address] + n, session: w.sessions[session] + n}
	if network != "" {
		h.network = w.networks[network] + n
	}
	if e := h.exceeded(w.most); e != nil {
		w.refused = e.Share
		return false
	}
	w.visitors += n
	w.workspaces[workspace] += n
	w.networks[network] += n
	w.addresses[address] += n
	w.sessions[session] += n
	return true
}

// takes stores rows of n bytes until the session has its maximum, and returns the sum.
func (w *world) takes(n int64, workspace, network, address, session string) (all int64) {
	for w.stores(n, workspace, network, address, session) {
		all += n
	}
	return all
}

// takesAll does that with new sessions of one address until a session gets nothing.
func (w *world) takesAll(n int64, workspace, network, address string) (all int64) {
	for i := 0; ; i++ {
		got := w.takes(n, workspace, network, address, address+"/"+string(rune('a'+i)))
		if got == 0 {
			return all
		}
		all += got
	}
}

const (
	mebi = 1 << 20
	row  = 4 << 10 // the size of an attacker's rows
)

// The figures of docs/operate.md: what each attacker can take of an empty share, and what is left
// for others.
func TestWhatOneHolderCanTake(t *testing.T) {
	const most = 512 * mebi // of the default, 1 GiB
	for name, c := range map[string]struct {
		take        func(w *world) int64
		least, last float64 // of the share, in percent
	}{
		"a session":  {func(w *world) int64 { return w.takes(row, "demo", "", "a", "s") }, 1.0, 1.2},
		"an address": {func(w *world) int64 { return w.takesAll(row, "demo", "", "a") }, 7.5, 8.5},
		"an IPv6 /48 of 65,536 addresses": {func(w *world) (all int64) {
			for i := range 65536 {
				all += w.takes(row, "demo", "net", addressOf(i), addressOf(i))
			}
			return all
		}, 12, 14},
		"a workspace": {func(w *world) (all int64) {
			for i := range 2000 {
				all += w.takesAll(row, "demo", "", addressOf(i))
			}
			return all
		}, 79, 80},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(most)
			if got := float64(c.take(w)) / most * 100; got < c.least || got > c.last {
				t.Errorf("%s takes %.2f %% of the visitors' share, want %v to %v", name, got, c.least, c.last)
			}
			if !w.stores(8<<10, "another", "", "newcomer", "newcomer") {
				t.Errorf("when %s has taken all it can, a newcomer of another workspace has no room: %s", name, w.refused)
			}
			if name != "a workspace" && !w.stores(8<<10, "demo", "", "newcomer", "newcomer") {
				t.Errorf("when %s has taken all it can, a newcomer has no room: %s", name, w.refused)
			}
		})
	}
}

func addressOf(i int) string { return string([]byte{byte(i >> 16), byte(i >> 8), byte(i)}) }

// The more addresses attack, the less each gets, so that newcomers still have room when a share of
// fixed parts would be full.
func TestAHundredAttackersLeaveRoom(t *testing.T) {
	const most = 512 * mebi
	room := func(w *world) float64 { return float64(most*4/5-w.workspaces["demo"]) / (most * 4 / 5) * 100 }
	w := newWorld(most)
	for i, left := range []float64{9: 46, 99: 7.5, 499: 1.6} { // percent of the workspace's room
		w.takesAll(row, "demo", "", addressOf(i))
		if left > 0 && (room(w) < left || room(w) > left*1.2) {
			t.Errorf("%d addresses leave %.2f %% of the room, want about %v", i+1, room(w), left)
		}
		if left > 0 && w.takes(1<<10, "demo", "", addressOf(i|1<<20), "newcomer"+addressOf(i)) < minShare-2<<10 {
			t.Errorf("after %d addresses a newcomer has room for less than 14 KiB: %s", i+1, w.refused)
		}
	}
}

// About nine hundred addresses are needed to leave newcomers nothing, as docs/operate.md states.
func TestItTakesManyAttackersToFillAWorkspace(t *testing.T) {
	w := newWorld(512 * mebi)
	n := 0
	for w.takesAll(row, "demo", "", addressOf(n)) > 0 {
		n++
	}
	if n < 850 || n > 1000 || w.refused != OfWorkspace && w.refused != OfAddress {
		t.Errorf("%d addresses fill the room of a workspace (%s), want some 900", n, w.refused)
	}
	if !w.stores(8<<10, "another", "", "newcomer", "newcomer") {
		t.Errorf("then a newcomer of another workspace has no room: %s", w.refused)
	}
}

// The error names the share that is full.
func TestTheShareThatIsUsedUpIsNamed(t *testing.T) {
	const most = 64 * mebi
	for _, c := range []struct {
		h    holdings
		want Share
	}{
		{holdings{}, ""},
		{holdings{visitors: most + 1}, OfVisitors},
		// four times the free room
		{holdings{visitors: most / 2, workspace: most*2 + 8}, OfWorkspace},
		{holdings{network: most / 4}, OfNetwork},
		{holdings{address: most / 8}, OfAddress},
		{holdings{network: most / 10, address: most / 10}, OfAddress},
		{holdings{session: most / 64}, OfSession},
		{holdings{address: most / 8, session: most / 64}, OfSession}, // the narrowest
		{holdings{visitors: most - 64<<10, workspace: 4 * 16 << 10, network: minShare, address: minShare, session: minShare}, ""},
		{holdings{visitors: most - 64<<10, workspace: 4 * 16 << 10, address: minShare + 1}, OfAddress},
	} {
		e := c.h.exceeded(most)
		if got := e; (got == nil) != (c.want == "") || got != nil && got.Share != c.want {
			t.Errorf("%+v of %d: %v, want %q", c.h, most, e, c.want)
		}
	}
}

// Shares work for every size: nothing overflows, and a small storage admits visitors too.
func TestSharesOfEverySize(t *testing.T) {
	for most := int64(64 << 10); most > 0 && most < 1<<61; most *= 2 {
		w := newWorld(most)
		if got := w.takes(max(1<<10, most>>12), "demo", "net", "a", "s"); got < 14<<10 || got > max(minShare, most/40) {
			t.Errorf("of %d bytes a session takes %d", most, got)
		}
	}
}
