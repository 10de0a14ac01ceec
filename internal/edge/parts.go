package edge

import (
	"context"
	"errors"
)

// parts are the close functions of what a server has opened, in the order of opening. The zero
// value owns nothing. It is not safe for concurrent use.
type parts struct{ closers []func() error }

// own adds a part that is open.
func (p *parts) own(close func() error) { p.closers = append(p.closers, close) }

// run runs f until the parts are closed, which ends its context and waits for it.
func (p *parts) run(ctx context.Context, f func(context.Context)) {
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(running)
	}()
	p.own(func() error {
		stop()
		<-ended
		return nil
	})
}

// close closes every part, the last opened first, and returns their errors. A second call does
// nothing.
func (p *parts) close() error {
	var err error
	for i := len(p.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, p.closers[i]())
	}
	p.closers = nil
	return err
}
