package pacer_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// If the environment requests it, TestMain runs the test binary as another process
// of the view.
func TestMain(m *testing.M) {
	path, role, _ := strings.Cut(os.Getenv("PACER_TEST_PROCESS"), "|")
	if path == "" {
		os.Exit(m.Run())
	}
	f, err := pacer.OpenFile(path)
	for tries := 0; err != nil && tries < 100; tries++ { // another process has held the lock
		f, err = pacer.OpenFile(path)
	}
	if err != nil {
		panic(err)
	}
	switch role {
	case "count":
		for range updates {
			// other processes have held the lock for a quarter of a second
			for increment(f, counterKey) != nil {
			}
		}
	case "hold":
		err := f.Update(counterKey, func(state []byte) []byte {
			os.Stdout.WriteString("held\n")
			bufio.NewReader(os.Stdin).ReadString('\n') // until it is killed
			return state
		})
		panic(err)
	}
}

const updates = 300

var counterKey = strings.Repeat("k", 32)

// increment adds one to a number.
func increment(f *pacer.File, key string) error {
	return f.Update(key, func(state []byte) []byte {
		n := uint64(0)
		if len(state) == 8 {
			n = binary.LittleEndian.Uint64(state)
		}
		return binary.LittleEndian.AppendUint64(nil, n+1)
	})
}

// number reads the number.
func number(t *testing.T, f *pacer.File, key string) (n uint64) {
	t.Helper()
	err := f.Update(key, func(state []byte) []byte {
		if len(state) == 8 {
			n = binary.LittleEndian.Uint64(state)
		}
		return state
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// process starts another process in a role.
func process(t *testing.T, path, role string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PACER_TEST_PROCESS="+path+"|"+role)
	cmd.Stderr = os.Stderr
	return cmd
}

func openFile(t *testing.T, path string) *pacer.File {
	t.Helper()
	f, err := pacer.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestProcessesChangeAFileOneAfterTheOther(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it starts processes")
	}
	path := filepath.Join(t.TempDir(), "view")
	f := openFile(t, path)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := process(t, path, "count").Run(); err != nil {
				t.Error(err)
			}
		})
	}
	for range 4 { // goroutines of this process compete with them
		all.Go(func() {
			for range updates {
				for increment(f, counterKey) != nil {
				}
			}
		})
	}
	all.Wait()
	if n := number(t, f, counterKey); n != 8*updates {
		t.Errorf("8 times %d updates counted %d", updates, n)
	}
}

func TestAProcessThatHoldsTheFileDelaysNoOther(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it starts processes")
	}
	path := filepath.Join(t.TempDir(), "view")
	f := openFile(t, path)
	holder := process(t, path, "hold")
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "held\n" {
		t.Fatalf("the other process printed %q, %v", line, err)
	}
	if err := increment(f, counterKey); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("while another process holds the lock: %v", err)
	}
	var reported []error
	s := &script{replies: []reply{{status: 200, header: fields("60", "0", "now+60")}}}
	p := pacer.New(&pacer.Options{Base: s, Shared: f, MaxWait: pacer.NoWait, OnSharedFailure: func(err error) { reported = append(reported, err) }})
	if response, err := p.RoundTrip(get(t)); err != nil || response.StatusCode != 200 {
		t.Errorf("a request meanwhile: %v, %v", response, err)
	}
	_, err = p.RoundTrip(get(t))
	asWait(t, err) // this process paces itself
	if len(reported) == 0 {
		t.Error("OnSharedFailure was not called")
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	holder.Wait()
	if err := increment(f, counterKey); err != nil {
		t.Errorf("after the other process was killed: %v", err)
	}
}

func TestAFileOutlivesItsProcesses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "view")
		s := &script{replies: []reply{{status: 200, header: fields("60", "0", "now+60")}}}
		if _, err := pacer.New(&pacer.Options{Base: s, Shared: openFile(t, path)}).RoundTrip(get(t)); err != nil {
			t.Fatal(err)
		}
		_, err := pacer.New(&pacer.Options{Base: s, Shared: openFile(t, path), MaxWait: pacer.NoWait}).RoundTrip(get(t))
		if wait := asWait(t, err); wait.Reason != pacer.BudgetSpent || len(s.at) != 1 {
			t.Errorf("the next process: %+v, %d requests", wait, len(s.at))
		}
	})
}

