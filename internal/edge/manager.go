package edge

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/live"
)

// A manager is the service manager of this process, which is sent its state (sd_notify). Without
// one (no NOTIFY_SOCKET) it does nothing. It is safe for concurrent use.
type manager struct {
	log    *slog.Logger
	lost   atomic.Bool // a failure to send has been logged
	handed atomic.Bool // another process serves, and notifies the manager
	line   string      // the store's, for the status; set before the first status
}

// openManager returns the service manager. It is sent the beginning of the drain when ctx ends.
func openManager(ctx context.Context, log *slog.Logger, own *parts) *manager {
	m := &manager{log: log}
	sent := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		defer close(sent)
		if m.handed.Load() {
			return
		}
		m.send(daemon.SdNotifyStopping, status("draining: requests in flight may finish"))
	})
	own.own(func() error {
		if !unregister() {
			<-sent
		}
		return nil
	})
	return m
}

// send sends assignments, such as READY=1, in one message.
func (m *manager) send(assignments ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(assignments, "\n")); err != nil && !m.lost.Swap(true) {
		m.log.Warn("the service manager cannot be notified", "error", err)
	}
}

// status returns an assignment for people; it must be one line.
func status(format string, args ...any) string {
	return "STATUS=" + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
}

// serving returns the status of a server under a policy.
func (m *manager) serving(s live.State) string {
	from := s.Source
	if s.Source == live.File {
		from = s.Path
	}
	text := fmt.Sprintf("serving; policy %s (%s, %s)", from, s.Version, cli.Count(len(s.Policy.Limiters), "limiter"))
	if !s.Last.OK {
		text += fmt.Sprintf(", a newer one was rejected (%s)", cli.Count(len(s.Last.Problems), "problem"))
	}
	return status("%s; store %s", text, m.line)
}

// notifyReady sends that the server serves.
func (m *manager) notifyReady(s live.State) { m.send(daemon.SdNotifyReady, m.serving(s)) }

// reloading sends that the policy is being read again, until done is called.
func (m *manager) reloading() (done func()) {
	m.send(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
	return func() { m.send(daemon.SdNotifyReady) }
}

// minCheck is the least time between two checks of the server, and the least time that a check has.
const minCheck = 100 * time.Millisecond

// feedWatchdog sends the manager a sign of life, twice in the interval in which it expects one, as
// long as alive returns nil. It ends when stop is called.
func (m *manager) feedWatchdog(alive func(context.Context) error) (stop func() error) {
	usec, pid := os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	interval, err := daemon.SdWatchdogEnabled(true)
	switch {
	case err != nil:
		m.log.Warn("the service manager's watchdog is not notified: expected a whole number of microseconds in WATCHDOG_USEC, more than zero, and the ID of a process or nothing in WATCHDOG_PID",
			"WATCHDOG_USEC", usec, "WATCHDOG_PID", pid)
		return func() error { return nil }
	case interval <= 0:
		return func() error { return nil }
	case interval < 2*minCheck:
		m.log.Warn("the service manager's watchdog may end this server: WATCHDOG_USEC is less than twice the time between two checks of the server; give WatchdogSec=1s or more",
			"WATCHDOG_USEC", usec, "between_checks", minCheck)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(max(interval/2, minCheck))
		defer ticker.Stop()
		for failed := false; ; {
			checking, checked := context.WithTimeout(ctx, max(interval/4, minCheck))
			err := alive(checking)
			checked()
			if m.handed.Load() {
				return
			}
			switch {
			case err == nil:
				m.send(daemon.SdNotifyWatchdog)
				if failed {
					m.log.Info("the server works again, and the service manager's watchdog is notified")
				}
				failed = false
			case ctx.Err() == nil && !failed:
				m.log.Error("the server does not work, so the service manager's watchdog is not notified", "error", err)
				failed = true
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return func() error {
		cancel()
		<-ended
		return nil
	}
}
