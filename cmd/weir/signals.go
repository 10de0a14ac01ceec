package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/handover"
)

// signals are what the process is sent while it serves.
type signals struct {
	running context.Context  // ends with the first SIGTERM or SIGINT, and with leave
	leave   func()           // ends running without a log line
	logged  chan struct{}    // closed when the end of running has been logged, or by leave
	hangUps <-chan os.Signal // SIGHUP
	swaps   <-chan os.Signal // the signal on which another process is to serve
	log     *slog.Logger
}

// handleSignals ends running when the process is to end; a second SIGTERM or SIGINT ends the
// process at once. A SIGHUP or a swap signal does not end the process any more: one that comes
// before follow is kept. The caller calls forget at the end.
func handleSignals(ctx context.Context, log *slog.Logger) (s *signals, forget func()) {
	hangUps, swaps, drains := make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan os.Signal, 1)
	logged := make(chan struct{})
	signal.Notify(hangUps, syscall.SIGHUP)
	if swapSignal != nil {
		signal.Notify(swaps, swapSignal)
		signal.Notify(drains, drainSignal)
	}
	end := sync.OnceFunc(func() { close(logged) })
	interrupted, stop := cli.Interruptible(ctx, func() {
		defer end()
		log.Info("draining: requests in flight may finish; a second signal ends at once")
	})
	running, cancel := context.WithCancel(interrupted)
	s = &signals{running: running, logged: logged, hangUps: hangUps, swaps: swaps, log: log, leave: func() {
		end()
		cancel()
	}}
	var draining sync.WaitGroup
	draining.Go(func() {
		select {
		case <-drains:
			log.Info("draining, because the previous process was to end: requests in flight may finish")
			s.leave()
		case <-running.Done():
		}
	})
	return s, func() {
		cancel()
		draining.Wait()
		signal.Stop(hangUps)
		signal.Stop(swaps)
		signal.Stop(drains)
		stop()
	}
}

// maxLastOpen bounds the opening of a server that is to end already.
const maxLastOpen = time.Second

// open opens a server. If the process is to end before that is done, and it is not done soon, as
// when a file is a pipe into which nothing is written, open leaves it behind and returns
// edge.ErrStopped: the process ends, as by a kill.
func (s *signals) open(open func() (*edge.Server, error)) (*edge.Server, error) {
	type result struct {
		server *edge.Server
		err    error
	}
	opened := make(chan result, 1)
	go func() {
		server, err := open()
		opened <- result{server, err}
	}()
	select {
	case r := <-opened:
		return r.server, r.err
	case <-s.running.Done():
	}
	select {
	case r := <-opened:
		return r.server, r.err
	case <-time.After(maxLastOpen):
		s.log.Warn("ending before the start was complete")
		return nil, edge.ErrStopped
	}
}

// follow calls reload for each SIGHUP, and swap for each swap signal, until running ends or stop is
// called, which waits for the last call. If swap returns nil, another process serves: running ends.
func (s *signals) follow(reload func(ctx context.Context, by string), swap func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(s.running)
	var following sync.WaitGroup
	following.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.hangUps:
				reload(ctx, "SIGHUP")
			case <-s.swaps:
				err := swap(ctx)
				if err == nil {
					s.leave()
					return
				}
				if ctx.Err() != nil {
					s.log.Info("no other process serves in place of this one, which ends", "error", err)
					return
				}
				s.log.Error("no other process serves in place of this one, which continues to serve", "error", err)
			}
		}
	})
	return func() {
		cancel()
		following.Wait()
	}
}

// thisCommand returns the command by which this process was started, for one that serves in place
// of it. It is called before the process changes its variables.
func thisCommand() (handover.Command, error) {
	if len(os.Args) == 0 {
		return handover.Command{}, errors.New("this process was started without its program's name")
	}
	// not os.Executable, which resolves the symbolic link that a new version replaces
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	return handover.Command{Path: path, Args: os.Args, Env: os.Environ(), Stop: drainSignal}, err
}
