// Package handover has one server process continue where another stops, while requests of the old
// one are still under way: the new process is started by the old one, gets its listening sockets,
// and then its counts.
//
//	counts.go    the store of a server: its own memory, or the next process's
//	client.go    asks the process that has the counts
//	guests.go    answers the processes that had them before
//	message.go   what they send each other
//	next.go      the old process's side of a hand-over
//	previous.go  the new process's side
//
// At every instant one process has the counts, and it alone decides. The others are its guests:
// each has a connection to it, made before the processes were, and passed on with the counts. It
// holds the slots of a guest until that gives them back, or its connection ends.
//
// Processes are started on Linux only. On other systems Start returns an error.
package handover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// Counts are the store of a server process. As long as the process has the counts they are a
// memstore.Store; later they ask the process that has them. Between the two a take waits, for
// maxWait at most. Counts are safe for concurrent use.
type Counts struct {
	options memstore.Options
	place   atomic.Pointer[place]

	mu     sync.Mutex // held to change place, early and guests
	early  bool       // the counts are open, and may still be taken back until serve
	guests []*guest
	done   chan struct{} // closed by Close
	polls  sync.WaitGroup
}

var (
	_ weir.InProcess = (*Counts)(nil)
	_ weir.Keeper    = (*Counts)(nil)
	_ weir.Settler   = (*Counts)(nil)
)

// maxWait bounds the wait of a take for the process that has the counts. Then it is refused.
const maxWait = 5 * time.Second

// grantsEvery is the time after which a process that has handed its counts on reads the grants
// again.
const grantsEvery = time.Second

// A place is where the counts are. If it has none of local, remote and err, they are on their way.
type place struct {
	local  *memstore.Store // this process has them, or has had them until left is closed
	remote *client         // the process that has them
	err    error           // why there are none

	known *memstore.Store // whose grants are used; nil: none
	left  chan struct{}   // closed when another place follows
}

// ErrClosed is the error of Counts after Close.
var ErrClosed = memstore.ErrClosed

// ErrNoCounts is wrapped by the error of a hand-over after which no process has the counts: the
// next one has failed, and this one cannot open their file again.
var ErrNoCounts = errors.New("this process cannot count any more")

// New returns Counts that wait for Open.
func New(o memstore.Options) *Counts {
	c := &Counts{options: o, done: make(chan struct{})}
	c.place.Store(&place{left: make(chan struct{})})
	return c
}

// InProcess implements weir.InProcess: the counts are in this process for as long as it accepts
// requests.
func (c *Counts) InProcess() {}

// Open opens the counts in this process, from the file alone (nil), or from an offer of another.
// Then they are not this process's before serve. Its errors are those of memstore.New.
func (c *Counts) Open(from *Offer) error {
	o := c.options
	if from != nil {
		o.Continue = from.State
	}
	store, err := memstore.New(o)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.move(&place{local: store, known: store})
	c.early = from != nil
	return nil
}

// serve makes the counts those of this process, and serves guests from them.
func (c *Counts) serve(guests []*guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.early = false
	c.admit(guests)
}

// move makes p the place of the counts. The caller has locked mu.
func (c *Counts) move(p *place) {
	p.left = make(chan struct{})
	last := c.place.Swap(p)
	close(last.left)
}

// Close closes what this process has of the counts. Later takes return ErrClosed. Closing again
// does nothing.
func (c *Counts) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.place.Load()
	if errors.Is(p.err, ErrClosed) {
		return nil
	}
	close(c.done)
	c.polls.Wait()
	for _, g := range c.dismiss() {
		g.link.close()
	}
	c.move(&place{err: ErrClosed, known: p.known})
	switch {
	case p.local != nil:
		return p.local.Close()
	case p.remote != nil:
		p.remote.close()
	}
	return nil
}

// Stats are those of the counts in this process; zero while it has none.
func (c *Counts) Stats() memstore.Stats {
	if s := c.place.Load().local; s != nil {
		return s.Stats()
	}
	return memstore.Stats{}
}

// CountsHere reports whether the counts are in this process now. Then Take waits for nobody, unless
// they move at this moment.
func (c *Counts) CountsHere() bool { return c.place.Load().local != nil }

// Take implements weir.Store. It ignores ctx.
func (c *Counts) Take(ctx context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	p := c.place.Load()
	if p.local != nil {
		if err := p.local.Take(ctx, charges, receipt); err != memstore.ErrClosed {
			return err
		}
	}
	return c.takeElsewhere(ctx, p, charges, receipt)
}

func (c *Counts) takeElsewhere(ctx context.Context, p *place, charges []weir.Charge, receipt *weir.Receipt) error {
	return c.elsewhere(p, func(p *place) error {
		if p.remote != nil {
			return p.remote.take(charges, receipt)
		}
		return p.local.Take(ctx, charges, receipt)
	})
}

