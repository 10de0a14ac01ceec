package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
)

//go:embed take.lua
var takeText string

//go:embed give.lua
var giveText string

// How windows are written: see take.lua.
const (
	countBits = 31
	countMask = 1<<countBits - 1
	resetMod  = 1<<22 - 1
	lateMod   = 1000 * resetMod // of the millisecond from which a take is too late
)

// maxLateTries bounds how often a take is sent because the server found it too late while its
// caller still waits. Two tries are enough for a clock that was set once; a clock that is set again
// and again is an error.
const maxLateTries = 16

// Take implements weir.Store: one script, one round trip, on the server's clock. A take whose
// window is known to be spent is refused from memory (Receipt.Remembered), with at most one round
// trip a second. With Options.Leases, one whose windows have leased units is admitted without a
// round trip (Receipt.Leased).
//
// The server voids a take that it runs after ctx's deadline, or after Options.Timeout if ctx has
// none: the take spends nothing.
func (s *Store) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	epoch := s.epoch.now() // before the link
	l := s.link.Load()
	if l == nil {
		return s.notConnected()
	}
	var hashes [weir.MaxCharges]hash
	for i := range charges {
		hashes[i] = l.hasher.hash(&charges[i])
	}
	r.Leased = false
	if s.leases != nil && (s.leases.spend(charges, &hashes, r) || s.leases.pass(charges, &hashes, false, r)) {
		return nil
	}
	asked := s.local()
	if s.refuse(charges, &hashes, asked, r) {
		s.remembered.Add(1)
		return nil
	}
	switch waited, err := s.promoted.gate.await(ctx, s.closing); {
	case err != nil:
		return fmt.Errorf("redis %s: it may be a promoted replica that lacks what was counted lately: %w", s.addresses, err)
	case waited: // the connection may be another
		return s.Take(ctx, charges, r)
	}
	return s.takeFromServer(ctx, l, epoch, charges, &hashes, asked, r)
}

// refuse refuses a take from memory, and reports whether it did.
func (s *Store) refuse(charges []weir.Charge, hashes *[weir.MaxCharges]hash, asked int64, r *weir.Receipt) bool {
	if s.leases == nil {
		return s.memory.refuse(hashes[:], charges, nil, asked, r)
	}
	return s.leases.know(charges, hashes, func(held func(i int, reset int64) int64) bool {
		return s.memory.refuse(hashes[:], charges, held, asked, r)
	})
}

func (s *Store) takeFromServer(ctx context.Context, l *link, epoch uint64, charges []weir.Charge, hashes *[weir.MaxCharges]hash, asked int64, r *weir.Receipt) error {
	t := leaseTakes.Get().(*leaseTake)
	defer t.put()
	t.charges, t.hashes, t.r, t.link, t.epoch, t.asked = charges, *hashes, r, l, epoch, asked
	var held, wishes bool
	if s.leases != nil {
		held, wishes = s.leases.look(t)
	}
	for i := range charges {
		t.names[i] = l.hasher.name(&charges[i], t.hashes[i])
	}
	if l.cluster && !sameSlot(t.names[:len(charges)]) {
		s.warnOfSlots()
		return fmt.Errorf("redis %s: %w: they do not begin with the same key source, and a cluster cannot count them together", s.addresses, weir.ErrCharges)
	}
	for tries := 1; ; tries++ {
		coming := s.coming(charges, t.hashes[:])
		err := error(nil)
		if s.leases != nil {
			err = s.leases.take(ctx, t, held, wishes)
		} else {
			err = s.charge(ctx, t)
		}
		switch {
		case errors.Is(err, errAnew):
			return s.Take(ctx, charges, r)
		case err != nil:
			return fmt.Errorf("redis %s: %w", s.addresses, err)
		}
		// what came may have gone to takes whose own units are about to come back
		if r.Allowed || tries == maxTries || !coming.await(ctx, &s.pending, charges, t.hashes[:], r) {
			if !r.Allowed && s.mayClaim() {
				s.claims.claim(t)
			}
			return nil
		}
		t.asked, t.waited, t.marked = s.local(), false, false
	}
}

// leaseTakes are for the next takes.
var leaseTakes = sync.Pool{New: func() any { return new(leaseTake) }}

func (t *leaseTake) put() {
	*t = leaseTake{}
	leaseTakes.Put(t)
}

