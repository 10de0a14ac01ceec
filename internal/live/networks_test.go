package live_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/policyfile"
)

// naming returns a policy file with one limiter of that limit that denies the networks of files.
func naming(limit int, files ...string) string {
	return text(limit) + "    deny: [\"@" + strings.Join(files, "\", \"@") + "\"]\n"
}

// blocking starts with a policy that names blocked.txt, which blocks 192.0.2.1.
func blocking(t *testing.T) *fixture {
	t.Helper()
	f := inForce(t, nil)
	f.beside("blocked.txt", "192.0.2.1\n")
	f.replace(naming(2, "blocked.txt"))
	looks(3)
	f.blocks("192.0.2.1", true)
	f.blocks("192.0.2.2", false)
	return f
}

// beside writes a file beside the policy's.
func (f *fixture) beside(name, text string) {
	f.t.Helper()
	f.write(filepath.Join(filepath.Dir(f.path), name), text)
}

// blocks checks whether the policy in force denies an address.
func (f *fixture) blocks(addr string, want bool) {
	f.t.Helper()
	got := false
	s := f.State()
	for _, who := range s.Policy.Limiters[0].Deny {
		got = got || who.Networks.Contains(netip.MustParseAddr(addr))
	}
	if got != want {
		f.t.Fatalf("%s is denied: %v; log:\n%s", addr, got, f.log.String())
	}
	if s.Version != live.Version(s.Policy) {
		f.t.Fatalf("version %s, want %s", s.Version, live.Version(s.Policy))
	}
}

// logs returns how often the log has a text.
func (f *fixture) logs(text string) int { return strings.Count(f.log.String(), text) }

func TestAChangedFileOfNetworksComesIntoForceOnceItSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := blocking(t)
		before := f.State()
		f.beside("blocked.txt", "192.0.2.2\n")
		looks(3)
		f.blocks("192.0.2.1", false)
		f.blocks("192.0.2.2", true)
		if s := f.State(); s.Version == before.Version || !s.Last.OK || s.By != live.Watch || string(s.Text) != string(before.Text) {
			t.Errorf("%+v", s)
		}
		if f.logs("the networks of the policy were replaced") != 1 {
			t.Errorf("%s", f.log.String())
		}
		looks(10)
		if f.logs("were replaced") != 1 {
			t.Errorf("a file that has not changed is read again: %s", f.log.String())
		}
	})
}

func TestAFileOfNetworksThatIsBeingWrittenIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := blocking(t)
		all := "192.0.2.1\n"
		for i := range 8 {
			all += "198.51.100." + string(rune('1'+i)) + "\n"
			f.beside("blocked.txt", all)
			looks(1)
			f.blocks("198.51.100.1", false)
			f.blocks("192.0.2.1", true)
		}
		looks(3)
		f.blocks("198.51.100.8", true)
	})
}

func TestALinkToAFileOfNetworksMayBeTurned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		f.beside("v1", "192.0.2.1\n")
		f.beside("v2", "192.0.2.2\n")
		link := filepath.Join(filepath.Dir(f.path), "blocked.txt")
		if err := os.Symlink("v1", link); err != nil {
			t.Fatal(err)
		}
		f.replace(naming(2, "blocked.txt"))
		looks(3)
		f.blocks("192.0.2.1", true)
		if err := os.Symlink("v2", link+"~"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+"~", link); err != nil {
			t.Fatal(err)
		}
		looks(3)
		f.blocks("192.0.2.2", true)
		f.blocks("192.0.2.1", false)
	})
}

func TestABadOrMissingFileOfNetworksKeepsTheLastOneAndIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := blocking(t)
		f.beside("blocked.txt", "192.0.2.2\n10.0.0.1/8\n")
		looks(20)
		f.blocks("192.0.2.1", true)
		f.blocks("192.0.2.2", false)
		if s := f.State(); s.Last.OK || len(s.Last.Problems) != 1 || s.Last.Problems[0].Line != 2 {
			t.Errorf("%+v", s.Last)
		}
		if f.logs("is not valid, and the networks that it had stay") != 1 || f.logs("blocked.txt:2:1:") != 1 {
			t.Errorf("%s", f.log.String())
		}
		path := filepath.Join(filepath.Dir(f.path), "blocked.txt")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		looks(20)
		f.blocks("192.0.2.1", true)
		if f.logs("is not valid, and the networks that it had stay") != 2 || f.State().Last.OK {
			t.Errorf("%s", f.log.String())
		}
		f.beside("blocked.txt", "192.0.2.2\n10.0.0.1/8\n") // as malformed as before
		looks(5)
		f.blocks("192.0.2.1", true)
		if f.State().Last.OK {
			t.Errorf("a malformed file is taken for valid: %s", f.log.String())
		}
		f.beside("blocked.txt", "192.0.2.3\n")
		looks(5)
		f.blocks("192.0.2.3", true)
		if !f.State().Last.OK || f.logs("valid again") != 1 {
			t.Errorf("%+v\n%s", f.State().Last, f.log.String())
		}
	})
}

