package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
)

// A Door answers the clients of one listener. A Gateway is the door for HTTP; other protocols have
// their own.
type Door interface {
	// Serve accepts connections from l until ctx ends. It then drains: it accepts nothing more, lets
	// the requests in flight finish within a limit of its own, and cuts off the rest. It returns
	// when no connection and no goroutine is left. It returns an error only if it could not serve,
	// and it closes l in any case.
	Serve(ctx context.Context, l net.Listener) error
}

// An OpenDoor is a Door and the listener it serves.
type OpenDoor struct {
	Door     Door
	Listener net.Listener
}

// ServeAll serves every door until ctx ends, or until one of them returns. All others then drain. It
// returns when all doors have returned, with all their errors.
func ServeAll(ctx context.Context, doors ...OpenDoor) error {
	ctx, drain := context.WithCancel(ctx)
	defer drain()
	errs := make([]error, len(doors))
	var serving sync.WaitGroup
	for i, d := range doors {
		serving.Go(func() {
			defer drain()
			errs[i] = d.Door.Serve(ctx, d.Listener)
		})
	}
	serving.Wait()
	return errors.Join(errs...)
}
