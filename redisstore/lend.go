package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
)

//go:embed lease.lua
var leaseTail string

// leaseText has take.lua as a function, so that what is taken and what is leased are charged in one
// script.
var leaseText = "local take=function(KEYS,ARGV)\n" + takeText + "end\n" + leaseTail

// leaseClock returns the clock by which leases end.
func (s *Store) leaseClock() func() (time.Duration, bool) {
	if s.options.Now != nil {
		return func() (time.Duration, bool) { return time.Duration(s.local()), true }
	}
	return lease.NewClock().Now
}

// errAnew is of a take whose epoch has ended while it waited for its turn. It was not sent: it
// could not be settled, and what it leased would be dropped at once, and leased again by the next.
var errAnew = errors.New("the connection was replaced while the take waited")

// charge implements lender.
func (s *Store) charge(ctx context.Context, t *leaseTake) error {
	if t.waited {
		if !s.epoch.lasts(t.epoch, slotIn(t.link, t.names[0])) {
			return errAnew
		}
		t.asked = s.local()
	}
	r := t.r
	r.Ticket = weir.Ticket{}
	place := s.marks.place(t.charges, t.hashes[:])
	if err := s.askFor(ctx, t); err != nil || !r.Allowed {
		return err
	}
	at, ok := s.marks.settleable(&place, r.Ticket.At)
	if r.Ticket.At = at; ok {
		r.Ticket.Epoch = t.epoch
	}
	return nil
}

// askFor sends a take to the server.
func (s *Store) askFor(ctx context.Context, t *leaseTake) error {
	names, hashes := t.names[:len(t.charges)], t.hashes[:]
	var sent time.Duration
	if s.leases != nil {
		sent, _ = s.leases.clock()
	}
	var err error
	switch {
	case holds(t.charges):
		err = s.takeHeld(ctx, t.link, t.epoch, names, t.charges, t.asked, hashes, t.r)
	case t.marked:
		err = s.askMarked(ctx, t, sent)
	default:
		err = s.ask(ctx, t.link, names, t.charges, t.asked, hashes, t.r)
	}
	if err == nil && t.r.Allowed {
		s.noteTake(t)
		if !holds(t.charges) { // takeHeld has waited
			err = s.awaitReplicas(ctx, t.epoch)
		}
	}
	if err != nil || s.leases == nil {
		return err
	}
	if answered, ok := s.leases.clock(); ok && t.r.Allowed {
		s.leases.learnAhead(t.entries[:len(t.charges)], t.r.Ticket.At*int64(time.Millisecond), sent, answered)
	} else if ok {
		s.leases.learnAhead(t.entries[:len(t.charges)], t.r.Now*int64(time.Second), sent-time.Second, answered)
	}
	return nil
}

// askMarked asks the server for a take and for what it wishes for, and for the marks of operators'
// resets.
func (s *Store) askMarked(ctx context.Context, t *leaseTake, sent time.Duration) error {
	n := len(t.charges)
	var names [2 * weir.MaxCharges]string
	var buf [7*weir.MaxCharges + 1]string
	args := buf[:0]
	for i := range n {
		names[i], names[n+i] = t.names[i], t.names[i]+resetName
	}
	args = s.numbers.leaseArguments(args, t.wishes[:n], t.opened[:n], t.early)
	t.lots = [weir.MaxCharges]lease.Lot{}
	caller := ctx
	if t.caller != nil {
		caller = t.caller
	}
	reply, asked, err := s.askInTime(ctx, caller, t.link, &t.link.lease, names[:2*n], args, t.charges, t.asked)
	if redisErr, ok := rueidis.IsRedisErr(err); ok && redisErr.IsTryAgain() && !t.early {
		// Its slot moves, and not all of its keys exist. Without a mark nothing is leased.
		return s.ask(caller, t.link, t.names[:n], t.charges, t.asked, t.hashes[:], t.r)
	}
	if err != nil {
		return err
	}
	all, err := reply.ToArray()
	if err != nil {
		return err
	}
	if len(all) == 0 && t.early {
		return errNotOpen
	}
	if len(all) != 1 && len(all) != 1+2*n {
		return errReply
	}
	windows, err := all[0].ToArray()
	if err != nil {
		return err
	}
	var granted []int64
	if len(all) > 1 {
		granted = make([]int64, n)
		for i := range granted {
			if granted[i], err = all[1+i].AsInt64(); err != nil {
				return err
			}
		}
	}
	fraction, err := s.readWindows(windows, granted, t.charges, asked, t.hashes[:], t.r)
	if err != nil {
		return err
	}
	s.learnRefusal(fraction, n, asked, t.hashes[:], t.r)
	if t.r.Allowed && len(all) > 1 {
		return s.readLots(granted, all[1+n:], t, sent)
	}
	return nil
}

// leaseArguments appends the arguments of lease.lua that come before those of take.lua. opened are
// the resets that the windows must have, if early is true.
func (c *numberCache) leaseArguments(args []string, wishes []lease.Wish, opened []int64, early bool) []string {
	for _, w := range wishes {
		args = append(args, c.text(w.Units))
	}
	for _, w := range wishes {
		args = append(args, c.text(w.Part))
	}
	for _, w := range wishes {
		args = append(args, c.text(w.Least))
	}
	for _, reset := range opened {
		if early {
			reset %= resetMod
		} else {
			reset = -1
		}
		args = append(args, c.text(reset))
	}
	return args
}