// ask asks the server for a take of windows.
func (s *Store) ask(ctx context.Context, l *link, names []string, charges []weir.Charge, asked int64, hashes []hash, r *weir.Receipt) error {
	var buf [3*weir.MaxCharges + 1]string
	reply, asked, err := s.askInTime(ctx, ctx, l, &l.take, names, buf[:0], charges, asked)
	if err != nil {
		return err
	}
	return s.read(reply, charges, asked, hashes, r)
}

// askInTime sends a take, and returns when it was sent. The take is too late when caller ends; the
// answer may come until ctx does. args are those of the script before those of the windows. A take
// that the server found too late has spent nothing, nor has one for which its clock is in another
// span of a window that ends by the clock. If its caller still waits, this process was wrong about
// the server's clock: the reply corrects it, and askInTime sends the take again.
func (s *Store) askInTime(ctx, caller context.Context, l *link, sc *script, names, args []string, windows []weir.Charge, asked int64) (rueidis.RedisResult, int64, error) {
	ahead := s.clock.ahead.Load()
	for range maxLateTries {
		s.asked.Add(1)
		all := s.numbers.takeArguments(args, windows, (asked+ahead)/int64(time.Second), lateFrom(s.givesUp(caller, asked)+ahead))
		reply, err := s.run(ctx, l, sc, names, all)
		if err != nil {
			return reply, asked, err
		}
		now, late, err := lateAt(reply)
		if err != nil || !late {
			return reply, asked, err
		}
		asked = s.local()
		if err := caller.Err(); err != nil {
			return reply, asked, err
		}
		ahead = now - asked // the smallest possible difference: see clock.correct
		s.clock.ahead.Store(ahead)
	}
	return rueidis.RedisResult{}, asked, errLate
}

// lateAt reports whether the server found a take too late, and its clock then, in Unix ns.
func lateAt(reply rueidis.RedisResult) (now int64, late bool, err error) {
	m, err := reply.ToMessage()
	if err != nil || !m.IsInt64() {
		return 0, false, err
	}
	micro, err := m.AsInt64()
	return micro * int64(time.Microsecond), true, err
}

// givesUp returns when, by this process's clock, the caller of a take sent at asked stops waiting.
func (s *Store) givesUp(ctx context.Context, asked int64) int64 {
	deadline, ok := ctx.Deadline()
	switch {
	case !ok:
		return asked + int64(s.options.Timeout)
	case s.options.Now != nil:
		return asked + int64(time.Until(deadline))
	}
	return s.start.UnixNano() + int64(deadline.Sub(s.start))
}

// lateFrom returns the first whole millisecond after a time of the server's clock, given in Unix
// ns, in the form that take.lua expects.
func lateFrom(server int64) int64 { return (server/int64(time.Millisecond) + 1) % lateMod }

// neverLate is lateFrom for a probe: it cannot be too late, even if the server's clock is days
// away.
func (s *Store) neverLate() int64 {
	return lateFrom(s.clock.at(s.local()) + (lateMod/2-lateMod/16)*int64(time.Millisecond))
}

// takeArguments appends the arguments of take.lua for a server whose clock reads now, in Unix
// seconds.
func (n *numberCache) takeArguments(args []string, charges []weir.Charge, now, lateFrom int64) []string {
	var ends [weir.MaxCharges]int64 // 0: one length after the first unit
	ones, relative := true, true
	for i := range charges {
		c, per := &charges[i], charges[i].Per
		if c.Ends != nil {
			begin, end := c.Ends.Span(now)
			ends[i], per, relative = end, end-begin, false
		}
		args = append(args, n.text(per<<countBits|c.Limit))
		ones = ones && c.Cost == 1
	}
	args = append(args, n.text(lateFrom))
	if ones && relative {
		return args
	}
	for i := range charges {
		args = append(args, n.text(charges[i].Cost))
	}
	if relative {
		return args
	}
	for _, end := range ends[:len(charges)] {
		args = append(args, n.text(end))
	}
	return args
}

// A numberCache holds the decimal texts of numbers. A policy has few numbers, and concurrent takes
// share the millisecond of their deadline, so most takes format none.
type numberCache [256]atomic.Pointer[numberText]

type numberText struct {
	n    int64
	text string
}

