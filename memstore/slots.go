package memstore

import (
	"math"
	"math/bits"
	"sync"

	"github.com/weirlimit/weir"
)

// slots counts the slots that requests hold, by the hash of the key. They are not in the table or
// in its file: the requests of a process end with it. A key without a slot has no entry, so the
// memory is bounded by the most requests that were under way at a time.
//
// The hash is that of the table, so that the next process finds the slots of this one (HandOver).
// Two keys with the same hash would share their slots: they could be refused early (see seed.hash).
type slots struct {
	seed   seed // set before the first take
	shards [slotShards]slotShard
	copies sync.Pool // of *[weir.MaxCharges]weir.Charge
}

// slotShards is at most 64, so that a word has a bit for each.
const slotShards = 64

type slotShard struct {
	mu   sync.Mutex
	held map[uint64]int64
	gone bool     // the slots belong to the next process
	_    [47]byte // a cache line of its own
}

func newSlots() *slots {
	s := &slots{copies: sync.Pool{New: func() any { return new([weir.MaxCharges]weir.Charge) }}}
	for i := range s.shards {
		s.shards[i].held = make(map[uint64]int64)
	}
	return s
}

func (s *slots) hash(key []byte) uint64 { return s.seed.hash(key) }

func shardOf(hash uint64) int { return int(hash % slotShards) }

// release gives back all slots of a change. It returns ErrClosed, and sets Change.Lost, if they
// belong to the next process.
func (s *slots) release(c *weir.Change) error {
	hash := s.hash(c.Key)
	h := &s.shards[shardOf(hash)]
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		c.Lost = true
		return ErrClosed
	}
	c.Done, c.Used.Count = true, h.add(hash, max(c.Units, -c.Cost))
	return nil
}

// takeAll returns all slots that are held, which then are no longer this store's.
func (s *slots) takeAll() map[uint64]int64 {
	all := make(map[uint64]int64)
	s.lock(math.MaxUint64)
	defer s.unlock(math.MaxUint64)
	for i := range s.shards {
		h := &s.shards[i]
		h.gone = true
		for hash, n := range h.held {
			all[hash] = n
		}
	}
	return all
}

// addAll adds slots to those that are held. If negative they are given back.
func (s *slots) addAll(slots map[uint64]int64, sign int64) {
	for hash, n := range slots {
		h := &s.shards[shardOf(hash)]
		h.mu.Lock()
		h.add(hash, sign*n)
		h.mu.Unlock()
	}
}

// add adds n slots to those that are held, or gives them back if n is negative. It returns how many
// are held then. The caller has locked h.
func (h *slotShard) add(hash uint64, n int64) int64 {
	n = max(h.held[hash]+n, 0)
	if n == 0 {
		delete(h.held, hash)
	} else {
		h.held[hash] = n
	}
	return n
}

// used returns the slots that are held by hash, whose shard the caller has locked.
func (s *slots) used(hash uint64) weir.Used {
	return weir.Used{Count: s.shards[shardOf(hash)].held[hash]}
}

// takeHeld takes charges of which some are slots, at one instant: their shards stay locked while
// the windows are charged. Shards are locked before segments and entries, and in order, so that two
// takes cannot deadlock.
func (s *Store) takeHeld(charges []weir.Charge, receipt *weir.Receipt) error {
	n := len(charges) - 1 // where a limiter has its slots
	if c := &charges[n]; c.Held && !holds(charges[:n]) {
		return s.takeWithSlots(charges, c, receipt)
	}
	var hashes [weir.MaxCharges]uint64
	var locked uint64 // a bit for each shard
	for i := range charges {
		if charges[i].Held {
			hashes[i] = s.slots.hash(charges[i].Key)
			locked |= 1 << shardOf(hashes[i])
		}
	}
	s.slots.lock(locked)
	defer s.slots.unlock(locked)
	fits := true
	for i := range charges {
		if c := &charges[i]; c.Held && !s.slots.used(hashes[i]).Fits(c.Cost, c.Limit) {
			fits = false
		}
	}
	if err := s.takeAmong(charges, receipt, fits); err != nil {
		return err
	}
	for i := range charges {
		if c := &charges[i]; c.Held {
			s.slots.hold(hashes[i], c, receipt.Allowed, &receipt.Used[i])
		}
	}
	return nil
}

// takeWithSlots takes charges of which the last, c, is the only one of slots.
func (s *Store) takeWithSlots(charges []weir.Charge, c *weir.Charge, receipt *weir.Receipt) (err error) {
	hash, n := s.slots.hash(c.Key), len(charges)-1
	h := &s.slots.shards[shardOf(hash)]
	h.mu.Lock()
	defer h.mu.Unlock()
	used := weir.Used{Count: h.held[hash]}
	if used.Fits(c.Cost, c.Limit) {
		err = s.takeBeside(charges[:n], receipt)
	} else {
		err = s.takeAmong(charges, receipt, false)
	}
	if err != nil {
		return err
	}
	if receipt.Allowed && c.Cost > 0 {
		used.Count += c.Cost
		h.held[hash] = used.Count
	}
	receipt.Used[n] = used
	return nil
}

// hold holds the slots of a charge, whose shard the caller has locked, if the take is allowed.
func (s *slots) hold(hash uint64, c *weir.Charge, allowed bool, used *weir.Used) {
	*used = s.used(hash)
	if allowed && c.Cost > 0 {
		used.Count = s.shards[shardOf(hash)].add(hash, c.Cost)
	}
}

// takeBeside takes the windows beside slots; there may be none.
func (s *Store) takeBeside(windows []weir.Charge, receipt *weir.Receipt) error {
	if len(windows) > 0 {
		return s.takeWindows(windows, receipt)
	}
	if s.closed.Load() {
		return ErrClosed
	}
	receipt.Allowed, receipt.Now = true, s.clock.now()
	return nil
}

// takeAmong takes the windows of charges that have slots in any place. If the slots do not fit, it
// only reads the windows, and refuses.
func (s *Store) takeAmong(charges []weir.Charge, receipt *weir.Receipt, fits bool) error {
	windows := s.slots.copies.Get().(*[weir.MaxCharges]weir.Charge)
	defer s.slots.copies.Put(windows)
	defer clear(windows[:])
	n := 0
	for i := range charges {
		if !charges[i].Held {
			windows[n] = charges[i]
			if !fits {
				windows[n].Cost = 0
			}
			n++
		}
	}
	if err := s.takeBeside(windows[:n], receipt); err != nil {
		return err
	}
	receipt.Allowed = receipt.Allowed && fits
	for i := len(charges) - 1; i >= 0; i-- { // from the end: a window never moves to the front
		if !charges[i].Held {
			n--
			receipt.Used[i] = receipt.Used[n]
		}
	}
	return nil
}

func (s *slots) lock(shards uint64) {
	for ; shards != 0; shards &= shards - 1 {
		s.shards[bits.TrailingZeros64(shards)].mu.Lock()
	}
}

func (s *slots) unlock(shards uint64) {
	for ; shards != 0; shards &= shards - 1 {
		s.shards[bits.TrailingZeros64(shards)].mu.Unlock()
	}
}
