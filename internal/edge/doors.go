package edge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
)

// A Door serves one protocol at one address.
type Door interface {
	// Serve accepts connections until ctx ends. Then it drains: it accepts no more, and returns
	// when the requests in flight have ended or were cut off. The error is nil after a drain, and
	// otherwise the reason that the door could not serve.
	Serve(ctx context.Context) error
	// Addr returns the address at which clients connect.
	Addr() net.Addr
}

// doors are the doors of a server.
type doors struct {
	// callers all drain if one of them fails, and the server ends.
	callers []Door
	// operators drain after the others, so that operators can watch those. One that fails is
	// logged.
	operators []Door
	log       *slog.Logger

	mu        sync.Mutex
	leave     func() // closes the doors of operators; nil unless serve is running
	elsewhere bool   // another process serves operators
}

// handedOver closes the doors of operators at once: another process serves at their sockets, and an
// operator must reach that.
func (d *doors) handedOver() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.elsewhere = true; d.leave != nil {
		d.leave()
	}
}

// serve opens all doors until ctx ends, and returns when all have drained.
func (d *doors) serve(ctx context.Context) error {
	attended, leave := context.WithCancel(context.WithoutCancel(ctx))
	d.mu.Lock()
	if d.leave = leave; d.elsewhere {
		leave()
	}
	d.mu.Unlock()
	var operators sync.WaitGroup
	for _, door := range d.operators {
		operators.Go(func() {
			if err := door.Serve(attended); err != nil {
				d.log.Error("a listener for operators has ended", "address", door.Addr().String(), "error", err)
			}
		})
	}
	defer func() {
		leave()
		operators.Wait()
	}()

	open, drain := context.WithCancel(ctx)
	defer drain()
	failures := make([]error, len(d.callers))
	var callers sync.WaitGroup
	for i, door := range d.callers {
		callers.Go(func() {
			if failures[i] = door.Serve(open); failures[i] != nil {
				drain()
			}
		})
	}
	callers.Wait()
	return errors.Join(failures...)
}