func TestInvalidViewFilesAreRejected(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(write("target", ""), link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		write("text", "dear diary"): "is not a shared view", write("short", "weir"): "is not a shared view", dir: "not a regular file",
		link: "not a regular file", filepath.Join(dir, "missing", "view"): "no such file",
	} {
		if f, err := pacer.OpenFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("open %s: %v, %v, want an error with %q", path, f, err, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "text")); string(text) != "dear diary" {
		t.Errorf("the file that is no view is now %q, %v", text, err)
	}
}

func TestADamagedFileIsIgnored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "view")
	f := openFile(t, path)
	for range 3 {
		if err := increment(f, counterKey); err != nil {
			t.Fatal(err)
		}
	}
	if n := number(t, f, counterKey); n != 3 {
		t.Fatalf("counted %d", n)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(raw); i += 100 {
		raw[i] ^= 0x55
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if n := number(t, f, counterKey); n != 0 {
		t.Errorf("%d was read from a damaged page", n)
	}
	if err := increment(f, counterKey); err != nil || number(t, f, counterKey) != 1 {
		t.Errorf("and it cannot be written again: %v", err)
	}
}

func TestAPageKeepsTheLatest(t *testing.T) {
	f := openFile(t, filepath.Join(t.TempDir(), "view"))
	// all on one page
	key := func(i int) string { return strings.Repeat("p", 8) + strings.Repeat(string(rune('A'+i)), 24) }
	state := []byte(strings.Repeat("s", 400))
	for i := range 20 {
		if err := f.Update(key(i), func([]byte) []byte { return state }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		var had bool
		if err := f.Update(key(i), func(old []byte) []byte { had = old != nil; return old }); err != nil {
			t.Fatal(err)
		}
		if had && i < 11 {
			t.Errorf("state %d is still there after later ones", i)
		}
	}
	if err := f.Update("short", func(old []byte) []byte { return old }); err == nil {
		t.Error("a key of 5 bytes was accepted")
	}
	if err := f.Update(key(1), func([]byte) []byte { return make([]byte, 5000) }); err == nil {
		t.Error("a state larger than a page was accepted")
	}
}

func TestAFailedSharedViewIsRetriedAfterASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "59", "now+60")}}}
		m := &memory{states: map[string][]byte{}, fails: errors.New("disk full")}
		reported := 0
		p := pacer.New(&pacer.Options{Base: s, Shared: m, OnSharedFailure: func(error) { reported++ }})
		for range 5 {
			if _, err := p.RoundTrip(get(t)); err != nil {
				t.Fatal(err)
			}
		}
		if reported != 1 {
			t.Errorf("OnSharedFailure was called %d times in a moment", reported)
		}
		m.fails = nil
		pass(time.Second)
		if _, err := p.RoundTrip(get(t)); err != nil || len(m.states) != 1 {
			t.Errorf("%v; %d states: the view was not used again", err, len(m.states))
		}
	})
}

// The local clock is set back by a day just after the view has failed.
func TestASharedViewIsRetriedAfterTheClockWasSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "59", "now+60")}}}
		m := &memory{states: map[string][]byte{}, fails: errors.New("disk full")}
		var back time.Duration
		p := pacer.New(&pacer.Options{Base: s, Shared: m, Now: func() time.Time { return time.Now().Add(-back) }})
		if _, err := p.RoundTrip(get(t)); err != nil {
			t.Fatal(err)
		}
		m.fails, back = nil, 24*time.Hour
		pass(time.Second)
		if _, err := p.RoundTrip(get(t)); err != nil || len(m.states) != 1 {
			t.Errorf("%v; %d states: the view was not used again", err, len(m.states))
		}
	})
}

// Garbage in a shared view is ignored: the next request is a probe.
func TestInvalidStatesAreIgnored(t *testing.T) {
	for _, garbage := range []string{"x", strings.Repeat("\xff", 185), "\x01" + strings.Repeat("\xff", 184), strings.Repeat("\x01", 185+24)} {
		bubble(t, func(t *testing.T) {
			s := &script{replies: []reply{{status: 200, header: fields("60", "59", "now+60")}}}
			m := &spoiled{garbage: garbage}
			p := pacer.New(&pacer.Options{Base: s, Shared: m})
			for range 3 {
				if response, err := p.RoundTrip(get(t)); err != nil || response.StatusCode != http.StatusOK {
					t.Errorf("%v, %v", response, err)
				}
			}
		})
	}
}

type spoiled struct{ garbage string }

func (s *spoiled) Update(_ string, change func([]byte) []byte) error {
	change([]byte(s.garbage))
	return nil
}
