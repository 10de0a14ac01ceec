package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/weirlimit/weir/internal/cli"
)

// signals are what the process is sent while it serves.
type signals struct {
	running context.Context  // ends with the first SIGTERM or SIGINT
	logged  chan struct{}    // closed when the end of running has been logged
	hangUps <-chan os.Signal // SIGHUP
}

// handleSignals ends running when the process is told to end; a second such signal ends the process
// at once. A SIGHUP does not end the process any more: one that comes before reloadOnHangUp is
// kept. The caller calls forget at the end.
func handleSignals(ctx context.Context, log *slog.Logger) (s *signals, forget func()) {
	hangUps, logged := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangUps, syscall.SIGHUP)
	running, stop := cli.Interruptible(ctx, func() {
		defer close(logged)
		log.Info("draining: requests in flight may finish; a second signal ends at once")
	})
	s = &signals{running: running, logged: logged, hangUps: hangUps}
	return s, func() {
		signal.Stop(hangUps)
		stop()
	}
}

// reloadOnHangUp calls reload for each SIGHUP until running ends or stop is called, which waits for
// the last call.
func (s *signals) reloadOnHangUp(reload func(ctx context.Context, by string)) (stop func()) {
	ctx, cancel := context.WithCancel(s.running)
	var following sync.WaitGroup
	following.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.hangUps:
				reload(ctx, "SIGHUP")
			}
		}
	})
	return func() {
		cancel()
		following.Wait()
	}
}
