package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
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

// mostLate is how often a take is asked at most because the server found it too late though its
// caller still waits. Twice is enough for a clock that was set; a clock that is set all the time is
// an error.
const mostLate = 16

// Take implements weir.Store: one script, one round trip, on the server's clock. A take whose window is known to be spent is
// refused from memory (Receipt.Remembered), without asking; the server is asked about it once a second at most.
//
// The server voids a take that it runs after ctx's deadline, or after Options.Timeout if ctx has
// none: it spends nothing.
func (s *Store) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	l := s.link.Load()
	if l == nil {
		return s.unready()
	}
	var hashes [weir.MaxCharges]hash
	for i := range charges {
		hashes[i] = l.hasher.hash(&charges[i])
	}
	asked := s.local()
	if s.memory.refuse(hashes[:], charges, asked, r) {
		s.remembered.Add(1)
		return nil
	}
	var names [weir.MaxCharges]string
	for i := range charges {
		names[i] = l.hasher.name(&charges[i], hashes[i])
	}
	if l.cluster && !sameSlot(names[:len(charges)]) {
		s.warnOfSlots()
		return fmt.Errorf("redis %s: %w: they do not begin with the same key source, and a cluster counts only such together", s.where, weir.ErrCharges)
	}
	if err := s.ask(ctx, l, names[:len(charges)], charges, asked, hashes[:], r); err != nil {
		return fmt.Errorf("redis %s: %w", s.where, err)
	}
	return nil
}

