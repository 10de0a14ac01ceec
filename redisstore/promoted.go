package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// A promoted replica lacks what its master had counted and not sent to it yet. So this process
// keeps a journal of that, reads the offsets of the masters while there is load, and counts again
// what a promoted replica has not received. See docs/adr/0043-promoted-replicas.md.
type promotions struct {
	journal *journal
	soon    chan struct{} // the machines are to be looked at soon
	gate    gate          // closed while a replica may have been promoted: takes wait for it
	live    connections
	again   atomic.Int64 // units that were counted again

	// Only watchReplicas uses these.
	link       *link               // that the machines were last asked on
	used       string              // the machine that it used then, if it is one of Sentinels
	machines   map[string]*machine // by address
	histories  map[string]bool     // of masters that were seen
	replaced   map[string]bool     // histories of masters whose places replicas have taken
	replicated int64               // when one with replicas was last seen, by this process's clock
	looks      uint64
	answers    chan seenMachine

	failed  []journalEntry // what could not be counted again yet
	tryNext int64          // when to try again, by this process's clock
	pause   time.Duration  // before tryNext; 0: nothing has failed
}

// A machine is what is known of one.
type machine struct {
	history string // as last seen
	counted string // the same, as a master; "" once it was seen as a replica
	asked   uint64 // the look that waits for its answer; 0: none
	failed  int64  // when it failed to answer, by this process's clock
}

const (
	lookAtOffsets   = 25 * time.Millisecond // under load
	lookAtReplicas  = time.Second           // without
	lookAtDead      = 4 * lookAtOffsets     // while no machine answers
	lookAtChange    = 2 * time.Millisecond  // while a client of Sentinels changes connections
	offsetsTimeout  = 250 * time.Millisecond
	countAgainLasts = 5 * time.Second        // the first try
	countLateLasts  = 500 * time.Millisecond // each later one
	countAgainPause = 2 * time.Second        // between two, at most
	replicasLast    = int64(time.Minute)     // after the last one was seen
)

func newPromotions() promotions {
	return promotions{
		journal: newJournal(), soon: make(chan struct{}, 1),
		machines: make(map[string]*machine), histories: make(map[string]bool), replaced: make(map[string]bool), answers: make(chan seenMachine),
	}
}

// lookSoon makes takes wait until the machines have been looked at, because one of them may be a
// replica that was promoted. It does not block. An empty journal does not suffice to go on: what is
// counted before the promotion is seen would seem to be missing.
func (p *promotions) lookSoon() {
	if !p.journal.on.Load() {
		return
	}
	p.gate.close()
	p.wake()
}

func (p *promotions) wake() {
	select {
	case p.soon <- struct{}{}:
	default:
	}
}

// noteTake notes a take that the server has counted, and what was leased with it.
func (s *Store) noteTake(t *leaseTake) {
	if !s.promoted.journal.on.Load() {
		return
	}
	for i := range t.charges {
		if c, used := &t.charges[i], t.r.Used[i]; !c.Held && c.Cost > 0 {
			e := journalEntry{name: t.names[i], per: c.Per, reset: used.Reset, spent: c.Cost}
			if t.marked {
				e.spent += t.lots[i].Units
			}
			// a late answer, of a window that has ended, is not of the next one
			s.noteSpent(t.epoch, max(t.r.Now, s.Now().Unix()), e, t.link)
		}
	}
}

func (s *Store) noteSpent(epoch uint64, now int64, e journalEntry, l *link) {
	if s.promoted.journal.on.Load() {
		e.slot = slotIn(l, e.name)
		if s.promoted.journal.noteSpent(epoch, now, e) {
			s.promoted.wake() // the machines were looked at seldom
		}
	}
}

