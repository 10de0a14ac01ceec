package replay

import (
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/accesslog"
	"github.com/weirlimit/weir/memstore"
)

// A patient is one request that is sent again and again, each by itself.
type patient struct {
	came int64 // nanoseconds
	wake int64 // seconds
	who  weir.Keys
}

// A model sends every waiting request at its own reset, in the order of resets, then of arrival.
type model struct {
	t        *rapid.T
	now      int64
	decider  *weir.Decider
	patience int64
	waiting  []patient
	delays   []int64
	gaveUp   int64
	served   int64
}

func newModel(t *rapid.T, p weir.Policy, patience time.Duration) *model {
	m := &model{t: t, patience: int64(patience)}
	store, err := memstore.New(memstore.Options{Memory: memstore.MinMemory, Now: func() time.Time { return time.Unix(0, m.now) }})
	if err != nil {
		t.Fatal(err)
	}
	if m.decider, err = weir.New(p, store, weir.Options{}); err != nil {
		t.Fatal(err)
	}
	return m
}

// send decides a request, and reports whether it must wait.
func (m *model) send(p *patient) (waits bool) {
	d, err := m.decider.Decide(m.t.Context(), weir.Request{Method: "GET", Path: "/", Keys: p.who})
	if err != nil {
		m.t.Fatal(err)
	}
	if d.Allowed {
		m.served++
		return false
	}
	p.wake = d.Binding().Reset
	if p.wake*int64(time.Second)-p.came > m.patience {
		m.gaveUp++
		return false
	}
	return true
}

// until sends the requests that wait for a time up to at.
func (m *model) until(at int64) {
	for {
		next := -1
		for i, p := range m.waiting {
			// they are in the order of arrival
			if p.wake*int64(time.Second) <= at && (next < 0 || p.wake < m.waiting[next].wake) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		p := &m.waiting[next]
		m.now = p.wake * int64(time.Second)
		gaveUp := m.gaveUp
		if m.send(p) {
			continue
		}
		if m.gaveUp == gaveUp {
			m.delays = append(m.delays, m.now-p.came)
		}
		m.waiting = slices.Delete(m.waiting, next, next+1)
	}
}

func (m *model) add(at int64, who weir.Keys) {
	m.until(at)
	m.now = at
	p := patient{came: at, who: who}
	if m.send(&p) {
		m.waiting = append(m.waiting, p)
	}
}

// An asker is a caller's keys.
type asker struct {
	addr  netip.Addr
	agent string
}

func (a asker) Addr() netip.Addr { return a.addr }
func (a asker) AppendKey(dst []byte, source string) ([]byte, bool) {
	switch source {
	case identity.IP:
		b := a.addr.As4()
		return append(dst, b[:]...), true
	case identity.Agent:
		return append(dst, a.agent...), true
	}
	return dst, source == identity.Everyone
}

// A line of equal requests, of which only the first is sent, gives the same result as sending each.
func TestALineIsServedAsIfEachRequestWereSent(t *testing.T) {
	waited, tired := 0, int64(0)
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.Permutation([]int{1, 3, 10, 60}).Draw(t, "lengths")
		l := limiterOf(t, "all")
		l.Cost = int64(rapid.IntRange(0, 2).Draw(t, "cost"))
		for i := range rapid.IntRange(1, 3).Draw(t, "windows") {
			key, err := weir.ParseKey(rapid.SampledFrom([]string{"ip", "agent", "ip+agent", "everyone"}).Draw(t, "key"))
			if err != nil {
				t.Fatal(err)
			}
			l.Windows = append(l.Windows, weir.Window{Limit: int64(rapid.IntRange(2, 6).Draw(t, "limit")), Per: time.Duration(lengths[i]) * time.Second, Key: key})
		}
		if w := &l.Windows[0]; rapid.Bool().Draw(t, "override") && !w.Key.Uses("everyone") {
			l.Overrides = []weir.Override{{Limit: 8, Per: w.Per, For: weir.Who{Network: netip.MustParsePrefix("192.0.2.1/32")}}}
		}
		patience := time.Duration(rapid.SampledFrom([]int{1, 20, 100, 100_000}).Draw(t, "patience")) * time.Second
		m := newModel(t, policyOf(l), patience)
		r := start(t, Options{Policy: policyOf(l), Paced: true, Patience: patience})
		at := noon * int64(time.Second)
		total := rapid.IntRange(1, 100).Draw(t, "requests")
		for range total {
			at += int64(rapid.SampledFrom([]time.Duration{0, 0, 0, 300 * time.Millisecond, time.Second, 7 * time.Second}).Draw(t, "later"))
			a := asker{netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(0, 2).Draw(t, "peer"))}), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "agent")}
			m.add(at, a)
			if err := r.Add(&accesslog.Line{Time: at, Peer: []byte(a.addr.String()), Method: []byte("GET"), Target: []byte("/"), UserAgent: []byte(a.agent), HasAgent: true}); err != nil {
				t.Fatal(err)
			}
		}
		m.until(math.MaxInt64)
		o := report(t, r).Policy
		sum, longest := 0.0, 0.0
		for _, d := range m.delays {
			sum, longest = sum+float64(d)/1e9, max(longest, float64(d)/1e9)
		}
		got := o.Delay
		if got.Delayed != int64(len(m.delays)) || got.GaveUp != m.gaveUp || got.NoRoom != 0 || math.Abs(got.Mean*float64(got.Delayed)-sum) > 1e-6*(sum+1) || got.Max != longest {
			t.Fatalf("%+v; each by itself: %d served after %v s, %v s at most, %d gave up", got, len(m.delays), sum, longest, m.gaveUp)
		}
		if m.served+m.gaveUp != int64(total) || o.Requests-o.Refused+got.Delayed+got.GaveUp != int64(total) {
			t.Fatalf("%d requests: %+v; %d served, %d gave up", total, got, m.served, m.gaveUp)
		}
		waited, tired = waited+len(m.delays), tired+m.gaveUp
	})
	if !testing.Short() && (waited < 500 || tired < 100) {
		t.Errorf("%d waited, %d gave up: too few to judge", waited, tired)
	}
}
