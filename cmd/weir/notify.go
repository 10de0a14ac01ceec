package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/live"
)

// A notifier tells the service manager how this process does (sd_notify). Without one (no NOTIFY_SOCKET) it does nothing.
type notifier struct {
	log  *slog.Logger
	lost atomic.Bool // it was said that the manager does not hear
}

// tell sends assignments, such as READY=1, together.
func (n *notifier) tell(assignments ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(assignments, "\n")); err != nil && !n.lost.Swap(true) {
		n.log.Warn("the service manager cannot be told how this server does", "error", err)
	}
}

// status is an assignment for people; the manager takes one line.
func status(format string, args ...any) string {
	return "STATUS=" + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
}

// statusOf is the status while serving.
func (e *edge) statusOf(s live.State) string {
	from := s.Source
	if s.Source == live.File {
		from = s.Path
	}
	said := fmt.Sprintf("serving; policy %s (%s, %s)", from, s.Version, cli.Count(len(s.Policy.Limiters), "limiter"))
	if !s.Last.OK {
		said += fmt.Sprintf(", a newer one is refused (%s)", cli.Count(len(s.Last.Problems), "problem"))
	}
	return status("%s; store %s", said, e.storeLine)
}

// reloading tells that the policy is read again, until the function it returns is called.
func (n *notifier) reloading() (done func()) {
	n.tell(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
	return func() { n.tell(daemon.SdNotifyReady) }
}

// feedWatchdog tells the manager that this server lives, twice in the time within which it wants to hear that, for as long as
// alive says so. What it returns ends that.
func (n *notifier) feedWatchdog(alive func(context.Context) error) (stop func()) {
	within, err := daemon.SdWatchdogEnabled(true)
	if err != nil {
		n.log.Warn("the service manager's watchdog is not fed", "error", err)
	}
	if within <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(within / 2)
		defer ticker.Stop()
		for {
			asking, asked := context.WithTimeout(ctx, within/4)
			err := alive(asking)
			asked()
			if err == nil {
				n.tell(daemon.SdNotifyWatchdog)
			} else if ctx.Err() == nil {
				n.log.Error("the watchdog is not fed: the server does not work", "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// A pulse is how the watchdog finds out whether an edge works: it counts, and it accepts connections. That a shared store or a
// backend does not answer is no reason to be restarted.
type pulse struct {
	edge     *edge
	at       net.Addr
	accepted int64 // at the last look
}

// alive returns nil where the edge works. It waits no longer than ctx, but for the counts, which never wait while they work.
func (p *pulse) alive(ctx context.Context) error {
	if err := p.edge.counts(ctx); err != nil {
		return err
	}
	if p.edge.gateway.Draining() {
		return nil // it accepts nothing more, as it should
	}
	last := p.accepted
	if p.accepted = p.edge.gateway.Accepted(); p.accepted != last {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, p.at.Network(), p.at.String())
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // it cannot be reached from here, which tells nothing
	}
	if err == nil {
		defer conn.Close()
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for p.edge.gateway.Accepted() == last && !p.edge.gateway.Draining() {
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.New("no connection is accepted")
		}
	}
	return nil
}

// counts reads a window of the store in this process, where there is one.
func (e *edge) counts(ctx context.Context) error {
	if e.embedded == nil {
		return nil
	}
	key := []byte("watchdog")
	return e.embedded.Take(ctx, []weir.Charge{{Key: key, Scope: len(key), Subject: len(key), Limit: 1, Per: 1}}, new(weir.Receipt))
}
