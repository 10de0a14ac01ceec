package weir

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/redistest"
)

// A readersShell is a bash in which a test types a page's commands. It has its own
// directory, and the real weir on its PATH. Servers get free ports; in commands and
// output they are replaced by the page's ports. The page's http://127.0.0.1:3000 is
// a backend that answers every request with hello, and redis://127.0.0.1:6379 is a
// real Redis.
type readersShell struct {
	t       *testing.T
	page    string
	dir     string
	bash    *os.Process
	stdin   io.Writer
	printed *bufio.Reader
	ports   []shownPort
	served  int
	program string // the lines of the program for go run .
}

// A shownPort is a port on the page, and the port in use.
type shownPort struct{ shown, real string }

// newReadersShell starts a reader's shell. The shell and its background commands
// end with the test.
func newReadersShell(t *testing.T, page string) *readersShell {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	s := &readersShell{t: t, page: page, dir: t.TempDir()}
	hello := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }
	backend := httptest.NewServer(http.HandlerFunc(hello))
	t.Cleanup(backend.Close)
	s.port("3000", portOf(t, backend.Listener.Addr().String()))
	cmd := exec.Command("bash")
	cmd.Dir = s.dir
	cmd.Env = append(cleanEnv(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.bash, s.stdin, s.printed = cmd.Process, stdin, bufio.NewReader(out)
	t.Cleanup(func() {
		s.end()
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return s
}

// end stops the background commands.
func (s *readersShell) end() {
	out, _, err := s.run("jobs -pr")
	if err != nil {
		return // the shell has ended
	}
	for _, word := range strings.Fields(out) {
		if id, err := strconv.Atoi(word); err == nil {
			if p, err := os.FindProcess(id); err == nil {
				_ = p.Kill()
			}
		}
	}
}

// port maps a port of the page to a real one.
func (s *readersShell) port(shown, real string) {
	for i := range s.ports {
		if s.ports[i].shown == shown {
			s.ports[i].real = real
			return
		}
	}
	s.ports = append(s.ports, shownPort{shown, real})
}

func (s *readersShell) realPort(shown string) string {
	for _, p := range s.ports {
		if p.shown == shown {
			return p.real
		}
	}
	return ""
}

// hosts are this machine's names on the pages.
var hosts = []string{"localhost:", "127.0.0.1:"}

// real replaces the page's ports; shown is the reverse.
func (s *readersShell) real(command string) string {
	for _, p := range s.ports {
		for _, host := range hosts {
			command = strings.ReplaceAll(command, host+p.shown, "127.0.0.1:"+p.real)
		}
	}
	return command
}

func (s *readersShell) shown(printed string) string {
	for _, p := range s.ports {
		printed = strings.ReplaceAll(printed, "127.0.0.1:"+p.real, "127.0.0.1:"+p.shown)
	}
	return strings.ReplaceAll(strings.ReplaceAll(printed, "\r", ""), s.dir, "DIR")
}

// write puts a file in the reader's directory.
func (s *readersShell) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(s.real(text)), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// block runs the commands of a block, each a line that begins with "$ ". A command
// must exit with status 0 and print the page's text below it; if there is none, it
// may print anything. A line that ends with a backslash or a pipe continues in the
// next line. In the output, … is any text of a line, and a line … is any lines.
func (s *readersShell) block(text string) {
	s.t.Helper()
	for _, one := range strings.Split("\n"+strings.TrimRight(text, "\n"), "\n$ ")[1:] {
		lines, n := strings.Split(one, "\n"), 1
		for n < len(lines) && continues.MatchString(lines[n-1]) {
			n++
		}
		command := strings.Join(lines[:n], "\n")
		want := strings.TrimSpace(strings.Join(lines[n:], "\n"))
		got, status := s.command(command)
		if status != 0 {
			s.t.Fatalf("%s: %s\nends with status %d and prints\n%s", s.page, command, status, got)
		}
		if want != "" && !printsAs(want, got) {
			s.t.Errorf("%s: %s\nprints\n%s\nand the page shows\n%s", s.page, command, got, want)
		}
	}
}

// varying are the fields that vary between runs, and timePrinted are the times.
var (
	varying     = regexp.MustCompile(`(?m)^(Date|Retry-After|X-RateLimit-Reset|X-Weir-Denial): .*$`)
	timePrinted = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`)
)

// continues matches a line of a command that continues in the next one.
var continues = regexp.MustCompile(`(\\| \|)$`)

// printsAs compares a command's output with the page's text.
func printsAs(want, got string) bool {
	same := func(text string) string {
		text = timePrinted.ReplaceAllString(varying.ReplaceAllString(text, "$1"), "TIME")
		text = regexp.MustCompile(`(?m) +$`).ReplaceAllString(text, "")
		// The columns' widths vary.
		return strings.TrimSpace(regexp.MustCompile(` +`).ReplaceAllString(text, " "))
	}
	want, got = same(want), same(got)
	pattern := regexp.QuoteMeta(want)
	pattern = regexp.MustCompile(`(?m)^…$`).ReplaceAllLiteralString(pattern, `(?s:.*)`)
	pattern = strings.ReplaceAll(pattern, "…", `[^\n]*`)
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(got)
}

// command runs a reader's command.
func (s *readersShell) command(command string) (prints string, status int) {
	s.t.Helper()
	if strings.Contains(command, "127.0.0.1:6379") && s.realPort("6379") == "" {
		s.port("6379", portOf(s.t, redistest.Start(s.t).Addr()))
	}
	switch {
	case strings.HasPrefix(command, "git clone "): // the installed programs are on the PATH
		return "", 0
	case regexp.MustCompile(`(^|\s)weir serve\b`).MatchString(command):
		return s.serve(command)
	}
	if strings.HasPrefix(command, "go run .") {
		command = strings.Replace(command, "go run .", s.build(s.program), 1)
	}
	out, status, err := s.run(s.real(command))
	if err != nil {
		s.t.Fatalf("%s: %s: %v\n%s", s.page, command, err, out)
	}
	return s.shown(out), status
}

// listenFlag matches a command's listen address.
var listenFlag = regexp.MustCompile(` --listen (?:\S*:)(\d+)`)

// serve runs weir serve in the background, on free ports, until it is ready.
func (s *readersShell) serve(command string) (prints string, status int) {
	s.t.Helper()
	command, background := strings.CutSuffix(command, " &")
	if !background {
		s.t.Fatalf("%s: %s\nkeeps the shell: end it with &", s.page, command)
	}
	public, admin := "8080", "8081"
	if m := listenFlag.FindStringSubmatch(command); m != nil {
		command, public = strings.Replace(command, m[0], "", 1), m[1]
	}
	log := filepath.Join(s.dir, fmt.Sprintf(".served%d", s.served))
	s.served++
	out, status, err := s.run(fmt.Sprintf(`export WEIR_ADMIN=127.0.0.1:0 WEIR_LISTEN=127.0.0.1:0
%s >%s 2>&1 &
until grep -q '^ready$' %[2]s || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
grep -q '^ready$' %[2]s`, s.real(command), log))
	printed := readText(s.t, log)
	if err != nil || status != 0 {
		s.t.Fatalf("%s: %s\nis not ready: %v\n%s%s", s.page, command, err, out, printed)
	}
	for port, at := range map[string]*regexp.Regexp{public: listening, admin: adminAt} {
		if m := at.FindStringSubmatch(printed); m != nil {
			_, address, _ := strings.Cut(m[1], "://")
			s.port(port, portOf(s.t, address))
		}
	}
	if real := s.realPort("8081"); real != "" {
		if _, _, err := s.run("export WEIR_ADMIN=127.0.0.1:" + real); err != nil {
			s.t.Fatal(err)
		}
	}
	return s.shown(printed), 0
}

// ended matches the end of a command's output, with its status.
var ended = regexp.MustCompile(`^<end of command: (\d+)>\n$`)

// run runs a command in the shell, and returns its output and status.
func (s *readersShell) run(command string) (prints string, status int, err error) {
	stuck := time.AfterFunc(patience, func() { _ = s.bash.Kill() }) // ends the read below
	defer stuck.Stop()
	if _, err := io.WriteString(s.stdin, command+"\nprintf '\\n<end of command: %d>\\n' $?\n"); err != nil {
		return "", 0, err
	}
	var out strings.Builder
	for {
		line, err := s.printed.ReadString('\n')
		if m := ended.FindStringSubmatch(line); m != nil {
			status, err := strconv.Atoi(m[1])
			return strings.TrimSuffix(out.String(), "\n"), status, err
		}
		out.WriteString(line)
		if err != nil {
			return out.String(), 0, errors.Join(errors.New("the shell has ended"), err)
		}
	}
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func TestCommandOutputIsComparedWithItsPage(t *testing.T) {
	for _, c := range []struct {
		shown, printed string
		same           bool
	}{
		{"a\nb", "a\nb\n", true},
		{"a\nb", "a\nc\n", false},
		{"Reset: …", "Reset: 17", true},
		{"Reset: …", "Reset: 17\nmore", false},
		{"a\n…\nd", "a\nb\nc\nd", true},
		{"a\n…\nd", "a\nb\nc", false},
		{"a.c", "abc", false},
		{"RESETS   NOTE\nin 1m0s", "RESETS  NOTE\nin 1m0s \n", true},
		{"at 2026-11-23 02:08:25 UTC", "at 2027-01-02 03:04:05 UTC", true},
		{"Date: Sun", "Date: Mon", true},
	} {
		if printsAs(c.shown, c.printed) != c.same {
			t.Errorf("%q on a page and %q printed: want the same: %v", c.shown, c.printed, c.same)
		}
	}
}
