package redis_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
)

// The scripts answer and count as the arithmetic does: takes with leases, units that go back,
// operators' resets, units that were counted elsewhere, and a server that was emptied, while its
// clock goes forward and back.
func TestTheLeaseScriptFollowsTheArithmetic(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	run := newScripts(t, server)
	serial := 0
	rapid.Check(t, func(t *rapid.T) {
		serial++
		if err := run.do("FLUSHALL").Error(); err != nil {
			t.Fatal(err)
		}
		m := newScriptModel(t, run, clock, serial)
		t.Repeat(map[string]func(*rapid.T){
			"":        m.check,
			"take":    m.take,
			"take 2":  m.take, // most steps are takes
			"take 3":  m.take,
			"return":  m.giveBack,
			"give":    m.give,
			"reset":   m.reset,
			"forward": m.forward,
			"back":    m.back,
			"empty":   m.empty,
		})
	})
}

// The texts under test are those that a store sends.
func TestTheStoreSendsTheScriptsUnderTest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	run := newScripts(t, server)
	s := leasing(t, at(server))
	c, other := charge("a", 100, 3600, 1), charge("b", 100, 3600, 1)
	first, second := admitted(t, s, c), admitted(t, s, other)
	first.settle(t, s, 0)
	reset(t, s, c)
	second.settle(t, s, 0)
	if lost, err := s.Give(t.Context(), []weir.Spent{{Key: c.Key, Scope: c.Scope, Subject: c.Subject, Per: c.Per, Used: first.receipt.Used[0]}}); err != nil || lost != 0 {
		t.Fatalf("%d units were lost: %v", lost, err)
	}
	for name, text := range map[string]string{"lease": run.lease, "settle": run.settle, "settle, marked": run.marked, "reset": run.reset, "give": run.give} {
		sum := sha1.Sum([]byte(text))
		known, err := run.do("SCRIPT", "EXISTS", hex.EncodeToString(sum[:])).AsIntSlice()
		if err != nil || known[0] != 1 {
			t.Errorf("the store has not sent the script %s: %v, %v", name, known, err)
		}
	}
}

// scripts are the store's, and a connection.
type scripts struct {
	client                             rueidis.Client
	lease, settle, marked, reset, give string
}

