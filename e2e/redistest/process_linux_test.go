package redistest_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/redistest"
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

func TestStartedProcessesEnd(t *testing.T) {
	var pid int
	t.Run("a test", func(t *testing.T) {
		s := redistest.Start(t)
		pid = s.Pid()
		s.Pause(t) // even if it is paused
	})
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}

func TestAServerDiesWithTheTestBinary(t *testing.T) {
	const inside = "REDISTEST_INSIDE"
	if os.Getenv(inside) != "" { // this is the process that will be killed
		fmt.Println("at", redistest.Start(t).Addr())
		select {}
	}
	binary := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	binary.Env = append(os.Environ(), inside+"=1", "TMPDIR="+t.TempDir())
	out, err := binary.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := binary.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "at ")
	if !ok || err != nil {
		t.Errorf("it prints %q: %v", line, err)
	}
	if err := binary.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = binary.Wait() // killed
	for start := time.Now(); ; {
		c, err := net.Dial("tcp", addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			c.Close()
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("the server at %s still runs: %v", addr, err)
		}
	}
}
