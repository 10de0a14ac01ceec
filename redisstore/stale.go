package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/rueidis"
)

// askStaleEvery is how often a stale master is asked whether it still is one, at most.
const askStaleEvery = int64(100e6)

// A staleMaster is a master of a cluster whose place a replica has taken. If it is cut off from the
// others and not from this process, it goes on counting, and drops that when it hears of the
// replica. So nothing is sent to it.
type staleMaster struct {
	history string
	slots   slotSet // that the replica counts

	// Guarded by connections.
	asked int64 // when it was asked last, by this process's clock

	found sync.Once // to be one: it has answered
}

var errStale = errors.New("a replica has taken its place in the cluster, of which it has not heard")

// lookForStale looks for stale masters when a master is seen for the first time: it can be one, or
// a replica that has taken the place of one.
func (s *Store) lookForStale(l *link, m seenMachine) {
	p := &s.promoted
	leave := func(address, history string, slots slotSet) {
		if l.cluster && len(slots) > 0 {
			p.live.leave(address, &staleMaster{history: history, slots: slots})
		}
	}
	leave(m.address, m.history, p.replaced[m.history])
	if m.before == "" {
		return
	}
	slots := s.slotsOf(l, m.address)
	p.replaced[m.before] = slots
	for address, other := range p.machines {
		if other.counted == m.before {
			leave(address, m.before, slots)
		}
	}
}

// checkStale returns an error if a machine is a stale master.
func (s *Store) checkStale(ctx context.Context, address string) error {
	m, due := s.promoted.live.staleAt(address, s.local())
	if m == nil {
		return nil
	}
	stale := fmt.Errorf("connect to %s: %w", address, errStale)
	if !due {
		return stale
	}
	client, err := rueidis.NewClient(s.asideOptions(address))
	if err != nil {
		return classified(err)
	}
	defer func() { go client.Close() }()
	info, err := client.Do(ctx, client.B().Info().Section("replication").Build()).ToString()
	if err != nil {
		return classified(err)
	}
	if now := parseReplication(info); now.master && now.history == m.history {
		owners, err := askSlots(ctx, client, address)
		if err != nil {
			return classified(err)
		}
		for slot := range owners.of(address) {
			if m.slots[slot] {
				m.found.Do(func() {
					s.log.Warn("a master of the cluster has not heard that a replica has taken its place: nothing is sent to it until it has",
						"store", s.addresses, "machine", address)
				})
				return stale
			}
		}
	}
	s.promoted.live.rejoined(address, m)
	return nil
}

// leave ends the connections to an address, and keeps others from beginning.
func (c *connections) leave(address string, m *staleMaster) {
	for _, w := range c.leaveAll(address, m) {
		w.Conn.Close() // its reader ends it
	}
}

func (c *connections) leaveAll(address string, m *staleMaster) (all []*watchedConn) {
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

// staleAt returns the stale master at an address, nil if there is none, and whether it is time to
// ask it.
func (c *connections) staleAt(address string, now int64) (m *staleMaster, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m = c.stale[address]; m == nil || now-m.asked < askStaleEvery {
		return m, false
	}
	m.asked = now
	return m, true
}

// rejoined allows connections to an address again.
func (c *connections) rejoined(address string, m *staleMaster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stale[address] == m {
		delete(c.stale, address)
	}
}