// watchReplicas looks at the machines until the store is closed.
func (s *Store) watchReplicas() {
	p := &s.promoted
	timer := time.NewTimer(0)
	defer timer.Stop()
	for answered, soon := true, false; ; soon = false {
	wait:
		select {
		case <-s.closing.Done():
			p.gate.open(p.gate.closings())
			return
		case <-timer.C:
		case <-p.soon:
			if soon = true; !answered {
				goto wait // a look can itself cause the next connection
			}
		}
		closings := p.gate.closings()
		l := s.link.Load()
		changing, timeout := l != nil && s.isChanging(l), offsetsTimeout
		if changing {
			timeout = lookAtOffsets
		}
		if l != nil {
			answered = s.lookAtMachines(l, soon, timeout)
		}
		if l == nil || answered && !changing { // until then nothing else is answered
			p.gate.open(closings)
		}
		switch {
		case changing && p.gate.isShut():
			timer.Reset(lookAtChange)
		case !answered && p.gate.isShut():
			timer.Reset(lookAtDead)
		case !p.journal.on.Load() || p.journal.isEmpty() && len(p.failed) == 0:
			timer.Reset(lookAtReplicas)
		case answered:
			timer.Reset(lookAtOffsets)
		default:
			timer.Reset(lookAtDead)
		}
	}
}

// uses returns the address of the machine that a client of Sentinels uses, "" of another client.
func (l *link) uses() string {
	if l.sentinel {
		for address := range l.client.Nodes() {
			return address
		}
	}
	return ""
}

// isChanging reports whether a client of Sentinels has just connected to another machine than it
// uses. It can keep such a connection for no use.
func (s *Store) isChanging(l *link) bool {
	newest := s.promoted.live.newest(s.local() - int64(dialTimeout))
	return l.sentinel && newest != "" && newest != l.uses()
}

// A seenMachine is what one machine answers to INFO replication.
type seenMachine struct {
	look          uint64 // which asked it
	address       string
	replied, ok   bool // it may reply that it does not tell
	master        bool
	replicas      bool
	history       string
	offset        int64
	before        string // the history that its own begins after, "" if there is none
	beforeMissing int64  // the first offset of that which it has not received
}

// lookAtMachines reads the machines' offsets, and counts again what a promoted replica lacks. It
// reports whether a machine has answered.
func (s *Store) lookAtMachines(l *link, soon bool, timeout time.Duration) bool {
	p, on := &s.promoted, s.promoted.journal.on.Load()
	var part *journalPart
	if on {
		part = p.journal.next(s.local()) // before the offsets are read
	}
	all, answered := s.readMachines(l, soon, timeout)
	offsets, ended := make(map[string]int64), make(map[string]bool)
	for _, m := range all {
		if m.master {
			offsets[m.history] = m.offset
			p.machines[m.address].counted = m.history
		} else if at := p.machines[m.address]; at.counted != "" {
			ended[at.counted] = true
			at.counted = ""
		}
		if m.replicas {
			p.replicated = s.local()
		}
	}
	if on {
		p.journal.saw(part, offsets, ended, s.local(), s.Now().Unix())
	}
	if l.cluster {
		s.leaveStale(l, all) // before any epoch ends: what they have answered is late
	}
	for _, m := range all {
		s.lookForPromotion(l, m, on)
	}
	if answered && (on || len(p.failed) > 0) {
		s.countLate()
	}
	if on && s.local()-p.replicated >= replicasLast {
		p.journal.stop()
	} else if !on && p.replicated != 0 && s.local()-p.replicated < replicasLast {
		p.journal.on.Store(true)
	}
	return answered
}