// readLots makes lots of what lease.lua has granted, in answer to a question that was sent at sent.
func (s *Store) readLots(granted []int64, marks []rueidis.RedisMessage, t *leaseTake, sent time.Duration) error {
	for i, units := range granted {
		mark, err := marks[i].AsInt64()
		if err != nil {
			return err
		}
		used, l := t.r.Used[i], &t.lots[i]
		l.Window = lease.Window{Reset: used.Reset, Generation: mark}
		l.Window.Epoch = t.epoch
		l.Units, l.Count, l.Limit, l.Sent = units, used.Count+units, t.charges[i].Limit, sent
		// The answer is after the reset, also if the server's clock shows the same millisecond.
		l.At = max(t.r.Ticket.At, mark+1)
		// the server's clock in whole milliseconds was rounded down, so this is rounded up
		left := time.Duration(used.Reset*1000-t.r.Ticket.At-1) * time.Millisecond
		l.Deadline = lease.Deadline(sent, left)
		if e := t.entries[i]; e != nil && e.place.Load() == nil {
			e.place.Store(&leasedPlace{name: t.names[i], slot: slotIn(t.link, t.names[i])})
		}
	}
	return nil
}

// reaches implements lender.
func (s *Store) reaches(ctx context.Context, e *leased) bool {
	l, at := s.link.Load(), e.place.Load()
	if l == nil || at == nil {
		return false
	}
	reply, err := s.do(ctx, l, l.client.B().Get().Key(at.name).Build())
	if err != nil || reply.Error() != nil && !rueidis.IsRedisNil(reply.Error()) {
		return false
	}
	return s.answers() // it may answer this, and take no writes
}

// prepare implements lender.
func (s *Store) prepare(t *leaseTake) bool {
	t.epoch = s.epoch.now() // before the link
	if t.link = s.link.Load(); t.link == nil || s.promoted.gate.isShut() {
		return false
	}
	for i := range t.charges {
		t.hashes[i] = t.link.hasher.hash(&t.charges[i])
		t.names[i] = t.link.hasher.name(&t.charges[i], t.hashes[i])
	}
	t.asked = s.local()
	return !t.link.cluster || sameSlot(t.names[:len(t.charges)])
}

// lasts implements lender.
func (s *Store) lasts(e *leased, epoch uint64) bool {
	at := e.place.Load()
	return at != nil && s.epoch.lasts(epoch, at.slot)
}

// outlives implements lender.
func (s *Store) outlives(e *leased, epoch uint64) bool {
	at := e.place.Load()
	return at != nil && s.epoch.outlives(epoch, at.slot)
}

// answers implements lender. Of a cluster one machine that does not answer says nothing of others.
func (s *Store) answers() bool {
	l := s.link.Load()
	return l != nil && l.cluster || s.state.why() == nil
}

// gaveUp implements lender.
func (s *Store) gaveUp(err error) {
	s.state.failed(err)
	s.noteTroubleBy(err)
}

// giveBack implements lender: units go back like those of a request that has cost less than it
// reserved. So they go back into no other window, and not after a reset or to another server.
func (s *Store) giveBack(ctx context.Context, e *leased, l lease.Lot) (count int64, ok bool) {
	at := e.place.Load()
	if at == nil {
		return 0, false
	}
	o := &order{link: s.link.Load(), epoch: l.Window.Epoch, at: l.At, done: make(chan struct{}), changes: []orderedChange{
		{name: at.name, id: e.hash.id(), reset: l.Window.Reset, units: -l.Units, end: math.MaxInt64},
	}}
	s.begin(o)
	if s.order(o) != nil {
		return 0, false
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		if s.settling.abandon(o) {
			return 0, false
		}
	}
	d := &o.changes[0]
	return d.count, d.done && !d.lost
}

// lookAtResets gives all units back if an operator has reset a window since it looked last. The
// server drops those of windows that were reset.
func (s *Store) lookAtResets(ctx context.Context, l *link) {
	if s.leases == nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	reply, err := s.do(bounded, l, l.client.B().Get().Key(s.prefix+resetsNumberName).Build())
	if err != nil {
		return
	}
	switch number, err := reply.ToString(); {
	case err != nil:
	case number != s.resets:
		s.resets = number
		s.toReturn = s.leases.returnAll(ctx)
	case s.toReturn != nil: // their turns were in use
		s.toReturn = s.leases.returnThese(ctx, s.toReturn)
	}
}

// noteResets tells the processes that lease units of a cluster that windows were reset. One server
// notes it in the script.
func (s *Store) noteResets(ctx context.Context, l *link, marks []int64) error {
	if !l.cluster || slices.Max(marks) == 0 {
		return nil
	}
	reply, err := s.do(ctx, l, l.client.B().Set().Key(s.prefix+resetsNumberName).Value(rand.Text()).ExSeconds(resetMod).Build())
	if err != nil {
		return err
	}
	return reply.Error()
}