// Settle implements weir.Settler. It ignores ctx.
func (c *Counts) Settle(ctx context.Context, t *weir.Ticket, changes []weir.Change) error {
	p := c.place.Load()
	if p.local != nil {
		if err := p.local.Settle(ctx, t, changes); err != memstore.ErrClosed {
			return err
		}
	} else {
		for i := range changes {
			changes[i].Done, changes[i].Lost, changes[i].Used = false, true, weir.Used{}
		}
	}
	return c.elsewhere(p, func(p *place) error { return settleLost(ctx, p, t, changes) })
}

// settleLost settles those of changes at p that were not made before.
func settleLost(ctx context.Context, p *place, t *weir.Ticket, changes []weir.Change) error {
	var rest []weir.Change
	for _, change := range changes {
		if change.Lost {
			rest = append(rest, change)
		}
	}
	var err error
	if p.remote != nil {
		err = p.remote.settle(t, rest)
	} else {
		err = p.local.Settle(ctx, t, rest)
	}
	for i := range changes {
		if changes[i].Lost {
			changes[i], rest = rest[0], rest[1:]
		}
	}
	return err
}

// Reset implements weir.Keeper.
func (c *Counts) Reset(ctx context.Context, charges []weir.Charge) error {
	p := c.place.Load()
	if p.local != nil {
		if err := p.local.Reset(ctx, charges); !errors.Is(err, memstore.ErrClosed) {
			return err
		}
	}
	return c.elsewhere(p, func(p *place) error {
		if p.remote != nil {
			return p.remote.reset(charges)
		}
		return p.local.Reset(ctx, charges)
	})
}

// Grant implements weir.Keeper.
func (c *Counts) Grant(ctx context.Context, charges []weir.Charge, grants []weir.Grant) error {
	p := c.place.Load()
	if p.local != nil {
		if err := p.local.Grant(ctx, charges, grants); !errors.Is(err, memstore.ErrClosed) {
			return err
		}
	}
	return c.elsewhere(p, func(p *place) error {
		if p.remote == nil {
			return p.local.Grant(ctx, charges, grants)
		}
		if err := p.remote.grant(charges, grants); err != nil {
			return err
		}
		return p.known.ReadGrants()
	})
}

// Granted implements weir.Keeper.
func (c *Counts) Granted(charges []weir.Charge, grants []weir.Grant) bool {
	known := c.place.Load().known
	return known != nil && known.Granted(charges, grants)
}

// elsewhere asks the place that follows p, or p itself if the counts are in another process. If
// ask returns ErrClosed, they have left the place.
func (c *Counts) elsewhere(p *place, ask func(*place) error) error {
	late := time.NewTimer(maxWait)
	defer late.Stop()
	for {
		switch {
		case p.err != nil:
			return p.err
		case p.remote != nil:
			return ask(p)
		}
		select {
		case <-p.left:
		case <-late.C:
			return fmt.Errorf("wait %v for the process that has the counts: %w", maxWait, context.DeadlineExceeded)
		}
		if p = c.place.Load(); p.local != nil {
			if err := ask(p); !errors.Is(err, memstore.ErrClosed) {
				return err
			}
		}
	}
}

// An Offer is the counts on their way to the next process, beside their file.
type Offer struct {
	State  *memstore.State
	Guests []*guest `json:"-"` // without the process that makes the offer
}

// Release gives the counts up. Takes wait until Follow or Resume. It returns an error that wraps
// memstore.ErrNoMapping, and changes nothing, if the counts are in no file; and one if this process
// does not have them.
func (c *Counts) Release() (*Offer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.place.Load()
	if p.local == nil {
		return nil, errors.New("hand counts over: this process does not have them")
	}
	if c.early {
		return nil, errors.New("hand counts over: this process has not taken them over yet")
	}
	guests := c.dismiss()
	state, err := p.local.HandOver()
	if state == nil {
		c.admit(guests)
		return nil, err
	}
	c.move(&place{known: p.local})
	return &Offer{state, guests}, err
}

// Resume takes an offer back that no other process has accepted. If that is impossible, every later
// take returns the error.
func (c *Counts) Resume(o *Offer) error {
	if err := openReleased(c, o); err != nil {
		err = fmt.Errorf("take the counts back: %w: %w", ErrNoCounts, err)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.move(&place{err: err, known: c.place.Load().known})
		return err
	}
	c.serve(o.Guests)
	return nil
}

// follow asks the process at the other end of to from now on: it has the counts that this process
// has released. It reads the grants again until Close.
func (c *Counts) follow(to *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.place.Load().known
	c.move(&place{remote: &client{link: to}, known: known})
	c.polls.Go(func() {
		again := time.NewTicker(grantsEvery)
		defer again.Stop()
		for {
			select {
			case <-c.done:
				return
			case <-again.C:
				if err := known.ReadGrants(); err != nil {
					c.options.Log.Warn("grants of the next process cannot be read", "error", err)
				}
			}
		}
	})
}

// ownSlots returns the slots of an offer that are not those of its guests.
func (o *Offer) ownSlots() map[uint64]int64 {
	own := maps.Clone(o.State.Slots)
	for _, g := range o.Guests {
		for hash, n := range g.held {
			if own[hash] -= n; own[hash] <= 0 {
				delete(own, hash)
			}
		}
	}
	return own
}