func newScripts(t *testing.T, server *redistest.Server) *scripts {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true, AlwaysRESP2: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	text := func(name string) string {
		b, err := os.ReadFile("../../redisstore/" + name + ".lua")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	change := text("settle_change")
	return &scripts{
		client: client,
		lease:  "local take=function(KEYS,ARGV)\n" + text("take") + "end\n" + text("lease"),
		settle: change + text("settle"), marked: change + text("settle_marked"),
		reset: text("reset"), give: text("give"),
	}
}

func (s *scripts) do(args ...string) rueidis.RedisResult {
	return s.client.Do(context.Background(), s.client.B().Arbitrary(args...).Build())
}

// eval runs a script. Arguments are numbers or texts.
func (s *scripts) eval(text string, keys []string, args ...any) rueidis.RedisResult {
	all := append([]string{"EVAL", text, strconv.Itoa(len(keys))}, keys...)
	for _, a := range args {
		all = append(all, fmt.Sprint(a))
	}
	return s.do(all...)
}

// A scriptModel is what the server should have.
type scriptModel struct {
	run     *scripts
	clock   *redistest.Clock
	windows []modelWindow
	all     expiring // the mark of all resets
	marker  string   // of the server's counts
	known   int64    // the latest take, in Unix ms
	lots    []modelLot
	setBack bool
	earlier bool // a give has made a reset earlier
}

// A modelWindow is one window of the server.
type modelWindow struct {
	weir.Charge
	name string
	weir.Used
	// life is another number if units that were charged before are not the window's any more, or
	// if callers were told another reset.
	life  int
	mark  expiring // of the last reset by an operator
	given expiring
}

// An expiring value is 0 after its end.
type expiring struct{ value, end int64 } // end in Unix ms

// A modelLot is units of a window, as a node knows them.
type modelLot struct {
	window           int
	life             int
	units, reset, at int64
	marker           string
}

const (
	scriptCounts = 1 << 31
	scriptResets = 1<<22 - 1
)

func newScriptModel(t *rapid.T, run *scripts, clock *redistest.Clock, serial int) *scriptModel {
	clock.Advance(time.Unix(1_800_000_000+int64(rapid.IntRange(0, 50).Draw(t, "begins")), 250_000_000).Sub(clock.Now()))
	m := &scriptModel{run: run, clock: clock}
	for i, span := range []string{"5 seconds", "20 seconds", "hour", "5 seconds aligned", "20 seconds aligned", "calendar day in Europe/Berlin"} {
		m.windows = append(m.windows, modelWindow{Charge: spanOf(span), name: fmt.Sprintf("weir:{%d}%d", serial, i)})
	}
	m.empty(t)
	return m
}

func spanOf(span string) weir.Charge {
	lengths := map[string]int64{"5 seconds": 5, "20 seconds": 20, "hour": 3600}
	if per := lengths[span]; per > 0 {
		return weir.Charge{Per: per}
	}
	var l weir.Limiter
	w, err := weir.ParseWindow("1 per " + span + " by ip")
	if err != nil {
		l.Align = weir.AlignClock
		w = weir.Window{Per: time.Duration(lengths[span[:len(span)-len(" aligned")]]) * time.Second}
	}
	ends, err := weir.NewEnds(&l, &w)
	if err != nil {
		panic(err) // the test's own text
	}
	return weir.Charge{Per: ends.Longest(), Ends: ends}
}

func (m *scriptModel) ms() int64 { return m.clock.Now().UnixMilli() }

func (m *scriptModel) now() int64 { return m.clock.Now().Unix() }

// pass lets keys expire: they exist in the millisecond of their end.
func (m *scriptModel) pass() {
	now := m.ms()
	drop := func(e *expiring) {
		if now > e.end {
			*e = expiring{}
		}
	}
	drop(&m.all)
	for i := range m.windows {
		w := &m.windows[i]
		if w.Reset != 0 && now > w.Reset*1000 {
			w.Used = weir.Used{}
			w.life++
		}
		drop(&w.mark)
		drop(&w.given)
	}
}

func (m *scriptModel) forward(t *rapid.T) {
	m.clock.Advance(time.Duration(rapid.SampledFrom([]int{1, 250, 1000, 3750, 5000, 20_000, 3_600_000}).Draw(t, "forward")) * time.Millisecond)
	m.pass()
}

// back sets the clock back, but not after a reset was made earlier: a later window could have that
// reset again, and the script voids nothing then.
func (m *scriptModel) back(t *rapid.T) {
	if m.earlier {
		return
	}
	m.setBack = true
	m.clock.Advance(-time.Duration(rapid.SampledFrom([]int{1, 1000, 4000, 7000, 30_000, 7_200_000}).Draw(t, "back")) * time.Millisecond)
}

// empty deletes all keys, as a restart does. The next counts have another marker.
func (m *scriptModel) empty(t *rapid.T) {
	m.marker += "m"
	if err := errors.Join(m.run.do("FLUSHALL").Error(), m.run.do("SET", "weir:marker", m.marker).Error()); err != nil {
		t.Fatal(err)
	}
	m.all = expiring{}
	for i := range m.windows {
		w := &m.windows[i]
		w.Used, w.mark, w.given = weir.Used{}, expiring{}, expiring{}
		w.life++
	}
}

// A leaseAnswer is the decoded reply of lease.lua.
type leaseAnswer struct {
	Closed         bool // a window is not the one that it must be
	Void           bool // too late, or in another span
	Ms             int64
	Allowed        bool
	Used           [3]weir.Used
	Granted, Marks [3]int64
}

func (m *scriptModel) take(t *rapid.T) {
	type wish struct{ units, part, least int64 }
	which := rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "windows")[:rapid.IntRange(1, 3).Draw(t, "charges")]
	charges, wishes := make([]weir.Charge, len(which)), make([]wish, len(which))
	leasable := true
	for i, k := range which {
		c := m.windows[k].Charge
		c.Limit = rapid.OneOf(rapid.Int64Range(1, 15), rapid.Just(int64(weir.MaxLimit))).Draw(t, "limit")
		c.Cost = rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(weir.Gate, 4), rapid.Just(c.Limit)).Draw(t, "cost")
		charges[i] = c
		leasable = leasable && c.Cost > 0
	}
	if leasable && rapid.IntRange(0, 3).Draw(t, "wishes") > 0 {
		for i := range wishes {
			wishes[i] = wish{
				rapid.OneOf(rapid.Int64Range(0, 12), rapid.Just(int64(weir.MaxLimit))).Draw(t, "units"),
				rapid.SampledFrom([]int64{0, 100, 333, 500, 1000}).Draw(t, "part"),
				rapid.Int64Range(1, 4).Draw(t, "least"),
			}
		}
	}
	late := rapid.SampledFrom([]int64{1, 1, 1, 1000, 1_000_000, 0, -1, -3_600_000}).Draw(t, "milliseconds that are left")
	believed := m.now() + rapid.SampledFrom([]int64{0, 0, 0, 0, 0, -5, 20, 86400}).Draw(t, "the caller's clock is wrong by")

	want := leaseAnswer{Void: late <= 0, Ms: m.ms()}
	maybe := false // it may be void
	var keys []string
	var units, parts, least, windows, costs, ends []any
	ones, relative := true, true
	for i, k := range which {
		c, end, per := &charges[i], int64(0), charges[i].Per
		if c.Ends != nil {
			var begin int64
			begin, end = c.Ends.Span(believed)
			per, relative = end-begin, false
			outside := m.now() < begin || m.now() >= end
			// a gate that has no window passes in any span
			absent := outside && c.Cost == weir.Gate && m.windows[k].Reset == 0
			want.Void, maybe = want.Void || outside && !absent, maybe || absent
		}
		keys = append(keys, m.windows[k].name)
		units, parts, least = append(units, wishes[i].units), append(parts, wishes[i].part), append(least, wishes[i].least)
		windows, costs, ends = append(windows, per*scriptCounts+c.Limit), append(costs, c.Cost), append(ends, end)
		ones = ones && c.Cost == 1
	}
	for _, k := range which {
		keys = append(keys, m.windows[k].name+":reset")
	}
	must, closed := m.drawResets(t, which)
	args := append(append(append(append(append(units, parts...), least...), must...), windows...), (m.ms()+late)%(1000*scriptResets))
	if !ones || !relative {
		args = append(args, costs...)
	}
	if !relative {
		args = append(args, ends...)
	}
	got, err := decodeLease(m.run.eval(m.run.lease, keys, args...), charges, m.now())
	if closed {
		want = leaseAnswer{Closed: true}
	}
	if maybe && !want.Void && !closed {
		want.Void = got.Void
	}
	if !want.Void && !closed {
		want.Allowed = true
		for i, k := range which {
			u := m.windows[k].Used.At(m.now(), charges[i].End(m.now()))
			want.Allowed = want.Allowed && u.Fits(charges[i].Cost, charges[i].Limit)
		}
		for i, k := range which {
			w, c := &m.windows[k], &charges[i]
			u := w.Used.At(m.now(), c.End(m.now()))
			if u.Reset != 0 && u.Reset != w.Reset { // the clock was set back
				w.mark = expiring{(m.now()+1)*1000 + w.Reset*1000 - m.ms(), w.Reset * 1000}
				m.all = expiring{1<<53 - 1, m.ms() + scriptResets*1000}
				w.Used = u
				w.life++
			}
			if want.Allowed && c.Cost > 0 {
				if u.Reset == 0 {
					w.life++
				}
				u = u.Spend(c.Cost, c.End(m.now()))
				w.Used = u
			}
			want.Used[i] = u
		}
	}
	if want.Allowed {
		for i, k := range which {
			w, c := &m.windows[k], &charges[i]
			if g := min(wishes[i].units, (c.Limit-want.Used[i].Count)*wishes[i].part/1000); g > 0 && g >= wishes[i].least {
				w.Count += g
				want.Granted[i] = g
			}
			want.Marks[i] = w.mark.value
			if held := want.Granted[i] + max(0, c.Cost); held > 0 {
				at := max(m.ms(), w.mark.value+1)
				m.lots = append(m.lots, modelLot{window: k, life: w.life, units: held, reset: w.Reset, at: at, marker: m.marker})
				m.known = max(m.known, at)
			}
		}
	}
	if err != nil || got != want {
		t.Fatalf("a take of %+v that wishes for %+v was answered %+v (%v), want %+v", charges, wishes, got, err, want)
	}
}

