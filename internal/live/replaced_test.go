package live_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/live"
)

// ways are how a file gets another text.
var ways = map[string]func(f *fixture, n int, text string){
	"renamed into place": func(f *fixture, _ int, text string) { f.replace(text) },
	"written in place":   func(f *fixture, _ int, text string) { f.write(f.path, text) },
	"removed and written anew": func(f *fixture, _ int, text string) {
		if err := os.Remove(f.path); err != nil {
			f.t.Fatal(err)
		}
		f.write(f.path, text)
	},
	"behind a link that is swapped": func(f *fixture, n int, text string) {
		dir := filepath.Join(filepath.Dir(f.path), fmt.Sprint("v", n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			f.t.Fatal(err)
		}
		f.write(filepath.Join(dir, "policy.yaml"), text)
		if err := errors.Join(os.Symlink(filepath.Join(dir, "policy.yaml"), f.path+"~"), os.Rename(f.path+"~", f.path)); err != nil {
			f.t.Fatal(err)
		}
		if n > 2 { // as Kubernetes does
			if err := os.RemoveAll(filepath.Join(filepath.Dir(f.path), fmt.Sprint("v", n-1))); err != nil {
				f.t.Fatal(err)
			}
		}
	},
}

// If a file is replaced every second, in any phase, the policy in force is at most three seconds
// behind.
func TestAFileThatIsReplacedEverySecondComesIntoForce(t *testing.T) {
	for name, change := range ways {
		for _, every := range []time.Duration{time.Second, 1017 * time.Millisecond, 980 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " every ", every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := inForce(t, nil)
					looks(3)
					time.Sleep(333 * time.Millisecond)
					neverBehind(t, f, change, every, 30)
				})
			})
		}
	}
}

// A file that is renamed into place is complete, so the rate does not matter, and neither does the
// end of the last line.
func TestAFileThatIsRenamedIntoPlaceAtAnyRateComesIntoForce(t *testing.T) {
	for _, way := range []string{"renamed into place", "behind a link that is swapped"} {
		for _, every := range []time.Duration{70 * time.Millisecond, 500 * time.Millisecond, time.Second} {
			for _, end := range []string{"\n", ""} {
				t.Run(fmt.Sprintf("%s every %v, ended by %q", way, every, end), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := inForce(t, nil)
						looks(3)
						neverBehind(t, f, func(f *fixture, n int, text string) {
							ways[way](f, n, strings.TrimSuffix(text, "\n")+end)
						}, every, int(8*time.Second/every))
					})
				})
			}
		}
	}
}

// A text that is written again and again, as by a tool that does not check for changes, comes into
// force once.
func TestTheSameNewTextWrittenEverySecondComesIntoForce(t *testing.T) {
	for name, change := range ways {
		for _, end := range []string{"\n", ""} {
			t.Run(fmt.Sprintf("%s, ended by %q", name, end), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := inForce(t, nil)
					looks(3)
					for i := range 10 {
						change(f, i+2, strings.TrimSuffix(text(2), "\n")+end)
						looks(1)
						if i == 2 {
							f.want(2, live.File, 1)
						}
					}
					f.want(2, live.File, 1)
				})
			})
		}
	}
}

// neverBehind changes the file n times, and checks that each text, or a later one, is in force
// three seconds later.
func neverBehind(t *testing.T, f *fixture, change func(f *fixture, n int, text string), every time.Duration, n int) {
	t.Helper()
	var written []time.Time
	for i := range n {
		change(f, i+2, text(i+2))
		written = append(written, time.Now())
		time.Sleep(every)
		synctest.Wait()
		limit := f.State().Policy.Limiters[0].Windows[0].Limit
		for j, at := range written {
			if time.Since(at) >= 3*time.Second && limit < int64(j+2) {
				t.Fatalf("%v after %d was written %d is in force; log:\n%s", time.Since(at), j+2, limit, f.log.String())
			}
		}
	}
	if strings.Contains(f.log.String(), "cannot be read") {
		t.Errorf("it is said to be unreadable:\n%s", f.log.String())
	}
	looks(3)
	if got := f.State().Policy.Limiters[0].Windows[0].Limit; got != int64(n+1) {
		t.Errorf("the last of %d is not in force, but %d", n+1, got)
	}
}

