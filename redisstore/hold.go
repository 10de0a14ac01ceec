package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"github.com/weirlimit/weir"
)

//go:embed hold.lua
var holdTail string

// holdText has take.lua as a function, so that slots and windows are taken in one script.
var holdText = "local take=function(KEYS,ARGV)\n" + takeText + "end\n" + holdTail

//go:embed renew.lua
var renewText string

const (
	// slotLasts is how long the server keeps a slot that is not renewed: so soon after a node was
	// killed are its slots free.
	slotLasts = 8 * time.Second
	// renewEvery is the time between two renewals. Two may fail.
	renewEvery = 2500 * time.Millisecond
	// renewRetry is the time until a renewal that failed is tried again.
	renewRetry = 500 * time.Millisecond
	// maxRenewals is the number of takes whose slots are renewed by one script.
	maxRenewals = 256
	// maxRenewFlights is the number of these scripts that wait for the server at the same time.
	maxRenewFlights = 64
	// maxHeldCost is the max number of slots that one charge can take.
	maxHeldCost = 64
)

// held are the slots that requests of this process hold on the server.
type held struct {
	node   string // random, begins the names of this process's takes
	last   atomic.Uint64
	lapsed atomic.Int64
	soon   chan struct{} // renew now

	renewed  atomic.Int64 // this process's clock at the last renewal of all
	renewing slots        // of the takes that wait for a renewal, one sends it

	mu    sync.Mutex
	all   map[heldKey]*heldSlots
	ended map[string][]*heldSlots // by name: see ended.go
}

// A heldKey identifies slots of one charge of one take. The key does not change with the secret, as
// its name on the server does.
type heldKey struct {
	slot uint64
	key  string
}

// heldSlots are the slots of one charge of one take.
type heldSlots struct {
	name string
	take string // the name of the take
	id   id
	cost int64

	// guarded by held.mu
	renewed  int64         // this process's clock when the last renewal, or the take, was sent
	renewing int           // the renewals under way that have them
	answered chan struct{} // set by end if there are any; closed when all of them are answered
	after    *order        // gives the slots back then; nil: their caller does
}

func newHeld() held {
	return held{node: rand.Text()[:13], soon: make(chan struct{}, 1), renewing: newSlots(1), all: make(map[heldKey]*heldSlots), ended: make(map[string][]*heldSlots)}
}

// take returns the name of a take on the server.
func (h *held) take(slot uint64) string { return h.node + strconv.FormatUint(slot, 36) }

// slotMembers returns the names of the slots of one charge.
func slotMembers(take string, cost int64) []string {
	members := make([]string, cost)
	for i := range members {
		members[i] = take + ":" + strconv.Itoa(i+1)
	}
	return members
}

func (h *held) keep(slot uint64, key []byte, s *heldSlots) {
	h.mu.Lock()
	h.all[heldKey{slot, string(key)}] = s
	h.mu.Unlock()
}

// renewSoon renews at once: the server may have forgotten the slots.
func (h *held) renewSoon() {
	select {
	case h.soon <- struct{}{}:
	default:
	}
}

func holds(charges []weir.Charge) bool {
	for i := range charges {
		if charges[i].Held {
			return true
		}
	}
	return false
}

// A holding is a take of slots and windows.
type holding struct {
	windows, slots []weir.Charge        // those of the take, apart
	of             [weir.MaxCharges]int // the index of each in the take, first those of the windows
	names          []string
	hashes         []hash // of the windows
	slot           uint64
}

func newHolding(charges []weir.Charge, names []string, hashes []hash) *holding {
	h := new(holding)
	for _, held := range [...]bool{false, true} {
		for i := range charges {
			switch {
			case charges[i].Held != held:
				continue
			case held:
				h.slots = append(h.slots, charges[i])
			default:
				h.windows, h.hashes = append(h.windows, charges[i]), append(h.hashes, hashes[i])
			}
			h.of[len(h.names)] = i
			h.names = append(h.names, names[i])
		}
	}
	return h
}