// drawResets draws the resets that windows must have, or -1, and reports whether one has another.
func (m *scriptModel) drawResets(t *rapid.T, which []int) (must []any, closed bool) {
	for _, k := range which {
		reset := int64(-1)
		if w := &m.windows[k]; rapid.IntRange(0, 3).Draw(t, "must be open") == 0 {
			reset = (w.Reset + rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(t, "another")) % scriptResets
			closed = closed || w.Reset <= m.now() || w.Reset%scriptResets != reset
		}
		must = append(must, reset)
	}
	return must, closed
}

// decodeLease decodes a reply, as the store does at a time in Unix seconds.
func decodeLease(reply rueidis.RedisResult, charges []weir.Charge, now int64) (a leaseAnswer, err error) {
	m, err := reply.ToMessage()
	if err != nil {
		return a, err
	}
	if m.IsInt64() {
		us, err := m.AsInt64()
		return leaseAnswer{Void: true, Ms: us / 1000}, err
	}
	all, err := m.ToArray()
	if err != nil {
		return a, err
	}
	if len(all) == 0 {
		return leaseAnswer{Closed: true}, nil
	}
	n, err := all[0].AsIntSlice()
	if err != nil {
		return a, err
	}
	k := len(charges)
	switch len(n) {
	case k + 1:
		a.Allowed = true
		open := append([]int64{n[0]}, n[2:]...)
		for i, v := range open {
			if v != 0 {
				a.Used[i] = weir.Used{Count: v % scriptCounts, Reset: now + (v/scriptCounts-now%scriptResets+scriptResets)%scriptResets}
			}
		}
		a.Ms = a.Used[0].Reset*1000 - n[1]
	case 2*k + 3:
		a.Ms, a.Allowed = n[0]*1000+n[2]/1000, n[1] == 1
		for i := range charges {
			a.Used[i] = weir.Used{Count: n[3+2*i], Reset: n[4+2*i]}
		}
	default:
		return a, fmt.Errorf("%d numbers for %d windows", len(n), k)
	}
	if a.Allowed != (len(all) == 1+2*k) || !a.Allowed && len(all) != 1 {
		return a, fmt.Errorf("%d parts, allowed: %t", len(all), a.Allowed)
	}
	for i := 0; a.Allowed && i < k; i++ {
		granted, err1 := all[1+i].AsInt64()
		mark, err2 := all[1+k+i].AsInt64()
		if err := errors.Join(err1, err2); err != nil {
			return a, err
		}
		a.Granted[i], a.Marks[i] = granted, mark
	}
	return a, nil
}