// whole returns a policy, and its first half, which is a valid policy too.
func whole(limit int) (half, all string) {
	half = text(limit)
	return half, half + "  - name: more\n    routes: [/more]\n    windows: [1 per minute by ip]\n"
}

// A slow writer leaves half of a policy in the file for a while. The half never comes into force,
// neither once nor in a loop.
func TestHalfAPolicyNeverComesIntoForce(t *testing.T) {
	for _, pause := range []time.Duration{100 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond, 1900 * time.Millisecond} {
		for _, cut := range []int{0, 1} { // at the end of a line, and within one
			t.Run(fmt.Sprintf("%v, cut %d", pause, cut), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := inForce(t, nil)
					looks(3)
					for i := range 10 {
						half, all := whole(i + 2)
						f.write(f.path, "")
						f.write(f.path, half[:len(half)-cut])
						time.Sleep(pause)
						f.write(f.path, all)
						time.Sleep(pause)
						synctest.Wait()
						if s := f.State(); s.Policy.Limiters[0].Windows[0].Limit > 1 && len(s.Policy.Limiters) != 2 {
							t.Fatalf("half of %d is in force; log:\n%s", i+2, f.log.String())
						}
					}
					looks(3)
					if s := f.State(); len(s.Policy.Limiters) != 2 || s.Policy.Limiters[0].Windows[0].Limit != 11 {
						t.Errorf("in force is\n%s", s.Text)
					}
					if strings.Contains(f.log.String(), "is rejected") {
						t.Errorf("half of one was judged:\n%s", f.log.String())
					}
				})
			})
		}
	}
}

// Half of a policy that was written in place is not taken for complete because another file has
// replaced it.
func TestHalfAPolicyThatWasRenamedAwayNeverComesIntoForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		looks(3)
		half, all := whole(2)
		for i := range 20 {
			f.write(f.path, half)
			time.Sleep(300 * time.Millisecond)
			f.replace(all + strings.Repeat("#\n", i))
			time.Sleep(300 * time.Millisecond)
			synctest.Wait()
			if s := f.State(); s.Policy.Limiters[0].Windows[0].Limit > 1 && len(s.Policy.Limiters) != 2 {
				t.Fatalf("half is in force; log:\n%s", f.log.String())
			}
		}
		looks(3)
		if n := len(f.State().Policy.Limiters); n != 2 {
			t.Errorf("%d limiters are in force", n)
		}
	})
}

// If the policy in force is rewritten in place, it is a shorter policy for a while.
func TestARewritingOfThePolicyInForceDoesNotCutIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		half, all := whole(2)
		f.replace(all)
		looks(3)
		f.want(2, live.File, 1)
		for range 5 {
			f.write(f.path, half)
			time.Sleep(1900 * time.Millisecond)
			f.write(f.path, all)
			time.Sleep(1900 * time.Millisecond)
		}
		looks(3)
		f.want(2, live.File, 1)
		f.write(f.path, half) // intended
		looks(3)
		f.want(2, live.File, 2)
	})
}

func TestAFileThatKeepsChangingIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		looks(3)
		for i := range 80 {
			f.write(f.path, text(2)+strings.Repeat("#\n", i))
			time.Sleep(100 * time.Millisecond)
		}
		f.want(1, live.File, 0)
		last := f.State().Last
		if last.OK || !strings.Contains(last.Problems[0].Message, "rename") || strings.Count(f.log.String(), "cannot be read") != 1 {
			t.Fatalf("%+v, log:\n%s", last, f.log.String())
		}
		f.want(1, live.File, 0) // not the last text, which may still grow
		looks(3)
		f.want(2, live.File, 1)
		if !f.State().Last.OK {
			t.Errorf("%+v", f.State().Last)
		}
		for range 80 {
			f.write(f.path, text(3))
			time.Sleep(50 * time.Millisecond)
			f.write(f.path, text(4))
			time.Sleep(50 * time.Millisecond)
		}
		f.replace(string(f.State().Text)) // unchanged
		looks(3)
		f.want(2, live.File, 1)
		if !f.State().Last.OK {
			t.Errorf("%+v", f.State().Last)
		}
	})
}