func TestAPolicyThatNamesABadFileComesIntoForceWhenTheFileIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := blocking(t)
		f.replace(naming(3, "blocked.txt", "later.txt"))
		looks(3)
		f.want(2, live.File, 1)
		if s := f.State(); s.Last.OK || !strings.Contains(s.Last.Problems[0].Message, "@later.txt: ") {
			t.Errorf("%+v", s.Last)
		}
		f.beside("blocked.txt", "192.0.2.9\n") // the policy in force still follows its own file
		looks(3)
		f.blocks("192.0.2.9", true)
		f.beside("later.txt", "foo\n")
		looks(4)
		f.want(2, live.File, 2)
		f.beside("later.txt", "198.51.100.1\n")
		looks(4)
		f.want(3, live.File, 3)
		f.blocks("198.51.100.1", true)
		f.blocks("192.0.2.9", true)
	})
}

func TestReloadReadsTheFilesOfNetworksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := blocking(t)
		f.beside("blocked.txt", "192.0.2.2\n")
		if err := f.Reload(t.Context(), "SIGHUP"); err != nil {
			t.Fatal(err)
		}
		f.blocks("192.0.2.2", true)
		if s := f.State(); s.By != "SIGHUP" || !s.Last.OK {
			t.Errorf("%+v", s)
		}
		f.beside("blocked.txt", "foo\n")
		if err := f.Reload(t.Context(), "SIGHUP"); err == nil || !strings.Contains(err.Error(), `blocked.txt:1:1: "foo" is not an address`) {
			t.Errorf("%v", err)
		}
		f.blocks("192.0.2.2", true)
		f.beside("blocked.txt", "192.0.2.3\n")
		f.write(f.path, "limiters: []\n") // a bad policy does not hold the list up
		if err := f.Reload(t.Context(), "SIGHUP"); err == nil {
			t.Error("a bad policy is accepted")
		}
		f.blocks("192.0.2.3", true)
		if f.State().Last.OK {
			t.Error("the rejected policy is forgotten")
		}
	})
}

func TestAPostedPolicyNamesFilesBesideThePolicyFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		f.beside("blocked.txt", "192.0.2.1\n")
		f.beside("secrets", "hunter2\n")
		for name, want := range map[string]string{
			"../blocked.txt":                      "without a path",
			"/etc/hostname":                       "without a path",
			filepath.Dir(f.path) + "/blocked.txt": "without a path",
			"none.txt":                            "has no such file",
			"secrets":                             "secrets:1:1: not an address",
			".":                                   "without a path",
		} {
			err := f.Post(t.Context(), live.Author{By: "token ops"}, []byte(naming(5, name)))
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if strings.Contains(f.log.String(), "hunter2") {
			t.Errorf("a file that is no list is logged: %s", f.log.String())
		}
		f.want(1, live.File, 0)
		if err := f.Post(t.Context(), live.Author{By: "token ops"}, []byte(naming(5, "blocked.txt"))); err != nil {
			t.Fatal(err)
		}
		f.blocks("192.0.2.1", true)
		f.beside("blocked.txt", "192.0.2.2\n")
		looks(4)
		f.want(5, live.Posted, 2)
		f.blocks("192.0.2.2", true)
	})
}

func TestAPolicyFromNoFileTakesNoFilesOfNetworksByPost(t *testing.T) {
	start, err := live.Parse(policyfile.Reader{}, live.Contract, "built in", []byte(text(1)))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t}
	if f.Policy, err = live.New(start, f.swap, live.Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	if err := f.Post(t.Context(), live.Author{By: "token ops"}, []byte(naming(5, "blocked.txt"))); err == nil || !strings.Contains(err.Error(), "started with a policy file") {
		t.Error(err)
	}
}

// A policy from standard input or a pipe is read once, but its files of networks are watched.
func TestTheFilesOfAStreamAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Chdir(t.TempDir())
		f := &fixture{t: t}
		f.write("blocked.txt", "192.0.2.1\n")
		start, err := live.Parse(policyfile.Reader{}, live.Stream, "standard input", []byte(naming(1, "blocked.txt")))
		if err != nil {
			t.Fatal(err)
		}
		if f.Policy, err = live.New(start, f.swap, live.Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); f.Watch(ctx) }()
		f.blocks("192.0.2.1", true)
		f.write("blocked.txt", "192.0.2.2\n")
		looks(4)
		f.blocks("192.0.2.2", true)
		f.write("blocked.txt", "192.0.2.3\n")
		if err := f.Reload(t.Context(), "SIGHUP"); err != nil {
			t.Error(err)
		}
		f.blocks("192.0.2.3", true)
		cancel()
		<-ended
	})
}

// A list that changed between the start of the process and the start of the watch is found.
func TestAFileThatChangedBeforeTheWatchIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Chdir(t.TempDir())
		f := &fixture{t: t}
		f.write("blocked.txt", "192.0.2.1\n")
		start, err := live.Parse(policyfile.Reader{}, live.Stream, "standard input", []byte(naming(1, "blocked.txt")))
		if err != nil {
			t.Fatal(err)
		}
		f.write("blocked.txt", "")
		if f.Policy, err = live.New(start, f.swap, live.Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); f.Watch(ctx) }()
		looks(4)
		f.blocks("192.0.2.1", false)
		cancel()
		<-ended
	})
}