// ask asks the server for a take. A take that the server finds too late has spent nothing, so it is
// asked again if its caller still waits: then this process was wrong about the server's clock, and
// the answer has corrected that.
func (s *Store) ask(ctx context.Context, l *link, names []string, charges []weir.Charge, asked int64, hashes []hash, r *weir.Receipt) error {
	var room [2*weir.MaxCharges + 1]string
	ahead := s.clock.ahead.Load()
	for range mostLate {
		s.asked.Add(1)
		args := s.spellings.takeArguments(room[:0], charges, lateFrom(s.givesUp(ctx, asked)+ahead))
		reply, err := s.run(ctx, l, &l.take, names, args)
		if err != nil {
			return err
		}
		now, late, err := lateAt(reply)
		if err != nil {
			return err
		}
		if !late {
			return s.read(reply, charges, asked, hashes, r)
		}
		asked = s.local()
		ahead = now - asked // the least that it can be: see clock.correct
		s.clock.ahead.Store(ahead)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return errLate
}

// lateAt reads from the answer to a take whether the server found it too late, and by what time of
// its clock, in Unix ns.
func lateAt(reply rueidis.RedisResult) (now int64, late bool, err error) {
	m, err := reply.ToMessage()
	if err != nil || !m.IsInt64() {
		return 0, false, err
	}
	micro, err := m.AsInt64()
	return micro * int64(time.Microsecond), true, err
}

// givesUp returns when, by this process's clock, whoever asks at asked waits no longer.
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

// lateFrom returns the first millisecond after a time of the server's clock, in Unix ns, as
// take.lua wants it.
func lateFrom(server int64) int64 { return (server/int64(time.Millisecond) + 1) % lateMod }

// neverLate is for a take that is nobody's: so it cannot be too late, though the server's clock may
// be days away.
func (s *Store) neverLate() int64 {
	return lateFrom(s.clock.at(s.local()) + (lateMod/2-lateMod/16)*int64(time.Millisecond))
}

func (sp *spellings) takeArguments(args []string, charges []weir.Charge, lateFrom int64) []string {
	ones := true
	for i := range charges {
		c := &charges[i]
		args = append(args, sp.spelled(c.Per<<countBits|c.Limit))
		ones = ones && c.Cost == 1
	}
	args = append(args, sp.spelled(lateFrom))
	if !ones {
		for i := range charges {
			args = append(args, sp.spelled(charges[i].Cost))
		}
	}
	return args
}

// spellings are numbers that were written before. A policy has few, and takes that are asked at
// about the same time give up in the same millisecond, so numbers need not be written for every
// take.
type spellings [256]atomic.Pointer[spelling]

type spelling struct {
	n    int64
	text string
}

func (sp *spellings) spelled(n int64) string {
	at := &sp[uint64(n)*0x9E3779B97F4A7C15>>56]
	if known := at.Load(); known != nil && known.n == n {
		return known.text
	}
	s := &spelling{n, strconv.FormatInt(n, 10)}
	at.Store(s)
	return s.text
}

var (
	// errReply is an answer that the script cannot have given.
	errReply = errors.New("an answer that makes no sense; is something else writing under this prefix?")
	// errLate is the error of a take that the server found too late each time it was asked.
	errLate = errors.New("the server's clock was set while it was asked, again and again, so it took each question for one that came too late")
)

// read reads what the script answered into r, and remembers it.
func (s *Store) read(reply rueidis.RedisResult, charges []weir.Charge, asked int64, hashes []hash, r *weir.Receipt) error {
	all, err := reply.ToArray()
	if err != nil {
		return err
	}
	var n [3 + 2*weir.MaxCharges]int64
	if len(all) > len(n) {
		return errReply
	}
	for i := range all {
		if n[i], err = all[i].AsInt64(); err != nil {
			return err
		}
	}
	r.Remembered = false
	switch len(all) {
	case len(charges) + 1:
		s.readOpen(n[:len(all)], charges, asked, r)
	case 2*len(charges) + 3:
		r.Now, r.Allowed = n[0], n[1] == 1
		for i := range charges {
			r.Used[i] = weir.Used{Count: n[3+2*i], Reset: n[4+2*i]}
		}
		s.clock.correct(asked, r.Now*int64(time.Second)+n[2]*int64(time.Microsecond), s.local)
	default:
		return errReply
	}
	for i := range charges {
		s.memory.note(hashes[i].id(), r.Used[i], r.Now, charges[i].Per)
	}
	if r.Allowed {
		for i := range charges {
			s.memory.forget(hashes[i].id())
		}
		return nil
	}
	s.remember(n[2]*int64(time.Microsecond), len(charges), asked, hashes, r)
	return nil
}

// readOpen reads the answer of windows that were open and had room: each as it is written, and how long the first goes on.
func (s *Store) readOpen(n []int64, charges []weir.Charge, asked int64, r *weir.Receipt) {
	first := n[0]
	reset := unwrap(first>>countBits, s.clock.at(asked)/int64(time.Second))
	now := reset*1000 - n[1]
	r.Now, r.Allowed = now/1000, true
	r.Used[0] = weir.Used{Count: first & countMask, Reset: reset}
	for i := 1; i < len(charges); i++ {
		window := n[i+1]
		f := (window>>countBits - r.Now) % resetMod
		if f < 0 {
			f += resetMod
		}
		r.Used[i] = weir.Used{Count: window & countMask, Reset: r.Now + f}
	}
	s.clock.correct(asked, now*int64(time.Millisecond), s.local)
}

// unwrap returns the reset that is written as f, seen at about now: it lies within a week before and five weeks after.
func unwrap(f, now int64) int64 {
	from := now - (resetMod-int64(weir.MaxPer/time.Second))/2
	d := (f - from) % resetMod
	if d < 0 {
		d += resetMod
	}
	return from + d
}

// precise is how long an answer may take so that what it said of the server's clock is worth keeping.
const precise = 250 * time.Millisecond

// remember keeps a refusal, unless the answer was too long under way to say what second it is.
func (s *Store) remember(fraction int64, charges int, asked int64, hashes []hash, r *weir.Receipt) {
	since, until := asked, s.local()
	if until < since || until-since > int64(precise) || fraction+until-since >= int64(time.Second) {
		return
	}
	for i := range charges {
		e := &refusal{id: hashes[i].id(), used: r.Used[i], now: r.Now*int64(time.Second) + fraction, since: since, until: until}
		e.asked.Store(since)
		s.memory.keep(e)
	}
}

// mostGiven is how many units are sent to the server in one pipeline.
const mostGiven = 256

// Give implements weir.Shared. What could not be sent, or was not answered, counts as lost; what was answered has arrived.
func (s *Store) Give(ctx context.Context, spent []weir.Spent) (lost int64, err error) {
	for len(spent) > 0 {
		n := min(len(spent), mostGiven)
		more, failed := s.give(ctx, spent[:n])
		lost, err = lost+more, errors.Join(err, failed)
		spent = spent[n:]
	}
	return lost, err
}

func (s *Store) give(ctx context.Context, spent []weir.Spent) (lost int64, err error) {
	l := s.link.Load()
	if l == nil {
		for i := range spent {
			lost += spent[i].Used.Count
		}
		return lost, s.unready()
	}
	var how giving
	for len(spent) > 0 {
		var again []weir.Spent // both errors say that nothing was run
		next := how
		for i, failed := range s.doMulti(ctx, l, l.gifts(spent, how)) {
			told, ok := rueidis.IsRedisErr(failed)
			switch {
			case failed == nil:
			case ok && told.IsNoScript() && !how.whole:
				next.whole, again = true, append(again, spent[i])
			case ok && told.IsTryAgain() && !how.alone:
				next.alone, again = true, append(again, spent[i])
			default:
				lost, err = lost+spent[i].Used.Count, failed
			}
		}
		spent, how = again, next
	}
	if err != nil {
		err = fmt.Errorf("redis %s: %w", s.where, explained(err))
	}
	return lost, err
}

// givenName is behind the name of a window for the mark that a give opened it.
const givenName = ":given"

// A giving is how give.lua is run.
type giving struct {
	whole bool // it is sent, not only named
	alone bool // without the mark: while a slot moves, a cluster takes no two keys of which one is missing
}

// gifts are the commands that add spent.
func (l *link) gifts(spent []weir.Spent, how giving) []rueidis.Completed {
	commands := make([]rueidis.Completed, len(spent))
	for i := range spent {
		g := &spent[i]
		c := weir.Charge{Key: g.Key, Scope: g.Scope, Subject: g.Subject}
		name := l.hasher.name(&c, l.hasher.hash(&c))
		keys := []string{name, name + givenName}
		if how.alone {
			keys = keys[:1]
		}
		commands[i] = l.give.command(l, how.whole, keys, []string{
			strconv.FormatInt(g.Used.Count, 10), strconv.FormatInt(g.Per, 10), strconv.FormatInt(g.Used.Reset, 10),
		})
	}
	return commands
}
