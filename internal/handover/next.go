package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// A Socket is a listening socket that the next process serves too.
type Socket struct {
	Name string // what it is for, such as "http"
	// Address is what the socket was asked for by, such as ":8080". The next process uses it only
	// if it is asked for by the same.
	Address string
	// Held means that the service manager holds the socket, and has passed it.
	Held bool

	Listener net.Listener `json:"-"` // with a descriptor (syscall.Conn), or around one that has
}

// A Command starts the next process. All fields are required.
type Command struct {
	Path string   // the program
	Args []string // with the program's name
	Env  []string // of this process at its start
	// Stop makes the process drain. It may come in addition to signals of others that do.
	Stop os.Signal
}

// ErrUnsupported is wrapped by the error of Start on systems other than Linux.
var ErrUnsupported = errors.New("hand-overs need Linux")

// A Next is a process that is to continue where this one stops.
type Next struct {
	link  *link
	pid   int
	kill  func() error
	stop  func() error // makes it drain, once it decides
	ended chan struct{}
	how   string // it has ended; valid once ended is closed
}

// The messages of a hand-over, in their order.
const (
	opOpen  op = "open"  // next: everything but the counts is open
	opOffer op = "offer" // followed by an Offer, and the links of its guests
	opHave  op = "have"  // next: the counts are open
	opGo    op = "go"    // from here on it decides
)

// A step is a message of a hand-over.
type step struct {
	Op op
	// Counts is of opOffer: an Offer follows.
	Counts bool `json:",omitempty"`
}

// A sentOffer is an Offer as it is sent. The lock of the counts and each guest's link follow, each
// in a message of its own.
type sentOffer struct {
	Offer
	Locked bool
	Held   []map[uint64]int64 // of each guest
}

const (
	// maxOpening bounds the time in which the next process opens everything but the counts.
	maxOpening = 60 * time.Second
	// maxTaking bounds the time in which it opens the counts.
	maxTaking = 3 * time.Second // less than maxWait: the counts are back before takes are refused
	// maxEnding bounds the wait for the end of a process that has failed by itself.
	maxEnding = time.Second // with maxTaking less than maxWait
)

// PID returns the id of the process.
func (n *Next) PID() int { return n.pid }

// AwaitOpen returns when the next process has opened everything but the counts. If that does not
// happen, or ctx ends before, the process has ended, and the error says how.
func (n *Next) AwaitOpen(ctx context.Context) error {
	err := n.link.bound(maxOpening)
	if err == nil {
		err = n.until(ctx, func() error { return n.await(opOpen) })
	}
	return n.failed("open its parts", err)
}

// Give gives the counts to the next process; nil if they are elsewhere. It returns when the next
// process decides. Just before that it calls main with the id of that process, which becomes the
// main one of the service; if that fails after all, it calls main again with the id of this one.
//
// If ctx ends before the next process decides, Give returns its error. If it ends later, the next
// process is made to drain. After an error the process has ended and has decided nothing: the
// counts are this process's again.
func (n *Next) Give(ctx context.Context, c *Counts, main func(pid int)) error {
	if c == nil {
		if err := n.give(ctx, nil, main); err != nil {
			return n.failed("take over", err)
		}
		n.link.close()
	} else if err := n.giveCounts(ctx, c, main); err != nil {
		return err
	}
	if ctx.Err() != nil {
		_ = n.stop() // it may have ended already
	}
	return nil
}

func (n *Next) giveCounts(ctx context.Context, c *Counts, main func(pid int)) error {
	offer, err := c.Release()
	if offer == nil {
		return n.failed("get the counts", err)
	}
	if err == nil {
		err = n.give(ctx, offer, main)
	}
	if err != nil {
		return errors.Join(n.failed("take the counts over", err), c.Resume(offer))
	}
	// The next process has copies.
	for _, g := range offer.Guests {
		g.link.close()
	}
	if lock := offer.State.Lock; lock != nil {
		_ = lock.Close()
	}
	c.follow(n.link)
	return nil
}

func (n *Next) give(ctx context.Context, offer *Offer, main func(pid int)) error {
	if err := n.link.bound(maxTaking); err != nil {
		return err
	}
	if err := n.until(ctx, func() error { return n.offer(offer) }); err != nil {
		return err
	}
	// From here on only its own end keeps the next process from deciding.
	if err := n.link.unbound(); err != nil {
		return err
	}
	// The service manager must know the next process before that reports anything to it.
	main(n.pid)
	if err := n.link.send(step{Op: opGo}); err != nil {
		main(os.Getpid())
		return err
	}
	return nil
}

// offer sends an offer, nil for none, and returns when the next process has the counts open.
func (n *Next) offer(offer *Offer) error {
	if err := n.link.send(step{Op: opOffer, Counts: offer != nil}); err != nil {
		return err
	}
	if offer != nil {
		if err := n.sendOffer(offer); err != nil {
			return err
		}
	}
	return n.await(opHave)
}

// until calls f, and ends what f receives when ctx ends. Then it returns the error of ctx, even if
// f has returned nil. The link is not interrupted any more when until has returned.
func (n *Next) until(ctx context.Context, f func() error) error {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		n.link.interrupt()
	})
	err := f()
	if !stop() {
		<-interrupted
		return context.Cause(ctx)
	}
	return err
}

func (n *Next) sendOffer(offer *Offer) error {
	lock := offer.State.Lock
	sent := sentOffer{Offer: Offer{State: offer.State}, Locked: lock != nil}
	for _, g := range offer.Guests {
		sent.Held = append(sent.Held, g.held)
	}
	err := n.link.send(sent)
	if err == nil && lock != nil {
		err = n.link.sendFile(lock)
	}
	for _, g := range offer.Guests {
		if err == nil {
			err = n.link.sendFile(g.link.conn)
		}
	}
	return err
}

// await receives a step.
func (n *Next) await(want op) error {
	var s step
	if err := n.link.receive(&s); err != nil {
		return err
	}
	if s.Op != want {
		return fmt.Errorf("it sent %q, expected %q", s.Op, want)
	}
	return nil
}

// failed ends the process if err is not nil, and returns what went wrong.
func (n *Next) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	defer n.link.close() // when the process has ended: it takes an end for leave to decide
	if isGone(err) {
		// It ends by itself, and its status says more than a signal's.
		select {
		case <-n.ended:
			return fmt.Errorf("the next process, %d, ended before it could %s: %s; its log has the reason", n.pid, doing, n.how)
		case <-time.After(maxEnding):
		}
	}
	_ = n.kill() // it may have ended already
	<-n.ended
	return fmt.Errorf("the next process, %d, did not %s: %w", n.pid, doing, err)
}