// giveBack sends units of a lot back, perhaps again. They change the window that they are of, and
// no later one.
func (m *scriptModel) giveBack(t *rapid.T) {
	if len(m.lots) == 0 {
		return
	}
	l := m.lots[rapid.IntRange(0, len(m.lots)-1).Draw(t, "lot")]
	w, units := &m.windows[l.window], rapid.Int64Range(1, l.units).Draw(t, "units")
	if m.setBack && l.life != w.life && l.reset == w.Reset {
		return // a window ended or was reset, and the clock began it again: the script cannot know
	}
	want := int64(-1)
	if l.marker == m.marker && l.life == w.life {
		w.Used = w.Settle(-units)
		want = w.Count
	}
	keys := []string{"weir:marker", "weir:resets", w.name}
	m2, err := m.run.eval(m.run.settle, keys, l.marker, "", l.at, l.reset%scriptResets, -units).ToMessage()
	if err != nil {
		t.Fatal(err)
	}
	if m2.IsInt64() {
		if n, _ := m2.AsInt64(); n == 0 { // there was a reset since the take
			m2, err = m.run.eval(m.run.marked, []string{w.name, w.name + ":reset", "weir:marker"}, l.reset%scriptResets, -units, l.at, l.marker, "").ToMessage()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	got := int64(-1)
	if !m2.IsInt64() {
		counts, err := m2.AsIntSlice()
		if err != nil {
			t.Fatal(err)
		}
		got = max(-1, counts[0])
	}
	if got != want {
		t.Fatalf("%d units of %+v that came back left a count of %d, want %d (-1: they are not the window's)", units, l, got, want)
	}
}

// give adds units that were counted elsewhere, under a reset that is about one length from now at
// most. The clock's windows have their own. It makes no reset earlier once the clock was set back.
func (m *scriptModel) give(t *rapid.T) {
	w := &m.windows[rapid.IntRange(0, len(m.windows)-1).Draw(t, "window")]
	units := rapid.OneOf(rapid.Int64Range(1, 9), rapid.Just(int64(weir.MaxLimit))).Draw(t, "units")
	reset := w.End(m.now())
	if w.Ends == nil {
		reset += rapid.Int64Range(-w.Per-1, 1).Draw(t, "earlier")
	}
	want := int64(0)
	if reset > m.now() {
		want = 1
		told := min(reset, m.now()+w.Per)
		u, given := w.Used.At(m.now(), m.now()+w.Per), true
		switch {
		case u.Reset == 0:
			u.Reset = told
			w.life++
		case u.Reset != w.Reset: // the clock was set back
			given = false
			w.mark = expiring{(m.now()+1)*1000 + w.Reset*1000 - m.ms(), w.Reset * 1000}
			m.all = expiring{1<<53 - 1, m.ms() + scriptResets*1000}
			w.life++
		default:
			if given = w.given.value == u.Reset; given && told < u.Reset {
				if m.setBack {
					return
				}
				m.earlier = true
				u.Reset = told
				w.life++
			}
		}
		u.Count = min(u.Count+units, weir.MaxLimit)
		if w.Used = u; given {
			w.given = expiring{u.Reset, u.Reset * 1000}
		}
	}
	got, err := m.run.eval(m.run.give, []string{w.name, w.name + ":given"}, units, w.Per, reset).AsInt64()
	if err != nil || got != want {
		t.Fatalf("%d units until %d were answered %d (%v), want %d", units, reset, got, err, want)
	}
}

// reset resets windows as an operator does, at a node that knows of all takes or of none.
func (m *scriptModel) reset(t *rapid.T) {
	which := rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "windows")[:rapid.IntRange(1, 3).Draw(t, "how many")]
	after := rapid.SampledFrom([]int64{0, m.known + 1}).Draw(t, "after")
	var names, marks []string
	var want []int64
	last, lasts := int64(0), int64(0)
	for _, k := range which {
		w := &m.windows[k]
		names, marks = append(names, w.name), append(marks, w.name+":reset")
		mark := int64(0)
		if left := w.Reset*1000 - m.ms(); left > 0 {
			mark = max(m.ms(), after, w.mark.value+1)
			w.mark = expiring{mark, w.Reset * 1000}
			last, lasts = max(last, mark), max(lasts, left)
		}
		want = append(want, mark)
		w.Used = weir.Used{}
		w.life++
	}
	if last > 0 {
		m.all = expiring{max(last, m.all.value), max(m.ms()+lasts, m.all.end)}
	}
	got, err := m.run.eval(m.run.reset, append(append(names, marks...), "weir:resets"), after).AsIntSlice()
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("a reset of %v was answered %v (%v), want %v", names, got, err, want)
	}
}

// check compares what the server has.
func (m *scriptModel) check(t *rapid.T) {
	for i := range m.windows {
		w := &m.windows[i]
		left, err := m.run.do("PTTL", w.name).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		if ends := w.Reset*1000 - m.ms(); ends > 0 {
			value, err := m.run.do("GET", w.name).AsInt64()
			if want := w.Reset%scriptResets*scriptCounts + w.Count; err != nil || value != want || left != ends {
				t.Fatalf("window %d is %d of %d for %d ms (%v), want %+v for %d ms", i, value%scriptCounts, value/scriptCounts, left, err, w.Used, ends)
			}
		} else if left != -2 && left != 0 {
			t.Fatalf("window %d is there for %d ms, and should not be", i, left)
		}
		m.checkMark(t, w.name+":reset", w.mark)
		m.checkMark(t, w.name+":given", w.given)
	}
	m.checkMark(t, "weir:resets", m.all)
}

func (m *scriptModel) checkMark(t *rapid.T, name string, want expiring) {
	value, err := m.run.do("GET", name).AsInt64()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	if err != nil || value != want.value {
		t.Fatalf("%s is %d (%v), want %d", name, value, err, want.value)
	}
}