func (c *numberCache) text(n int64) string {
	at := &c[uint64(n)*0x9E3779B97F4A7C15>>56]
	if known := at.Load(); known != nil && known.n == n {
		return known.text
	}
	entry := &numberText{n, strconv.FormatInt(n, 10)}
	at.Store(entry)
	return entry.text
}

var (
	// errReply means a reply that the script cannot have given.
	errReply = errors.New("unexpected reply: does another program write under this prefix?")
	// errLate means that the server found a take too late, or in another span, on every try.
	errLate = errors.New("the server's clock was set repeatedly, so every attempt of the take came too late")
)

// read decodes the script's reply into r, and remembers it.
func (s *Store) read(reply rueidis.RedisResult, charges []weir.Charge, asked int64, hashes []hash, r *weir.Receipt) error {
	all, err := reply.ToArray()
	if err != nil {
		return err
	}
	fraction, err := s.readWindows(all, nil, charges, asked, hashes, r)
	if err != nil {
		return err
	}
	s.learnRefusal(fraction, len(charges), asked, hashes, r)
	return nil
}

// learnRefusal remembers a refusal, or forgets those of windows that have room now.
func (s *Store) learnRefusal(fraction int64, charges int, asked int64, hashes []hash, r *weir.Receipt) {
	if !r.Allowed {
		s.rememberRefusal(fraction, charges, asked, hashes, r)
		return
	}
	for i := range charges {
		s.memory.forgetRefusal(hashes[i].id())
	}
}

// readWindows decodes the reply for windows into r. fraction is the part of the server's second
// that has passed, in ns, unless the windows were open and had room. granted are the units of each
// window that were leased in the same step; nil: none. An outage goes on from counts with these.
func (s *Store) readWindows(all []rueidis.RedisMessage, granted []int64, charges []weir.Charge, asked int64, hashes []hash, r *weir.Receipt) (fraction int64, err error) {
	answered := s.local()
	var n [3 + 2*weir.MaxCharges]int64
	if len(all) > len(n) {
		return 0, errReply
	}
	for i := range all {
		if n[i], err = all[i].AsInt64(); err != nil {
			return 0, err
		}
	}
	r.Remembered = false
	switch len(all) {
	case len(charges) + 1:
		s.readOpen(n[:len(all)], charges, asked, answered, r)
	case 2*len(charges) + 3:
		r.Now, r.Allowed = n[0], n[1] == 1
		for i := range charges {
			r.Used[i] = weir.Used{Count: n[3+2*i], Reset: n[4+2*i]}
		}
		fraction = n[2] * int64(time.Microsecond)
		if r.Allowed {
			r.Ticket.At = r.Now*1000 + n[2]/1000
		}
		s.clock.correct(asked, answered, r.Now*int64(time.Second)+fraction, int64(time.Microsecond))
	default:
		return 0, errReply
	}
	for i := range charges {
		used := r.Used[i]
		if granted != nil {
			used.Count += granted[i]
		}
		s.memory.noteStanding(hashes[i].id(), used, r.Now, charges[i].End(r.Now), asked, answered)
	}
	return fraction, nil
}

// readOpen decodes the reply for windows that were open and had room: each window as written, and
// the first one's time to live.
func (s *Store) readOpen(n []int64, charges []weir.Charge, asked, answered int64, r *weir.Receipt) {
	first := n[0]
	reset := unwrap(first>>countBits, s.clock.at(asked)/int64(time.Second))
	now := reset*1000 - n[1]
	r.Now, r.Allowed, r.Ticket.At = now/1000, true, now
	r.Used[0] = weir.Used{Count: first & countMask, Reset: reset}
	for i := 1; i < len(charges); i++ {
		window := n[i+1]
		if window == 0 { // a gate without a window
			r.Used[i] = weir.Used{}
			continue
		}
		f := (window>>countBits - r.Now) % resetMod
		if f < 0 {
			f += resetMod
		}
		r.Used[i] = weir.Used{Count: window & countMask, Reset: r.Now + f}
	}
	s.clock.correct(asked, answered, now*int64(time.Millisecond), int64(time.Millisecond))
}

// unwrap returns the reset that is written as f, if it is about now: it lies at most a week before
// and five weeks after.
func unwrap(f, now int64) int64 {
	from := now - (resetMod-int64(weir.MaxSpan/time.Second))/2
	d := (f - from) % resetMod
	if d < 0 {
		d += resetMod
	}
	return from + d
}

