package weir

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir/internal/admin"
)

// openTerminal returns the two ends of a new terminal: what a person sees, and what a program
// writes to.
func openTerminal(t *testing.T) (screen, program *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetUint32(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, program
}

// A terminal shows the operator's token, in a link to open; testdata/admin.txtar has what others
// get.
func TestATerminalShowsTheOperatorsTokenOnce(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	start := func() string {
		t.Helper()
		screen, program := openTerminal(t)
		cmd := exec.Command(path, "serve", "--listen", "127.0.0.1:0", "--data", data, "--policy", "contract", "--upstream", "http://127.0.0.1:9")
		cmd.Env, cmd.Stdout = append(cleanEnv(), noNotice), program
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = program.Close()
		shown := newLines()
		go shown.read(screen) // ends with the program
		_, err := shown.await(regexp.MustCompile(`(?m)^ready\r$`))
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return shown.String()
	}
	first := start()
	token, err := admin.ReadOperator(data)
	if err != nil {
		t.Fatal(err)
	}
	kept := regexp.QuoteMeta(data + "/admin.token")
	if !regexp.MustCompile(`(?m)^admin +http://127\.0\.0\.1:\d+/#token=` + regexp.QuoteMeta(token) + ` \(shown this once; kept in ` + kept + `\)\r$`).MatchString(first) {
		t.Errorf("the first start prints\n%s", first)
	}
	if later := start(); !regexp.MustCompile(`(?m)^admin +http://127\.0\.0\.1:\d+, its token is in ` + kept + `\r$`).MatchString(later) {
		t.Errorf("a later start prints\n%s", later)
	}
}
