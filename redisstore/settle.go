package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
)

var _ weir.SettleStarter = (*Store)(nil)

// The scripts that settle begin with changeText, a function.
var (
	//go:embed settle_change.lua
	changeText string
	//go:embed settle.lua
	settleText string
	//go:embed settle_marked.lua
	markedText string
)

// settleTimeout bounds the wait for the server's answer to a batch, and for keys that move.
const settleTimeout = time.Second

// What the scripts return in place of a count.
const (
	windowGone = -1
	windowLost = -2
)

// What the scripts return in place of all counts: they have changed nothing.
const (
	resetSince = 0  // a take may be from before an operator's reset
	countsLost = -1 // the server has lost counts
)

// Settle implements weir.Settler. Changes that wait at the same time share a command. Takes that
// were counted before the connection was replaced are not settled (Change.Lost): the server may
// have lost them. The slots of a take are given back in any case, if only by expiring.
func (s *Store) Settle(ctx context.Context, t *weir.Ticket, changes []weir.Change) error {
	return s.StartSettle(ctx, t, changes)()
}

// StartSettle implements weir.SettleStarter. Until the server has answered, each take of the same
// slots gives them back too, and one that is refused by the same windows asks again after it
// (ended.go, pending.go).
func (s *Store) StartSettle(ctx context.Context, t *weir.Ticket, changes []weir.Change) (finish func() error) {
	ended := s.held.end(t.Slot, changes)
	o := s.newOrder(t, changes)
	s.begin(o)
	return func() error { return s.finishSettle(ctx, o, changes, ended) }
}

func (s *Store) finishSettle(ctx context.Context, o *order, changes []weir.Change, ended []*heldSlots) error {
	s.giveEnded(ctx, o, changes, ended)
	if s.leases != nil && o.link != nil {
		s.leases.settling(ctx, o)
	}
	err, finished := s.order(o), false
	if err == nil {
		select {
		case <-o.done:
			finished = true
		case <-ctx.Done():
			finished = !s.settling.abandon(o)
		}
		if err = ctx.Err(); finished {
			err = o.err
		}
	}
	now := s.Now().Unix()
	for i := range changes {
		c, d := &changes[i], &o.changes[i]
		c.Done, c.Used, c.Lost = false, weir.Used{}, false
		switch {
		case finished && d.done:
			c.Done, c.Used = true, weir.Used{Count: d.count, Reset: c.Reset}
		case !finished || d.lost:
			c.Lost = c.Units != 0 && (c.Held || c.Reset > now)
		}
	}
	if err != nil {
		return fmt.Errorf("redis %s: settle %d changes: %w", s.addresses, len(changes), err)
	}
	return nil
}

// settleBatch sends the changes of orders of one link, and reports their results.
func (s *Store) settleBatch(l *link, batch []*order) {
	ctx, cancel := context.WithTimeout(s.closing, settleTimeout)
	defer cancel()
	s.giveSlots(ctx, l, batch)
	s.settleWindows(ctx, l, batch)
	for _, o := range batch {
		if o.again {
			s.done.Go(func() { s.settleAgain(o) })
		} else {
			s.finish(o)
		}
	}
}

// giveSlots gives slots back. It does no harm if a command is repeated or comes late, because each
// take has slots of its own.
func (s *Store) giveSlots(ctx context.Context, l *link, batch []*order) {
	var commands []rueidis.Completed
	var of []*orderedChange
	var orders []*order
	for _, o := range batch {
		for i := range o.changes {
			d := &o.changes[i]
			if d.slots == nil || d.done || d.lost {
				continue
			}
			of, orders = append(of, d), append(orders, o)
			s.memory.beginSettling(d.id)
			commands = append(commands,
				l.client.B().Zrem().Key(d.name).Member(slotMembers(d.slots.take, d.slots.cost)...).Build(),
				l.client.B().Zcard().Key(d.name).Build())
		}
	}
	if len(commands) == 0 {
		return
	}
	replies, err := s.exchange(ctx, l.client, commands)
	for i, d := range of {
		failed := err
		if failed == nil {
			failed = replies[2*i].Error()
		}
		if failed == nil {
			d.count, failed = replies[2*i+1].AsInt64()
		}
		if d.done, d.lost = failed == nil, failed != nil; d.lost {
			orders[i].err = classified(failed)
		}
		s.memory.endSettling(d.id)
		s.held.given(d.slots)
	}
}

// A settlePart is the changes of one script, and their orders.
type settlePart struct {
	changes []*orderedChange
	orders  []*order
	seen    *seen // nil on a cluster
	marked  bool  // by settle_marked.lua
}

// settleParts returns the changes of windows: on a cluster those of each take apart, because they
// are on one machine. The changes of an epoch that has ended are lost.
func (s *Store) settleParts(l *link, batch []*order) (parts []settlePart) {
	var last *seen
	if !l.cluster {
		last = s.seen.Load() // before the epochs are compared: see checkLoss
	}
	for _, o := range batch {
		begins := true
		for i := range o.changes {
			d := &o.changes[i]
			switch {
			case d.held || d.units == 0:
				continue
			case !s.epoch.lasts(o.epoch, slotIn(l, d.name)), !l.cluster && last == nil:
				d.lost = true
				continue
			case len(parts) == 0 || l.cluster && begins:
				parts = append(parts, settlePart{seen: last, marked: l.cluster})
			}
			begins = false
			p := &parts[len(parts)-1]
			p.changes, p.orders = append(p.changes, d), append(p.orders, o)
		}
	}
	return parts
}