// readMachines asks the machines, and returns what they tell in time, and whether any has replied.
// One of a cluster that has failed is left alone for a second, unless soon.
func (s *Store) readMachines(l *link, soon bool, timeout time.Duration) (all []seenMachine, replied bool) {
	p, waiting := &s.promoted, 0
	p.looks++
	if used := l.uses(); p.link != l || p.used != used {
		p.link, p.used = l, used
		for _, m := range p.machines {
			m.asked = 0 // on a connection that has been replaced
		}
	}
	for late := true; late; {
		select {
		case m := <-p.answers:
			s.noteAnswer(m)
		default:
			late = false
		}
	}
	for address, node := range nodes(l.client) {
		m := p.machines[address]
		if m == nil {
			m = new(machine)
			p.machines[address] = m
		}
		if m.asked != 0 || l.cluster && !soon && m.failed != 0 && s.local()-m.failed < int64(lookAtReplicas) {
			continue
		}
		m.asked, m.failed = p.looks, 0
		waiting++
		look := p.looks
		s.done.Go(func() { // the client may wait for a connection whatever its context
			ctx, cancel := context.WithTimeout(s.closing, checkTimeout)
			defer cancel()
			seen, err := askReplication(ctx, node)
			_, refused := rueidis.IsRedisErr(err)
			seen.look, seen.address, seen.replied, seen.ok = look, address, err == nil || refused, err == nil && seen.history != ""
			select {
			case p.answers <- seen:
			case <-s.closing.Done():
			}
		})
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for waiting > 0 {
		select {
		case m := <-p.answers:
			s.noteAnswer(m)
			if m.look != p.looks { // an older answer has an older offset
				continue
			}
			replied = replied || m.replied
			if waiting--; m.ok {
				all = append(all, m)
			}
		case <-timer.C:
			return all, replied
		case <-s.closing.Done():
			return all, replied
		}
	}
	return all, replied
}

// noteAnswer notes that a machine can be asked again.
func (s *Store) noteAnswer(m seenMachine) {
	at := s.promoted.machines[m.address]
	if at.asked != m.look {
		return
	}
	if at.asked = 0; !m.ok {
		at.failed = s.local()
	}
}

// askReplication asks a machine for INFO replication.
func askReplication(ctx context.Context, node rueidis.Client) (seenMachine, error) {
	info, err := node.Do(ctx, node.B().Info().Section("replication").Build()).ToString()
	return parseReplication(info), err
}

// parseReplication decodes INFO replication. Some services leave out what it needs.
func parseReplication(info string) (m seenMachine) {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(field(info, name), 10, 64)
		return n
	}
	m.master = field(info, "role") == "master"
	m.replicas = m.master && number("connected_slaves") > 0
	m.history, m.offset = field(info, "master_replid"), number("master_repl_offset")
	if before := field(info, "master_replid2"); strings.Trim(before, "0") != "" {
		m.before, m.beforeMissing = before, number("second_repl_offset")
	}
	return m
}

// lookForPromotion counts again what a machine lacks, if it is a replica that was promoted since it
// was last seen.
func (s *Store) lookForPromotion(l *link, m seenMachine, on bool) {
	p := &s.promoted
	at := p.machines[m.address]
	was := at.history
	switch known := p.histories[m.history]; {
	case !on || !m.master:
	case known:
		s.lookForReturn(l, m)
	case m.before != "":
		slots, err := s.slotsOf(l, m.address)
		if err != nil {
			return // it is looked at again
		}
		p.replaced[m.before] = true
		promoted := s.promotionOf(m, slots)
		if !p.histories[m.before] { // what was promoted in between is not known
			promoted.of, promoted.first = was, 0
		}
		// a cluster's client may take its slots for another machine's, which may be dead
		s.countAgain(nodes(l.client)[m.address], p.journal.missing(promoted, s.Now().Unix()), &promoted)
	}
	if at.history = m.history; m.master {
		p.histories[m.history] = true
	}
}

// lookForReturn counts again what a master lacks because another one has counted meanwhile: while
// hosts are cut off from each other, a Sentinel can lead back to the one that was replaced.
func (s *Store) lookForReturn(l *link, m seenMachine) {
	if s.promoted.replaced[m.history] { // what it counts is dropped
		return
	}
	of, j := m.before, s.promoted.journal
	if !l.cluster {
		of = "" // there is only one
	} else if of == "" {
		return
	}
	from, away := j.awayFrom(m.history, of)
	if !away {
		return
	}
	slots, err := s.slotsOf(l, m.address)
	if err != nil {
		return
	}
	back := s.promotionOf(m, slots)
	back.of, back.first, back.known = of, 0, true
	s.countAgain(nodes(l.client)[m.address], j.elsewhere(from, back, s.Now().Unix()), &back)
}