// takeHeld is ask for charges of which some are slots.
func (s *Store) takeHeld(ctx context.Context, l *link, epoch uint64, names []string, charges []weir.Charge, asked int64, hashes []hash, r *weir.Receipt) error {
	for i := range charges {
		if c := &charges[i]; c.Held && c.Cost > maxHeldCost {
			return fmt.Errorf("%w: a request takes %d slots, at most %d are allowed", weir.ErrCharges, c.Cost, maxHeldCost)
		}
	}
	h := newHolding(charges, names, hashes)
	if err := s.renewOverdue(ctx, h.names[len(h.windows):]); err != nil {
		return err
	}
	h.slot = s.held.last.Add(1)
	head := []string{strconv.Itoa(len(h.slots)), strconv.FormatInt(slotLasts.Milliseconds(), 10), s.held.take(h.slot)}
	var ended []*heldSlots
	for i := range h.slots {
		before, err := s.held.endedUnder(ctx, h.names[len(h.windows)+i])
		if err != nil {
			return err
		}
		head = append(head, s.numbers.text(h.slots[i].Limit), s.numbers.text(h.slots[i].Cost))
		head = appendMembers(head, before)
		ended = append(ended, before...)
	}
	reply, sent, err := s.askInTime(ctx, ctx, l, &l.hold, h.names, head, h.windows, asked)
	if err != nil {
		s.giveBackUnknown(l, h) // it may have taken them
		return err
	}
	if tookSlots(reply) {
		if err := s.awaitReplicas(ctx, epoch); err != nil {
			s.giveBackUnknown(l, h)
			return err
		}
	}
	if err := s.readHeld(reply, h, sent, hashes, r); err != nil {
		return err
	}
	s.held.given(ended...)
	return nil
}

// tookSlots reports whether hold.lua has admitted a take.
func tookSlots(reply rueidis.RedisResult) bool {
	all, err := reply.ToArray()
	if err != nil || len(all) < 2 {
		return false
	}
	allowed, err := all[1].AsInt64()
	return err == nil && allowed == 1
}

// readHeld decodes the reply of hold.lua into r. hashes are those of the take's charges.
func (s *Store) readHeld(reply rueidis.RedisResult, h *holding, asked int64, hashes []hash, r *weir.Receipt) error {
	all, err := reply.ToArray()
	if err != nil {
		return err
	}
	if len(all) != 3+len(h.slots) {
		return errReply
	}
	now, err := all[0].AsInt64()
	if err != nil {
		return err
	}
	allowed, err := all[1].AsInt64()
	if err != nil {
		return err
	}
	var fraction int64
	windows := weir.Receipt{Now: now / 1000, Ticket: weir.Ticket{At: now}}
	if len(h.windows) > 0 {
		parts, err := all[2].ToArray()
		if err != nil {
			return err
		}
		if fraction, err = s.readWindows(parts, nil, h.windows, asked, h.hashes, &windows); err != nil {
			return err
		}
	}
	r.Remembered, r.Now, r.Allowed = false, windows.Now, allowed == 1
	for i := range h.windows {
		r.Used[h.of[i]] = windows.Used[i]
	}
	for i := range h.slots {
		count, err := all[3+i].AsInt64()
		if err != nil {
			return err
		}
		r.Used[h.of[len(h.windows)+i]] = weir.Used{Count: count}
	}
	if len(h.windows) > 0 {
		s.learnRefusal(fraction, len(h.names), asked, hashes, r)
	}
	if !r.Allowed {
		return nil
	}
	r.Ticket.At, r.Ticket.Slot = windows.Ticket.At, h.slot
	for i := range h.slots {
		if c := &h.slots[i]; c.Cost > 0 {
			own := hashes[h.of[len(h.windows)+i]].id()
			s.memory.beginSettling(own)
			s.memory.endSettling(own)
			s.held.keep(h.slot, c.Key, &heldSlots{name: h.names[len(h.windows)+i], take: s.held.take(h.slot), id: own, cost: c.Cost, renewed: asked})
		}
	}
	return nil
}

// giveBackUnknown gives back slots that a take without an answer may have taken, or one that too
// few replicas have. Otherwise they would be held until they expire.
func (s *Store) giveBackUnknown(l *link, h *holding) {
	o := &order{link: l, done: make(chan struct{})}
	for i := range h.slots {
		if c := &h.slots[i]; c.Cost > 0 {
			var d orderedChange
			d.giveBack(&heldSlots{name: h.names[len(h.windows)+i], take: s.held.take(h.slot), cost: c.Cost})
			o.changes = append(o.changes, d)
		}
	}
	if len(o.changes) > 0 {
		_ = s.order(o)
	}
}

// renewHeld renews the slots of this process until the store is closed.
func (s *Store) renewHeld() {
	timer := time.NewTimer(renewEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.closing.Done():
			return
		case <-timer.C:
		case <-s.held.soon:
		}
		next := renewEvery
		if err := s.renewAll(s.closing); err != nil {
			next = renewRetry
		}
		timer.Reset(next)
	}
}

