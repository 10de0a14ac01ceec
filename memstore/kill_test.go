//go:build linux && !race

// The children are killed in the midst of their work, which needs no race detector: it would only
// slow down what they do until then. Other tests take and settle concurrently with it.

package memstore_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

var killTimes = flag.Int("kill-times", 40, "how often a process is killed")

const (
	// an address has 16 agents, so that each of the windows can refuse
	agentLimit, addressLimit = 5, 40

	visitors = 3   // goroutines that take like visitors, from shared keys
	openers  = 2   // goroutines that open new keys, so that the table grows all the time
	block    = 512 // keys that are opened between two reports
)

// A report is one goroutine's result of a take, and its next visit.
type report struct {
	Who     uint32 // visitors first, then openers
	Allowed bool
	Used    [2]struct{ Count, Reset uint32 } // of the agent and the address
	Next    visit
}

// A visit is one take, of the agent's window, its address's or both. An opener's
// visit is a block of keys, starting at Agent.
type visit struct {
	Agent           uint32
	ByAgent, ByAddr bool
	AddressFirst    bool
}

func agentKey(id uint32) weir.Charge {
	return charge("agent", agentLimit, day, fmt.Sprint("address ", id/16), fmt.Sprint("agent ", id))
}

func addressKey(id uint32) weir.Charge {
	return charge("address", addressLimit, week, fmt.Sprint("address ", id/16))
}

// newKeys are an opener's keys: two at once for every third take, else one.
type newKeys struct{ one, two []weir.Charge }

func makeNewKeys() newKeys {
	once, too := charge("once", 1, week, "12345678"), charge("once too", 1, day, "12345678")
	return newKeys{one: []weir.Charge{once}, two: []weir.Charge{once, too}}
}

// of returns the keys of take i of a block; they are valid until the next call.
// This is cheap compared with a take, so a process that only opens keys spends much
// of its time on growing.
func (k newKeys) of(first uint32, i int) []weir.Charge {
	in := k.one
	if i%3 == 0 {
		in = k.two
	}
	for _, c := range in {
		binary.BigEndian.PutUint32(c.Key[len(c.Key)-8:], first)
		binary.BigEndian.PutUint32(c.Key[len(c.Key)-4:], uint32(i))
	}
	return in
}

// A process is killed at any moment, including while the table grows. Its admitted
// units stay counted, and all processes together admit at most the limit.
func TestAKillAtAnyMomentLosesNoAdmittedUnit(t *testing.T) {
	if e, out, ok := sent(t); ok {
		takeUntilKilled(t, e, func(r report) { writeReport(t, out, r) })
		return
	}
	t.Logf("-kill-seed=%d -kill-times=%d", *killSeed, *killTimes)
	random := rand.New(rand.NewPCG(*killSeed, 0))
	e := errand{Run: "take", File: filepath.Join(t.TempDir(), "counters"), Now: 1_800_000_000, Seed: *killSeed}
	b := &books{T: t, agents: map[uint32]*tally{}, addresses: map[uint32]*tally{}}
	for e.Round = range *killTimes {
		e.Now++
		e.Memory = []int64{256 << 20, 160 << 20, 512 << 20}[random.IntN(3)]
		e.Growing = e.Round%3 > 0
		while := time.Duration(random.IntN(40_000)) * time.Microsecond
		if e.Growing {
			while = time.Duration(random.IntN(1000)) * time.Millisecond // it kills itself earlier
		}
		b.follow(start(t, e), e.Round%9 == 0, while) // early: perhaps while it opens the file
		// otherwise the next process finds the file as the kill left it
		if random.IntN(3) == 0 {
			b.compare(e, 10)
		}
	}
	b.compare(e, math.MaxInt)
	t.Logf("%d takes were reported, %d of them admitted, and %d blocks of new keys", b.takes, b.admitted, len(b.opened))
	if b.admitted == 0 || len(b.opened) == 0 {
		t.Error("no process admitted anything")
	}
}