// promotionOf returns how a machine took its master's place, and counts slots now. What is sent
// from now on begins a new epoch.
func (s *Store) promotionOf(m seenMachine, slots slotSet) promotion {
	promoted := promotion{of: m.before, by: m.history, first: m.beforeMissing, slots: slots}
	s.epoch.endOf(m.address)
	s.epoch.answers(m.address)
	promoted.epoch = s.epoch.n.Load()
	return promoted
}

// slotsOf returns the slots that a machine counts.
func (s *Store) slotsOf(l *link, address string) (slotSet, error) {
	if !l.cluster {
		return slotSet{noSlot: true}, nil
	}
	ctx, cancel := context.WithTimeout(s.closing, checkTimeout)
	defer cancel()
	// another machine may not know yet that it owns them
	if node := nodes(l.client)[address]; node != nil {
		owners, err := askSlots(ctx, node, address)
		if err != nil {
			return nil, err
		}
		if own := owners.of(address); len(own) > 0 {
			return own, nil
		}
	}
	s.readSlots(ctx, l.client)
	return s.epoch.slotsOf(address), nil
}

// countAgain gives units to the server that it lacks, or to the machine of it that to is. p is nil
// if they were noted late, or are given once more.
func (s *Store) countAgain(to rueidis.Client, missing []journalEntry, p *promotion) {
	lasts := countLateLasts
	if p != nil {
		lasts = countAgainLasts
	}
	ctx, cancel := context.WithTimeout(s.closing, lasts)
	defer cancel()
	units, before := unitsOf(missing), len(s.promoted.failed)
	var bad error
	for part := range slices.Chunk(missing, maxPipeline) {
		failed, err := s.giveWindows(ctx, to, part)
		s.promoted.failed, bad = append(s.promoted.failed, failed...), errors.Join(bad, err)
	}
	lost := unitsOf(s.promoted.failed[before:])
	s.promoted.again.Add(units - lost)
	switch {
	case lost > 0 && s.promoted.pause == 0:
		s.log.Warn("a promoted replica lacks units, and they could not be counted again at once: this is tried until their windows end",
			"store", s.addresses, "windows", len(missing), "units counted again", units-lost, "units left", lost, "error", bad)
		s.promoted.pause, s.promoted.tryNext = lookAtOffsets, s.local()
	case p != nil && p.known:
		s.log.Warn("another master has counted for a while, and is not in use any more: what it counted is counted again",
			"store", s.addresses, "windows", len(missing), "units counted again", units-lost)
	case p != nil && p.first == 0:
		s.log.Warn("replicas were promoted one after the other: what was counted lately is counted again, since some of it may be missing",
			"store", s.addresses, "windows", len(missing), "units counted again", units-lost)
	case p != nil:
		s.log.Info("a replica was promoted: what it had not received is counted again",
			"store", s.addresses, "windows", len(missing), "units counted again", units-lost)
	case units > 0 && len(s.promoted.failed) == 0 && s.promoted.pause > 0:
		s.log.Info("what a promoted replica lacked is counted again now",
			"store", s.addresses, "windows", len(missing), "units counted again", units)
	}
}

// countLate counts again what was noted late, and what could not be counted again before. A
// cluster's client may only now know which machine counts it.
func (s *Store) countLate() {
	p := &s.promoted
	again, due := p.journal.takeLate(), s.local() >= p.tryNext
	if due {
		again, p.failed = append(s.lasting(p.failed), again...), nil
	}
	s.countAgain(nil, again, nil)
	switch {
	case len(p.failed) == 0:
		p.pause = 0
	case due:
		p.pause = min(2*p.pause, countAgainPause)
		p.tryNext = s.local() + int64(p.pause)
	}
}

// lasting returns those of all that could not be counted again whose windows have not ended.
func (s *Store) lasting(all []journalEntry) []journalEntry {
	now := s.Now().Unix()
	units := unitsOf(all)
	all = slices.DeleteFunc(all, func(e journalEntry) bool { return e.reset <= now })
	all = all[max(0, len(all)-maxJournal):]
	if lost := units - unitsOf(all); lost > 0 {
		s.log.Error("a promoted replica lacked units until their windows ended: callers could use them twice",
			"store", s.addresses, "units lost", lost)
	}
	return all
}
