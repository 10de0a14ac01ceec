package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

const (
	// askStaleEvery is how often a stale master is asked whether it still is one, at most.
	askStaleEvery = int64(100e6)
	// staleLasts is how long it is left after the replica in its place was last seen: if that is
	// dead, and the machines have not heard of it, they still use the master.
	staleLasts = int64(5e9)
	// lookAtStale is the time between two looks whether a master is about to become a replica.
	lookAtStale = 5 * time.Millisecond
)

// A staleMaster is a master of a cluster whose place a replica has taken. If it is cut off from the
// others and not from this process, it goes on counting, and drops that when it hears of the
// replica. So nothing is sent to it.
type staleMaster struct {
	history string
	by      seenMachine // the replica, as first seen
	slots   slotSet     // that the replica counts; nil: not known

	// Guarded by connections.
	seen     int64 // when the replica was last seen in its place, by this process's clock
	asked    int64 // when the master was last asked
	rejoined bool  // the master has heard of it, or does not count these slots

	found sync.Once // to be stale
}

var errStale = errors.New("a replica has taken its place in the cluster, of which it may not have heard")

func staleError(address string) error { return fmt.Errorf("connect to %s: %w", address, errStale) }

// leaveStale ends the connections to stale masters that a look has shown, and goes back to those
// whose replicas have gone.
func (s *Store) leaveStale(l *link, all []seenMachine) {
	p := &s.promoted
	p.live.keepStale(all, s.local())
	for _, by := range all {
		if !by.master || by.before == "" {
			continue
		}
		for address, m := range p.machines {
			if address == by.address || m.counted != by.before || p.live.isLeft(address, by) {
				continue
			}
			slots, err := s.slotsOf(l, by.address)
			if err == nil && len(slots) == 0 { // such as a replica that was reset
				continue
			}
			stale := &staleMaster{history: by.before, by: by, slots: slots, seen: s.local()}
			if s.goesOn(address, by.before) {
				p.live.leave(address, stale)
			} else {
				stale.rejoined = true // an orderly failover: it has just become a replica
				p.live.noteStale(address, stale)
			}
		}
	}
}

// goesOn reports whether a machine is the master of a history for a while, or does not answer. It
// asks on a connection of its own: takes wait on the others while a master hands over its slots.
func (s *Store) goesOn(address, history string) bool {
	ctx, cancel := context.WithTimeout(s.closing, offsetsTimeout)
	defer cancel()
	client, err := s.connectAside(ctx, s.asideOptions(address))
	if err != nil {
		return true
	}
	defer func() { go client.Close() }()
	tick := time.NewTicker(lookAtStale)
	defer tick.Stop()
	for {
		m, err := askReplication(ctx, client)
		switch {
		case err != nil:
			return true
		case !m.master || m.history != history:
			return false
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return true
		}
	}
}

// checkStale returns an error if a machine is a stale master.
func (s *Store) checkStale(ctx context.Context, address string) error {
	m, due := s.promoted.live.staleAt(address, s.local())
	if m == nil {
		return nil
	}
	if !due {
		return staleError(address)
	}
	client, err := s.connectAside(ctx, s.asideOptions(address))
	if err != nil {
		return classified(err)
	}
	defer func() { go client.Close() }()
	switch is, err := m.counts(ctx, client, address); {
	case err != nil && !errors.Is(err, ErrDenied): // then nothing is known of it
		return err
	case is:
		m.found.Do(func() {
			s.log.Warn("a master of the cluster has not heard that a replica has taken its place: nothing is sent to it until it has",
				"store", s.addresses, "machine", address, "replica", m.by.address)
		})
		return staleError(address)
	}
	s.promoted.live.rejoin(m)
	return nil
}

// counts reports whether the machine at an address is still the master, also after a restart, and
// counts slots that the replica counts as well.
func (m *staleMaster) counts(ctx context.Context, client rueidis.Client, address string) (bool, error) {
	now, err := askReplication(ctx, client)
	if err != nil {
		return false, classified(err)
	}
	if !now.master || now.history != m.history && now.before != m.history {
		return false, nil
	}
	owners, err := askSlots(ctx, client, address)
	if err != nil {
		return false, classified(err)
	}
	for slot := range owners.of(address) {
		if m.slots == nil || m.slots[slot] {
			return true, nil
		}
	}
	return false, nil
}

// leave ends the connections to an address, and keeps others from beginning.
func (c *connections) leave(address string, m *staleMaster) {
	for _, w := range c.noteStale(address, m) {
		w.Conn.Close() // its reader ends it
	}
}

// noteStale notes a master that was replaced, and returns the connections to it.
func (c *connections) noteStale(address string, m *staleMaster) (all []*watchedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stale == nil {
		c.stale = make(map[string]*staleMaster)
	}
	c.stale[address] = m
	for _, w := range c.all {
		if w.address == address {
			all = append(all, w)
		}
	}
	return all
}

// keepStale forgets stale masters whose replicas were seen in another role, or not for staleLasts.
func (c *connections) keepStale(all []seenMachine, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, m := range c.stale {
		changed := false
		for _, by := range all {
			if by.address == m.by.address {
				m.seen, changed = now, !by.master || by.history != m.by.history
			}
		}
		if changed || now-m.seen >= staleLasts {
			delete(c.stale, address)
		}
	}
}

// isLeft reports whether a machine was left because of a replica, also if it has rejoined since.
func (c *connections) isLeft(address string, by seenMachine) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.stale[address]
	return m != nil && m.history == by.before && m.by.history == by.history
}

// staleAt returns the stale master at an address, nil if there is none, and whether it is time to
// ask it.
func (c *connections) staleAt(address string, now int64) (m *staleMaster, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m = c.staleNow(address); m == nil || now-m.asked < askStaleEvery {
		return m, false
	}
	m.asked = now
	return m, true
}

// staleNow returns the stale master at an address, nil if there is none. c.mu is held.
func (c *connections) staleNow(address string) *staleMaster {
	if m := c.stale[address]; m != nil && !m.rejoined {
		return m
	}
	return nil
}

// rejoin allows connections to a machine again.
func (c *connections) rejoin(m *staleMaster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.rejoined = true
}
