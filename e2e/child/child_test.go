package child

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start runs a shell script until the test ends.
func start(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(exec.Command("sh", "-c", script), filepath.Join(t.TempDir(), "log"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func (p *Process) wrote(text string) func() bool {
	return func() bool { return strings.Contains(p.Output(), text) }
}

func TestAProcessIsAwaitedAndStopped(t *testing.T) {
	p := start(t, "echo ready; exec sleep 600")
	if err := p.Await("it is ready", p.wrote("ready")); err != nil {
		t.Fatal(err)
	}
	if !p.Stop(Patience) || p.State().Success() {
		t.Errorf("it ended with %v", p.State())
	}
}

func TestAProcessThatIgnoresTheSignalIsKilled(t *testing.T) {
	p := start(t, "trap '' TERM; echo ready; while :; do sleep 600; done")
	if err := p.Await("it is ready", p.wrote("ready")); err != nil {
		t.Fatal(err)
	}
	if p.Stop(50 * time.Millisecond) {
		t.Error("it ended by itself")
	}
}

func TestAwaitFailsIfTheProcessEnds(t *testing.T) {
	p := start(t, "echo no configuration; exit 3")
	err := p.Await("it is ready", func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no configuration") {
		t.Errorf("awaiting returns %v", err)
	}
}

func TestAProgramThatIsMissingIsAnError(t *testing.T) {
	if _, err := Start(exec.Command("no-such-program"), filepath.Join(t.TempDir(), "log"), syscall.SIGKILL); err == nil || !strings.Contains(err.Error(), "scripts/deps") {
		t.Errorf("starting returns %v", err)
	}
}