// settleWindows sends the changes of windows. It repeats a script only after a reply that says that
// it has not run, or has changed nothing.
func (s *Store) settleWindows(ctx context.Context, l *link, batch []*order) {
	parts, whole := s.settleParts(l, batch), false
	for len(parts) > 0 {
		commands := make([]rueidis.Completed, len(parts))
		during := epochContext{Context: ctx, epoch: &s.epoch}
		for i := range parts {
			commands[i] = s.settleCommand(l, &parts[i], whole)
			during.need(&parts[i], l)
		}
		sent := s.local()
		var counted *journalPart
		if s.promoted.journal.on.Load() {
			counted = s.promoted.journal.sending()
		}
		replies, err := s.exchange(during, l.client, commands)
		var again []settlePart
		wholeNext := whole
		for i := range parts {
			p, failed := &parts[i], err
			if failed == nil {
				failed = s.readSettled(p, replies[i], sent)
			}
			redisErr, ok := rueidis.IsRedisErr(failed)
			switch {
			case failed == nil:
				s.noteSettled(l, p, counted)
			case ok && redisErr.IsNoScript() && !whole:
				wholeNext, again = true, append(again, *p)
			case errors.Is(failed, errReset) && !p.marked:
				p.marked = true
				wholeNext, again = false, append(again, *p)
			case ok && redisErr.IsTryAgain() && l.cluster && p.orders[0].maySendAgain():
				p.orders[0].again = true
			case errors.Is(failed, errEpoch) && ctx.Err() == nil && s.partLasts(p, l):
				again = append(again, *p) // it was not sent, because of another part
			default:
				s.lookForMaster(failed)
				p.lose(classified(failed))
			}
		}
		parts, whole = again, wholeNext
	}
}

// partLasts reports whether the epochs of all takes of a part last.
func (s *Store) partLasts(p *settlePart, l *link) bool {
	for i, d := range p.changes {
		if !s.epoch.lasts(p.orders[i].epoch, slotIn(l, d.name)) {
			return false
		}
	}
	return true
}

func (s *Store) settleCommand(l *link, p *settlePart, whole bool) rueidis.Completed {
	n := len(p.changes)
	keys, args := make([]string, 0, 2*n+2), make([]string, 0, 3*n+3)
	if p.marked {
		for i, d := range p.changes {
			keys = append(keys, d.name, d.name+resetName)
			args = append(args, s.numbers.text(d.reset%resetMod), strconv.FormatInt(d.units, 10), strconv.FormatInt(p.orders[i].at, 10))
		}
		if p.seen != nil {
			keys, args = append(keys, s.prefix+markerName), append(args, p.seen.marker, p.seen.evicted)
		}
		return l.settleMarked.command(l, whole, keys, args)
	}
	first := p.orders[0].at
	for _, o := range p.orders {
		first = min(first, o.at)
	}
	keys = append(keys, s.prefix+markerName, s.prefix+allResetsName)
	args = append(args, p.seen.marker, p.seen.evicted, strconv.FormatInt(first, 10))
	for _, d := range p.changes {
		keys = append(keys, d.name)
		args = append(args, s.numbers.text(d.reset%resetMod), strconv.FormatInt(d.units, 10))
	}
	return l.settle.command(l, whole, keys, args)
}

// noteSettled notes what a part has changed. at is where the journal was before it was sent.
func (s *Store) noteSettled(l *link, p *settlePart, at *journalPart) {
	if at == nil {
		return
	}
	now := s.Now().Unix()
	for i, d := range p.changes {
		e := journalEntry{name: d.name, slot: slotIn(l, d.name), reset: d.reset}
		switch {
		case !d.done:
		case d.units > 0:
			e.per, e.spent = d.per, d.units
			s.promoted.journal.noteSpent(p.orders[i].epoch, now, e)
		default:
			e.back = -d.units
			s.promoted.journal.noteBack(at, now, e)
		}
	}
}

// lose marks the changes of a part as lost. An epoch that has ended is no error: nothing was sent.
func (p *settlePart) lose(err error) {
	for i, d := range p.changes {
		if d.lost = true; !errors.Is(err, errEpoch) {
			p.orders[i].err = err
		}
	}
}

// errReset means that a take may be from before an operator's reset. Nothing was changed.
var errReset = errors.New("windows were reset")

// readSettled decodes the reply to a part that was sent at sent, by this process's clock.
func (s *Store) readSettled(p *settlePart, reply rueidis.RedisResult, sent int64) error {
	m, err := reply.ToMessage()
	if err != nil {
		return err
	}
	if m.IsInt64() {
		switch why, _ := m.AsInt64(); why {
		case resetSince:
			return errReset
		case countsLost:
			s.epoch.replace()
			return errEpoch
		}
		return errReply
	}
	counts, err := m.AsIntSlice()
	if err != nil {
		return err
	}
	if len(counts) != len(p.changes) {
		return errReply
	}
	answered, now := s.local(), s.Now().Unix()
	for i, d := range p.changes {
		switch counts[i] {
		case windowGone:
		case windowLost:
			d.lost = true
		default:
			d.done, d.count = true, counts[i]
			s.memory.noteStanding(d.id, weir.Used{Count: d.count, Reset: d.reset}, now, d.end, sent, answered)
			if p.orders[i].leave != nil {
				d.count = s.leases.settled(d.hash, d.reset, d.count)
			}
		}
	}
	return nil
}