// takeUntilKilled opens the store and takes from it until the process is killed.
func takeUntilKilled(t *testing.T, e errand, emit func(report)) {
	s, err := memstore.New(e.options())
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	if e.Growing {
		var taking atomic.Uint64
		running.Go(func() { openUntilKilled(t, s, e, visitors, &taking, emit) })
		running.Go(func() { killInALongTake(t, e, &taking) })
	} else {
		for who := range uint32(visitors) {
			running.Go(func() { visitUntilKilled(t, s, e, who, emit) })
		}
		for who := range uint32(openers) {
			running.Go(func() { openUntilKilled(t, s, e, visitors+who, new(atomic.Uint64), emit) })
		}
	}
	running.Wait()
}

// killInALongTake kills this process during a long take, such as one that makes the
// table grow. It first measures how long these are, so that each of their moments
// is equally likely.
func killInALongTake(t *testing.T, e errand, taking *atomic.Uint64) {
	random := rand.New(rand.NewPCG(e.Seed, uint64(e.Round)))
	enough := 2 * uint64(5_000+random.IntN(5_000))
	var longest [8]time.Duration
	var fatal time.Duration
	for {
		n, since := taking.Load(), time.Now()
		for n%2 == 1 && taking.Load() == n {
			if fatal > 0 && time.Since(since) > fatal {
				if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}
		if lasted := time.Since(since); n%2 == 1 && lasted > longest[0] {
			longest[0] = lasted
			slices.Sort(longest[:])
		}
		if fatal == 0 && n > enough {
			// the longest ones were delayed
			fatal = 1 + time.Duration(random.Float64()*float64(longest[3]))
		}
	}
}

func visitUntilKilled(t *testing.T, s *memstore.Store, e errand, who uint32, emit func(report)) {
	random := rand.New(rand.NewPCG(e.Seed, uint64(e.Round)<<8|uint64(who)))
	r := report{Who: who}
	for {
		r.Next = drawVisit(random, e.Round)
		emit(r)
		var in []weir.Charge
		var of []int
		if r.Next.ByAgent {
			in, of = append(in, agentKey(r.Next.Agent)), append(of, 0)
		}
		if r.Next.ByAddr {
			in, of = append(in, addressKey(r.Next.Agent)), append(of, 1)
		}
		if r.Next.AddressFirst {
			in[0], in[1], of = in[1], in[0], []int{1, 0}
		}
		out := take(t, s, in...)
		r = report{Who: who, Allowed: out.Allowed}
		for i, k := range of {
			r.Used[k].Count, r.Used[k].Reset = uint32(out.Used[i].Count), uint32(out.Used[i].Reset)
		}
	}
}

// drawVisit draws from the agents, to which each process adds some.
func drawVisit(random *rand.Rand, round int) visit {
	const more = 60
	v := visit{Agent: uint32(round*more + random.IntN(more))}
	if random.IntN(3) == 0 {
		v.Agent = uint32(random.IntN((round + 1) * more))
	}
	how := random.IntN(4)
	v.ByAgent, v.ByAddr, v.AddressFirst = how != 0, how != 1, how == 2
	return v
}

func openUntilKilled(t *testing.T, s *memstore.Store, e errand, who uint32, taking *atomic.Uint64, emit func(report)) {
	r, keys := report{Who: who, Allowed: true}, makeNewKeys()
	for n := uint32(0); ; n++ {
		r.Next.Agent = uint32(e.Round)<<22 | who<<19 | n
		emit(r)
		for i := range block {
			in := keys.of(r.Next.Agent, i)
			taking.Add(1) // odd during a take
			out := take(t, s, in...)
			if taking.Add(1); !out.Allowed || out.Used[0].Count != 1 {
				t.Fatalf("the first take of a new key answered %+v; the store holds %+v", out, s.Stats())
			}
		}
	}
}

// A tally is what the reports contain about one key.
type tally struct {
	counts map[uint32]bool // each count after an admitted take
	reset  uint32
	maybe  int // takes that may have been admitted, but were not reported
}

// books are the reports of all processes.
type books struct {
	*testing.T
	agents, addresses map[uint32]*tally
	opened            []uint32 // blocks that were opened completely
	opening           []uint32 // blocks that a kill interrupted
	takes, admitted   int
}

// follow lets a process run for a while after its first report, or, if it is killed
// early, from the start. It kills it, and records its reports.
func (b *books) follow(c *child, early bool, while time.Duration) {
	var next [visitors + openers]*visit
	var r report
	var timer *time.Timer
	if early {
		timer = time.AfterFunc(while, c.kill)
	}
	for c.read(&r) {
		if timer == nil {
			timer = time.AfterFunc(while, c.kill)
		}
		if done := next[r.Who]; done != nil && r.Who < visitors {
			b.visited(*done, r)
		} else if done != nil {
			b.opened = append(b.opened, done.Agent)
		}
		v := r.Next
		next[r.Who] = &v
	}
	c.end()
	for who, v := range next {
		switch {
		case v == nil:
		case who >= visitors:
			b.opening = append(b.opening, v.Agent)
		default:
			b.interrupted(*v)
		}
	}
}

func (b *books) agent(id uint32) *tally   { return tallyOf(b.agents, id) }
func (b *books) address(id uint32) *tally { return tallyOf(b.addresses, id/16) }

func tallyOf(all map[uint32]*tally, id uint32) *tally {
	if all[id] == nil {
		all[id] = &tally{counts: map[uint32]bool{}}
	}
	return all[id]
}

func (b *books) visited(v visit, r report) {
	b.takes++
	if r.Allowed {
		b.admitted++
	}
	if v.ByAgent {
		b.add(fmt.Sprint("agent ", v.Agent), b.agent(v.Agent), r.Allowed, r.Used[0].Count, r.Used[0].Reset)
	}
	if v.ByAddr {
		b.add(fmt.Sprint("address ", v.Agent/16), b.address(v.Agent), r.Allowed, r.Used[1].Count, r.Used[1].Reset)
	}
}

// add records a window's reported state. If two takes report the same unit, one
// unit was lost in between.
func (b *books) add(name string, k *tally, allowed bool, count, reset uint32) {
	b.Helper()
	if allowed && k.counts[count] {
		b.Errorf("%s: two takes reported unit %d", name, count)
	}
	if reset != 0 && k.reset != 0 && reset != k.reset {
		b.Errorf("%s: its reset moved from %d to %d", name, k.reset, reset)
	}
	if reset != 0 {
		k.reset = reset
	}
	if allowed {
		k.counts[count] = true
	}
}

func (b *books) interrupted(v visit) {
	if v.ByAgent {
		b.agent(v.Agent).maybe++
	}
	if v.ByAddr {
		b.address(v.Agent).maybe++
	}
}

// compare opens the file and compares its counts with the books. Of the new keys it
// checks the latest blocks.
func (b *books) compare(e errand, blocks int) {
	b.Helper()
	s, err := memstore.New(e.options())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for id, k := range b.agents {
		b.compareKey(s, agentKey(id), k)
	}
	for id, k := range b.addresses {
		b.compareKey(s, addressKey(id*16), k)
	}
	for _, first := range latest(b.opened, blocks) {
		if n := b.counted(s, first); n != block {
			b.Fatalf("round %d: of %d takes that were reported, the block from %d on, %d are counted", e.Round, block, first, n)
		}
	}
	for _, first := range latest(b.opening, blocks) {
		b.counted(s, first)
	}
	if b.Failed() {
		b.Fatalf("round %d, -kill-seed=%d", e.Round, *killSeed)
	}
}

func latest(all []uint32, n int) []uint32 { return all[max(0, len(all)-n):] }

func (b *books) compareKey(s *memstore.Store, c weir.Charge, k *tally) {
	b.Helper()
	u := count(b, s, c)
	if n := len(k.counts); u.Count < int64(n) || u.Count > int64(n+k.maybe) || u.Count > c.Limit || u.Count > 0 && k.reset != 0 && u.Reset != int64(k.reset) {
		b.Errorf("key %q is %+v of %d; %d takes were reported, %d more were in flight at a kill, its reset was %d",
			c.Key, u, c.Limit, n, k.maybe, k.reset)
	}
}

// counted returns how many takes of a block are counted: the first ones, perhaps
// half of the next, and none later.
func (b *books) counted(s *memstore.Store, first uint32) int {
	b.Helper()
	n, over, keys := 0, false, makeNewKeys()
	for i := range block {
		spent, in := 0, keys.of(first, i)
		for _, c := range in {
			spent += int(count(b, s, c).Count)
		}
		if spent > 0 && over || spent > len(in) {
			b.Fatalf("take %d of the block from %d on is counted, one before it is not", i, first)
		}
		if over = spent < len(in); !over {
			n++
		}
	}
	return n
}
