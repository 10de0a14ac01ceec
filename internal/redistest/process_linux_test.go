package redistest_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

func TestAPausedServerAnswersWhenItIsResumed(t *testing.T) {
	s := redistest.Start(t)
	c := dial(t, s.Addr())
	s.Pause(t)
	if err := c.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := ping(c); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("paused: %v", err)
	}
	s.Resume(t)
	if err := c.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ping(c); err != nil {
		t.Errorf("resumed: %v", err)
	}
}

func TestWhatWasStartedEnds(t *testing.T) {
	var pid int
	t.Run("a test", func(t *testing.T) {
		s := redistest.Start(t)
		pid = s.Pid()
		s.Pause(t) // even then
	})
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}
