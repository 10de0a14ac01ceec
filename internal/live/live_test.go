package live_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/logtest"
	"github.com/weirlimit/weir/policyfile"
)

// text returns a policy file with one limiter of that limit.
func text(limit int) string {
	return fmt.Sprintf("limiters:\n  - name: all\n    routes: [/*]\n    windows: [%d per minute by ip]\n", limit)
}

// A fixture is a policy in force that records its swaps.
type fixture struct {
	*live.Policy
	t     *testing.T
	path  string
	mu    sync.Mutex
	swaps []int64 // the limits that were put in force
	log   logtest.Buffer
}

func (f *fixture) swap(p weir.Policy) error {
	if problems := p.Problems(nil); problems != nil {
		return &weir.PolicyError{Policy: p, Problems: problems}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.swaps = append(f.swaps, p.Limiters[0].Windows[0].Limit)
	return nil
}

// inForce starts with a file of limit 1, and watches it until the test ends.
func inForce(t *testing.T, change func(*live.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, path: filepath.Join(t.TempDir(), "policy.yaml")}
	f.write(f.path, text(1))
	start, err := live.Load(policyfile.Reader{}, f.path)
	if err != nil {
		t.Fatal(err)
	}
	o := live.Options{Log: slog.New(slog.NewTextHandler(&f.log, nil))}
	if change != nil {
		change(&o)
	}
	if f.Policy, err = live.New(start, f.swap, o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); f.Watch(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return f
}

func (f *fixture) write(path, text string) {
	f.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// replace renames another file into the policy's place, as editors do.
func (f *fixture) replace(text string) {
	f.t.Helper()
	f.write(f.path+"~", text)
	if err := os.Rename(f.path+"~", f.path); err != nil {
		f.t.Fatal(err)
	}
}

// looks lets n seconds pass, with several looks at the file in each.
func looks(n int) { time.Sleep(time.Duration(n) * time.Second); synctest.Wait() }

// want checks the limit in force, its source, and the number of swaps.
func (f *fixture) want(limit int64, source string, swaps int) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.State()
	if got := s.Policy.Limiters[0].Windows[0].Limit; got != limit || s.Source != source || len(f.swaps) != swaps {
		f.t.Fatalf("limit %d from %q after %d swaps, want %d from %q after %d; log:\n%s", got, s.Source, len(f.swaps), limit, source, swaps, f.log.String())
	}
	if s.Version != live.Version(s.Policy) || len(s.Version) != 8 || s.Path != f.path {
		f.t.Fatalf("version %q, path %q", s.Version, s.Path)
	}
}

func TestAChangedFileComesIntoForceOnceItSettles(t *testing.T) {
	for name, change := range map[string]func(f *fixture){
		"written in place":   func(f *fixture) { f.write(f.path, text(2)) },
		"renamed into place": func(f *fixture) { f.replace(text(2)) },
		"removed, and written anew": func(f *fixture) {
			if err := os.Remove(f.path); err != nil {
				t.Fatal(err)
			}
			looks(2)
			f.write(f.path, text(2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := inForce(t, nil)
				looks(3)
				f.want(1, live.File, 0)
				change(f)
				changed := time.Now()
				time.Sleep(900 * time.Millisecond)
				f.want(1, live.File, 0)
				looks(2)
				f.want(2, live.File, 1)
				s := f.State()
				if s.By != live.Watch || !s.Last.OK || s.Last.By != live.Watch || s.Since.Sub(changed) < time.Second || string(s.Text) != text(2) || s.Lines[0] != 2 {
					t.Errorf("%+v", s)
				}
				looks(30)
				f.want(2, live.File, 1)
			})
		})
	}
}

// Kubernetes mounts a ConfigMap as policy.yaml → ..data/policy.yaml, ..data → a directory, and
// swaps ..data.
func TestALinkAboveTheFileMayBeSwapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := &fixture{t: t, path: filepath.Join(dir, "policy.yaml")}
		version := func(limit int) {
			sub := filepath.Join(dir, fmt.Sprint("v", limit))
			if err := os.Mkdir(sub, 0o700); err != nil {
				t.Fatal(err)
			}
			f.write(filepath.Join(sub, "policy.yaml"), text(limit))
			if err := errors.Join(os.Symlink(sub, filepath.Join(dir, "..new")), os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data"))); err != nil {
				t.Fatal(err)
			}
		}
		version(1)
		if err := os.Symlink(filepath.Join("..data", "policy.yaml"), f.path); err != nil {
			t.Fatal(err)
		}
		start, err := live.Load(policyfile.Reader{}, f.path)
		if err != nil {
			t.Fatal(err)
		}
		if f.Policy, err = live.New(start, f.swap, live.Options{Log: slog.New(slog.NewTextHandler(&f.log, nil))}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.Watch(ctx)
		looks(2)
		version(2)
		looks(2)
		f.want(2, live.File, 1)
	})
}

// A change that leaves size and time unchanged is found by comparing the text, once a second.
func TestAChangeThatDoesNotShowIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		looks(2)
		info, err := os.Stat(f.path)
		if err != nil {
			t.Fatal(err)
		}
		f.write(f.path, text(2))
		if err := os.Chtimes(f.path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		looks(12)
		f.want(2, live.File, 1)
	})
}

func TestAFileThatIsBeingWrittenIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		whole := text(2) + "#" + strings.Repeat("x", 100) + "\n"
		for n := range 20 {
			// a shorter text would often be no policy, and be decided as such
			f.write(f.path, whole[:len(whole)-20+n])
			looks(1)
			f.want(1, live.File, 0)
		}
		f.write(f.path, whole)
		looks(3)
		f.want(2, live.File, 1)
	})
}

func TestTheSameTextAgainIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		for range 3 {
			f.replace(text(1))
			looks(3)
		}
		f.want(1, live.File, 0)
		if f.log.String() != "" || f.State().Last.By != live.Start {
			t.Errorf("log %q, last attempt %+v", f.log.String(), f.State().Last)
		}
	})
}

func TestABadPolicyIsRefusedWithAllItsProblemsAndToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		f.replace("limiters:\n  - name: All\n    windows: [0 per minute by ip]\n")
		looks(40)
		f.want(1, live.File, 0)
		last := f.State().Last
		if last.OK || len(last.Problems) != 2 || last.Problems[0].Line != 2 || last.Problems[1].Line != 3 || last.Problems[0].File != f.path {
			t.Fatalf("%+v", last)
		}
		if n := strings.Count(f.log.String(), "is rejected"); n != 1 || strings.Count(f.log.String(), "policy.yaml:3:") != 1 {
			t.Errorf("told %d times:\n%s", n, f.log.String())
		}
		f.replace(text(3))
		looks(2)
		f.want(3, live.File, 1)
		if last := f.State().Last; !last.OK || last.Problems != nil {
			t.Errorf("%+v", last)
		}
	})
}

func TestTheLogHasTheHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		f.replace("limiters:\n  - name: all\n    routes: [/*]\n    windows: 5 per minute by ip\n")
		looks(4)
		if log := f.log.Take(); !strings.Contains(log, "policy.yaml:4:") || !strings.Contains(log, `hint="put it in brackets: [5 per minute by ip]"`) {
			t.Errorf("the log of a rejected policy has no hint:\n%s", log)
		}
		f.replace("limiters:\n  - name: all\n    routes: [/*]\n    windows: [5 per minute by header:X-User]\n    chosen: yes\n")
		looks(4)
		if log := f.log.Take(); !strings.Contains(log, "with a warning") || !strings.Contains(log, `hint="count by ip+header:X-User, `) {
			t.Errorf("the log of a policy with a warning has no hint:\n%s", log)
		}
	})
}

func TestAfterARefusalTheOldTextIsNoSwapAndNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		f.replace("limiters: []\n")
		looks(3)
		f.replace(text(1))
		looks(3)
		f.want(1, live.File, 0)
		if last := f.State().Last; !last.OK {
			t.Errorf("%+v", last)
		}
	})
}

func TestAFileMayBeGoneForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		looks(2)
		aside := f.path + ".aside"
		for _, test := range []struct {
			gone int
			told int
		}{{2, 0}, {30, 1}} {
			if err := os.Rename(f.path, aside); err != nil {
				t.Fatal(err)
			}
			looks(test.gone)
			if n := strings.Count(f.log.String(), "cannot be read"); n != test.told || f.State().Last.OK != (test.told == 0) {
				t.Fatalf("gone for %d looks, told %d times, last %+v", test.gone, n, f.State().Last)
			}
			if err := os.Rename(aside, f.path); err != nil {
				t.Fatal(err)
			}
			looks(2)
			f.want(1, live.File, 0)
			if !f.State().Last.OK {
				t.Errorf("it is back: %+v", f.State().Last)
			}
		}
	})
}

func TestADirectoryInItsPlaceIsNoPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		if err := errors.Join(os.Remove(f.path), os.Mkdir(f.path, 0o700)); err != nil {
			t.Fatal(err)
		}
		looks(5)
		f.want(1, live.File, 0)
		if last := f.State().Last; last.OK || !strings.Contains(last.Problems[0].Message, "not a regular file") {
			t.Errorf("%+v", last)
		}
		if err := f.Reload(t.Context(), "SIGHUP"); err == nil {
			t.Error("a directory was reloaded")
		}
	})
}

func TestAttemptsAreMadeOneAfterAnother(t *testing.T) {
	var swapping sync.Mutex
	told := 0
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	start, err := live.Load(policyfile.Reader{}, path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := live.New(start, func(weir.Policy) error {
		if !swapping.TryLock() {
			t.Error("two swaps at a time")
			return nil
		}
		defer swapping.Unlock()
		return nil
	}, live.Options{Log: slog.New(slog.DiscardHandler), OnState: func(live.State) { told++ }})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				_ = p.Post(t.Context(), live.Author{By: "token ops"}, []byte(text(i+1)))
				_ = p.Reload(t.Context(), "SIGHUP")
				if s := p.State(); s.Version != live.Version(s.Policy) {
					t.Error("a state of two policies")
				}
			}
		})
	}
	all.Wait()
	if told != 320 {
		t.Errorf("told %d times of 320 attempts", told)
	}
}

func TestTheVersionIsTheSameHoweverAPolicyIsWritten(t *testing.T) {
	a, err := policyfile.Parse("a", []byte(text(1)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := policyfile.Parse("b", []byte("# the same\n"+strings.ReplaceAll(text(1), "1 per minute", "1 per 60 seconds")))
	if err != nil {
		t.Fatal(err)
	}
	c, err := policyfile.Parse("c", []byte(text(2)))
	if err != nil {
		t.Fatal(err)
	}
	if live.Version(a.Policy) != live.Version(b.Policy) || live.Version(a.Policy) == live.Version(c.Policy) {
		t.Errorf("%s %s %s", live.Version(a.Policy), live.Version(b.Policy), live.Version(c.Policy))
	}
}
