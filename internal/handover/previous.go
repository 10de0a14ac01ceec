package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/weirlimit/weir/memstore"
)

// A Previous is the process that has started this one to continue where it stops.
type Previous struct {
	link    *link
	mu      sync.Mutex
	sockets []passed // not taken yet
}

// A passed socket is one that the previous process has passed.
type passed struct {
	Socket
	file *os.File
}

// variable is set for a process that is started by Start. The control socket is descriptor 3, and
// the listening sockets follow.
const (
	variable       = "_WEIR_HANDOVER"
	firstInherited = 3
)

// An inheritance is the value of variable.
type inheritance struct {
	PID     int // of the previous process
	Sockets []Socket
}

// From returns the process that has started this one by Start; nil if none has. It may be called
// once. On other systems than Linux it returns nil.
func From() (*Previous, error) {
	text := os.Getenv(variable)
	_ = os.Unsetenv(variable)
	var from inheritance
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &from); err != nil {
		return nil, fmt.Errorf("variable %s, which only another Weir sets: %w", variable, err)
	}
	return inherit(&from)
}

// Take returns a listener of the socket that the previous process has passed under a name, if it
// was asked for by the same address there, and whether the service manager holds it. It returns nil
// if there is none.
func (p *Previous) Take(name, address string) (l net.Listener, held bool, err error) {
	if p == nil {
		return nil, false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.sockets {
		s := &p.sockets[i]
		if s.file == nil || s.Name != name || !s.Held && s.Address != address {
			continue
		}
		l, err := net.FileListener(s.file)
		_ = s.file.Close()
		s.file = nil
		if err != nil {
			return nil, false, fmt.Errorf("take the socket %q of the previous process: %w", name, err)
		}
		return l, s.Held, nil
	}
	return nil, false, nil
}

// Continue continues where the previous process stops. It takes the counts over into c; nil if they
// are elsewhere. When it returns nil, this process decides. It closes the sockets that were not
// taken.
//
// If the previous process ends meanwhile, nobody else has the counts: this process opens their file
// as after a crash.
func (p *Previous) Continue(c *Counts) error {
	defer p.Close() // nobody would accept at the sockets that were not taken
	offer, err := p.ask()
	if err == nil && c != nil {
		err = openReleased(c, offer)
	}
	if err == nil {
		err = p.awaitGo()
	}
	if err != nil {
		p.link.close()
		return fmt.Errorf("continue where the previous process stops: %w", err)
	}
	if c == nil || offer == nil {
		p.link.close()
		offer.drop() // another store has the counts here
		return nil
	}
	c.serve(append(offer.Guests, &guest{link: p.link, held: offer.ownSlots()}))
	return nil
}

// openRetry is the time between two attempts of openReleased.
const openRetry = 5 * time.Millisecond

// openReleased opens counts that another process has released. If that was killed, the kernel may
// unlock its files a moment after its connection has ended.
func openReleased(c *Counts, offer *Offer) error {
	again := time.NewTicker(openRetry)
	defer again.Stop()
	late := time.NewTimer(maxWait)
	defer late.Stop()
	for {
		var held *memstore.InUseError
		err := c.Open(offer)
		if !errors.As(err, &held) {
			return err
		}
		select {
		case <-again.C:
		case <-late.C:
			return err
		}
	}
}

// ask reports that all else is open, and returns the offer of the previous process. It is nil if
// that has no counts, or has ended.
func (p *Previous) ask() (*Offer, error) {
	var s step
	err := p.link.send(step{Op: opOpen})
	if err == nil {
		err = p.link.receive(&s)
	}
	if isGone(err) {
		return nil, nil
	}
	if err != nil || !s.Counts {
		return nil, err
	}
	offer, err := p.receiveOffer()
	if isGone(err) {
		return nil, nil
	}
	return offer, err
}

func (p *Previous) receiveOffer() (*Offer, error) {
	var sent sentOffer
	err := p.link.receive(&sent)
	if err == nil && sent.Offer.State == nil {
		err = errors.New("the offer has no state")
	}
	if err == nil && sent.Locked {
		sent.State.Lock, err = p.link.receiveFile()
	}
	for _, held := range sent.Held {
		if err == nil {
			g := &guest{held: held}
			g.link, err = p.link.receiveLink()
			sent.Guests = append(sent.Guests, g)
		}
	}
	if err != nil {
		sent.drop()
		return nil, err
	}
	return &sent.Offer, nil
}

// drop closes what was received of an offer, nil for none: this process has no part in the counts,
// or locks them itself.
func (o *Offer) drop() {
	if o == nil {
		return
	}
	if o.State != nil && o.State.Lock != nil {
		_ = o.State.Lock.Close()
	}
	for _, g := range o.Guests {
		if g.link != nil {
			g.link.close()
		}
	}
}

// awaitGo reports that the counts are open, and waits until this process may decide: before that
// the previous one may take the counts back, unless it has ended.
func (p *Previous) awaitGo() error {
	var s step
	err := p.link.send(step{Op: opHave})
	if err == nil {
		err = p.link.receive(&s)
	}
	if isGone(err) {
		return nil
	}
	if err == nil && s.Op != opGo {
		err = fmt.Errorf("it sent %q, expected %q", s.Op, opGo)
	}
	return err
}

// Close closes the sockets that were not taken.
func (p *Previous) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.sockets {
		if s := &p.sockets[i]; s.file != nil {
			_ = s.file.Close()
			s.file = nil
		}
	}
	return nil
}