// renewAll renews every slot of this process.
func (s *Store) renewAll(ctx context.Context) error {
	l := s.link.Load()
	if l == nil {
		return s.notConnected()
	}
	began := s.local()
	err := s.renewParts(ctx, l, s.held.parts(l.cluster))
	if err == nil {
		s.held.renewed.Store(began)
	}
	return err
}

// renewOverdue renews the slots of this process under some names if that should have happened long
// ago, as after the process was suspended: they come before those of the next request. It leaves
// other slots alone, because their machine may be dead.
func (s *Store) renewOverdue(ctx context.Context, names []string) error {
	since := s.local() - maxRenewalAge
	if !s.renewalOverdue() || len(s.held.overdue(names, since)) == 0 {
		return nil
	}
	if err := s.held.renewing.acquire(ctx); err != nil {
		return err
	}
	defer s.held.renewing.release()
	l := s.link.Load()
	if l == nil {
		return s.notConnected()
	}
	for part := range slices.Chunk(s.held.overdue(names, since), maxRenewals) {
		if err := s.renewPart(ctx, l, part); err != nil {
			return err
		}
	}
	return nil
}

// maxRenewalAge is how long ago, in ns, the last renewal may have been.
const maxRenewalAge = int64(slotLasts / 2)

// renewalOverdue reports whether some slots of this process may not have been renewed lately.
func (s *Store) renewalOverdue() bool { return s.local()-s.held.renewed.Load() > maxRenewalAge }

// overdue returns the slots under some names that were not renewed since a time of this process's
// clock.
func (h *held) overdue(names []string, since int64) (all []renewal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, s := range h.all {
		if s.renewed < since && slices.Contains(names, s.name) {
			all = append(all, renewal{key, s})
		}
	}
	return all
}

// A renewal is one take's slots, with their key in held.
type renewal struct {
	key heldKey
	*heldSlots
}

// parts returns all slots, in parts that one command can renew: on a cluster, those of one machine.
func (h *held) parts(cluster bool) (parts [][]renewal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	open := make(map[string]int) // the index of the part that has room; on a cluster by tag
	for key, s := range h.all {
		group := ""
		if cluster {
			group = tagOf(s.name)
		}
		i, ok := open[group]
		if !ok || len(parts[i]) == maxRenewals {
			i = len(parts)
			open[group] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], renewal{key, s})
	}
	return parts
}

// begin returns the renewals of slots that are still held, and marks them until end. end returns
// the orders that now give back slots whose callers have not waited for it.
func (h *held) begin(part []renewal) (left []renewal, end func() []*order) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left = part[:0]
	for _, r := range part {
		if h.all[r.key] == r.heldSlots {
			r.renewing++
			left = append(left, r)
		}
	}
	return left, func() (ended []*order) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, r := range left {
			if r.renewing--; r.renewing > 0 || r.answered == nil {
				continue
			}
			close(r.answered)
			if r.after != nil {
				ended = append(ended, r.after)
			}
		}
		return ended
	}
}

// noteRenewed records that slots were renewed by a command that was sent at a time.
func (h *held) noteRenewed(part []renewal, sent int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range part {
		r.renewed = max(r.renewed, sent)
	}
}

// renewParts renews parts, some at a time, so that a silent machine delays few others.
func (s *Store) renewParts(ctx context.Context, l *link, parts [][]renewal) error {
	var group errgroup.Group
	group.SetLimit(maxRenewFlights)
	for _, part := range parts {
		group.Go(func() error { return s.renewPart(ctx, l, part) })
	}
	return group.Wait()
}

// renewPart renews slots by one command.
func (s *Store) renewPart(ctx context.Context, l *link, part []renewal) error {
	part, end := s.held.begin(part)
	defer func() {
		for _, o := range end() {
			_ = s.order(o) // if it fails, the slots expire
		}
	}()
	if len(part) == 0 {
		return nil
	}
	keys := make([]string, len(part))
	args := append(make([]string, 0, 1+2*len(part)), strconv.FormatInt(slotLasts.Milliseconds(), 10))
	for i, r := range part {
		keys[i] = r.name
		args = append(args, r.take, strconv.FormatInt(r.cost, 10))
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	sent := s.local()
	reply, err := s.send(ctx, l, &l.renew, keys, args)
	if err != nil {
		return err
	}
	again, err := reply.AsInt64()
	if err != nil {
		return err
	}
	s.held.noteRenewed(part, sent)
	if again > 0 {
		s.held.lapsed.Add(again)
		s.log.Warn("slots of requests under way had expired on the store and were taken again, so that others may have been admitted in their place",
			"store", s.addresses, "slots", again)
	}
	return nil
}
