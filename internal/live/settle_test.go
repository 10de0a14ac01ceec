package live_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/policyfile"
)

// A slow writer leaves half of a policy in the file for less than two seconds, after changes of
// which each could make the half look complete.
func TestAnUnfinishedTextNeverComesIntoForce(t *testing.T) {
	_, second := whole(2)
	half, all := whole(3)
	for name, begin := range map[string]func(f *fixture){
		"after a whole text in place": func(f *fixture) {
			f.write(f.path, second)
			time.Sleep(500 * time.Millisecond)
			f.write(f.path, half)
		},
		"after two whole texts in place": func(f *fixture) {
			f.write(f.path, text(4))
			time.Sleep(700 * time.Millisecond)
			f.write(f.path, second)
			time.Sleep(700 * time.Millisecond)
			f.write(f.path, half)
		},
		"in a new file": func(f *fixture) {
			open, err := os.Open(f.path) // so that the new file is another one
			if err != nil {
				f.t.Fatal(err)
			}
			f.t.Cleanup(func() { open.Close() })
			if err := os.Remove(f.path); err != nil {
				f.t.Fatal(err)
			}
			f.write(f.path, half)
		},
		"in a file that was just renamed": func(f *fixture) {
			f.replace(second)
			f.write(f.path, half)
		},
		"in a file that was renamed and seen": func(f *fixture) {
			f.replace(second)
			time.Sleep(300 * time.Millisecond)
			f.write(f.path, half)
		},
		"in a new file after a renamed one": func(f *fixture) {
			f.replace(second)
			time.Sleep(300 * time.Millisecond)
			if err := os.Remove(f.path); err != nil {
				f.t.Fatal(err)
			}
			f.write(f.path, half)
		},
	} {
		for _, pause := range []time.Duration{700 * time.Millisecond, 1300 * time.Millisecond, 1900 * time.Millisecond} {
			t.Run(fmt.Sprint(name, ", pause ", pause), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := inForce(t, nil)
					looks(3)
					begin(f)
					for _, text := range []string{all, ""} {
						time.Sleep(pause)
						synctest.Wait()
						if s := f.State(); len(s.Policy.Limiters) == 1 && s.Policy.Limiters[0].Windows[0].Limit == 3 {
							t.Fatalf("half is in force; log:\n%s", f.log.String())
						}
						if text != "" {
							f.write(f.path, text)
						}
					}
					looks(3)
					if s := f.State(); string(s.Text) != all {
						t.Errorf("in force is\n%s", s.Text)
					}
				})
			})
		}
	}
}

// A policy that is replaced before it is in force never comes into force.
func TestAWithdrawnPolicyNeverComesIntoForce(t *testing.T) {
	for name, change := range ways {
		for _, pause := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, 800 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " after ", pause), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := inForce(t, nil)
					looks(3)
					change(f, 2, text(2))
					time.Sleep(pause)
					change(f, 3, text(3))
					looks(3)
					f.want(3, live.File, 1)
				})
			})
		}
	}
}

// If files are renamed into place at any rate, only a file that is still there comes into force.
func TestARenamedFileComesIntoForceWhileItIsThere(t *testing.T) {
	for _, way := range []string{"renamed into place", "behind a link that is swapped"} {
		for _, every := range []time.Duration{71 * time.Millisecond, 501 * time.Millisecond, 1001 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s every %v", way, every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var f *fixture
					f = inForce(t, func(o *live.Options) {
						o.Before = func(c live.Change) error {
							there, err := os.ReadFile(f.path)
							if err != nil {
								return err
							}
							p, err := policyfile.Parse(f.path, there)
							if err != nil {
								return err
							}
							if is := live.Version(p.Policy); is != c.Version {
								t.Errorf("%s comes into force, the file has %s", c.Version, is)
							}
							return nil
						}
					})
					looks(3)
					time.Sleep(500 * time.Microsecond) // no change coincides with a look
					neverBehind(t, f, ways[way], every, int(8*time.Second/every))
				})
			})
		}
	}
}

// Renaming and writing are also distinguished after the directory was replaced.
func TestARenamingIsSeenInANewFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		looks(3)
		folder := filepath.Dir(f.path)
		if err := os.Rename(folder, folder+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		f.write(f.path, text(2))
		looks(1)
		f.want(1, live.File, 0)
		looks(2)
		f.want(2, live.File, 1)
		f.replace(text(3))
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		f.want(3, live.File, 2)
	})
}
