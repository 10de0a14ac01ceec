package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/weirlimit/weir/internal/live"
)

// catchHangUps keeps a SIGHUP from ending this process without a drain, from now until forget is called. One that comes before
// somebody listens is kept.
func catchHangUps() (hangUps <-chan os.Signal, forget func()) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	return caught, func() { signal.Stop(caught) }
}

// followPolicy replaces the policy when its file changes or somebody hangs up, until ctx ends or stop is called, which waits for that.
func followPolicy(ctx context.Context, policy *live.Policy, hangUps <-chan os.Signal, manager *notifier, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { policy.Watch(ctx) })
	following.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangUps:
				done := manager.reloading()
				// What becomes of it is in the log already, but for this.
				if err := policy.Reload(ctx, "SIGHUP"); errors.Is(err, live.ErrFixed) {
					log.Warn("SIGHUP changes nothing", "error", err)
				}
				done()
			}
		}
	})
	return func() {
		cancel()
		following.Wait()
	}
}