// maxRoundTrip is the longest time of a reply whose reading of the server's clock is kept.
const maxRoundTrip = 250 * time.Millisecond

// rememberRefusal keeps a refusal, unless the reply took too long to know the server's second.
func (s *Store) rememberRefusal(fraction int64, charges int, asked int64, hashes []hash, r *weir.Receipt) {
	since, until := asked, s.local()
	if until < since || until-since > int64(maxRoundTrip) || fraction+until-since >= int64(time.Second) {
		return
	}
	for i := range charges {
		e := &refusal{id: hashes[i].id(), used: r.Used[i], now: r.Now*int64(time.Second) + fraction, since: since, until: until}
		e.asked.Store(since)
		s.memory.keepRefusal(e)
		s.memory.dropSettled(e)
	}
}

// maxPipeline is how many units are sent to the server in one pipeline.
const maxPipeline = 256

// Give implements weir.Shared. Units that were not sent, or not answered, count as lost.
func (s *Store) Give(ctx context.Context, spent []weir.Spent) (lost int64, err error) {
	for len(spent) > 0 {
		n := min(len(spent), maxPipeline)
		more, failed := s.give(ctx, spent[:n])
		lost, err = lost+more, errors.Join(err, failed)
		spent = spent[n:]
	}
	return lost, err
}

func (s *Store) give(ctx context.Context, spent []weir.Spent) (lost int64, err error) {
	// a promoted replica would be given it again; if ctx ends here, sending fails
	_, _ = s.promoted.gate.await(ctx, s.closing)
	h := s.hasher.Load()
	if h == nil {
		for i := range spent {
			lost += spent[i].Used.Count
		}
		return lost, s.notConnected()
	}
	all := make([]journalEntry, len(spent))
	for i := range spent {
		g := &spent[i]
		c := weir.Charge{Key: g.Key, Scope: g.Scope, Subject: g.Subject}
		all[i] = journalEntry{name: h.name(&c, h.hash(&c)), per: g.Per, reset: g.Used.Reset, spent: g.Used.Count}
	}
	failed, err := s.giveWindows(ctx, nil, all)
	return unitsOf(failed), err
}

// giveWindows gives what windows have spent to the server, or to the machine of it that to is. It
// returns those that were not sent, or not answered.
func (s *Store) giveWindows(ctx context.Context, to rueidis.Client, windows []journalEntry) (lost []journalEntry, err error) {
	epoch := s.epoch.now() // before the link
	l := s.link.Load()
	if l == nil {
		return windows, s.notConnected()
	}
	if to == nil {
		to = l.client
	}
	var how giveMode
	for len(windows) > 0 {
		var again []journalEntry // both errors mean that the script has not run
		next := how
		for i, failed := range s.doMulti(ctx, to, l.giveCommands(windows, how)) {
			redisErr, ok := rueidis.IsRedisErr(failed)
			switch {
			case failed == nil:
				s.noteSpent(epoch, s.Now().Unix(), windows[i], l)
			case ok && redisErr.IsNoScript() && !how.whole:
				next.whole, again = true, append(again, windows[i])
			case ok && redisErr.IsTryAgain() && !how.alone:
				next.alone, again = true, append(again, windows[i])
			default:
				lost, err = append(lost, windows[i]), failed
			}
		}
		windows, how = again, next
	}
	if err != nil {
		err = fmt.Errorf("redis %s: %w", s.addresses, classified(err))
	}
	return lost, err
}

// givenName follows a window's name in the name of the mark that a give has created it.
const givenName = ":given"

// A giveMode is how give.lua is run.
type giveMode struct {
	whole bool // by its text, not its SHA-1
	alone bool // without the mark: while a slot moves, a cluster rejects two keys if one is missing
}

// giveCommands returns the commands that add what windows have spent.
func (l *link) giveCommands(windows []journalEntry, how giveMode) []rueidis.Completed {
	commands := make([]rueidis.Completed, len(windows))
	for i := range windows {
		w := &windows[i]
		keys := []string{w.name, w.name + givenName}
		if how.alone {
			keys = keys[:1]
		}
		commands[i] = l.give.command(l, how.whole, keys, []string{
			strconv.FormatInt(w.spent, 10), strconv.FormatInt(w.per, 10), strconv.FormatInt(w.reset, 10),
		})
	}
	return commands
}
