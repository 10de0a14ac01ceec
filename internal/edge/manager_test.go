package edge

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/logtest"
)

// However short the watchdog's interval is, the server checks itself at most ten times a second,
// each check has time, and the log has a line for each change alone.
func TestAShortWatchdogIsCheckedWithinBounds(t *testing.T) {
	for _, usec := range []string{"1", "20000"} {
		t.Setenv("WATCHDOG_USEC", usec)
		synctest.Test(t, func(t *testing.T) {
			log := new(logtest.Buffer)
			m := &manager{log: slog.New(slog.NewTextHandler(log, nil))}
			checks := 0
			stop := m.feedWatchdog(func(ctx context.Context) error {
				checks++
				if by, ok := ctx.Deadline(); !ok || time.Until(by) < 100*time.Millisecond {
					t.Errorf("a check ends at %v, %v", by, ok)
				}
				if checks > 5 && checks <= 15 {
					return errors.New("no connection is accepted")
				}
				return nil
			})
			time.Sleep(2 * time.Second)
			_ = stop()
			if checks < 16 || checks > 21 {
				t.Errorf("%s: %d checks in 2 s", usec, checks)
			}
			for part, n := range map[string]int{"level=ERROR": 1, "works again": 1, "level=WARN": 1, "WATCHDOG_USEC=" + usec: 1} {
				if got := strings.Count(log.String(), part); got != n {
					t.Errorf("%s: %q is logged %d times, want %d:\n%s", usec, part, got, n, log)
				}
			}
		})
	}
}

func TestAWatchdogThatIsNoIntervalIsReported(t *testing.T) {
	for _, usec := range []string{"abc", "0", "-1"} {
		t.Setenv("WATCHDOG_USEC", usec)
		log := new(logtest.Buffer)
		m := &manager{log: slog.New(slog.NewTextHandler(log, nil))}
		_ = m.feedWatchdog(func(context.Context) error { return nil })()
		if got := log.String(); !strings.Contains(got, "expected a whole number of microseconds in WATCHDOG_USEC") || !strings.Contains(got, "WATCHDOG_USEC="+usec) {
			t.Errorf("%s: the log has %q", usec, got)
		}
	}
}
