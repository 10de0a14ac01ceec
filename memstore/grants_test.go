//go:build linux

package memstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

func (f *file) grants() string { return f.path + ".grants" }

func (f *file) grant(s *memstore.Store, who string, limit, seconds int64) {
	f.Helper()
	g := weir.Grant{Limit: limit, Until: f.clock.Now().Unix() + seconds}
	if err := s.Grant(f.Context(), []weir.Charge{granted(who)}, []weir.Grant{g}); err != nil {
		f.Fatal(err)
	}
}

func granted(who string) weir.Charge { return charge("three", 3, day, who) }

// has checks the limit granted to who; 0 if there is no grant.
func (f *file) has(s *memstore.Store, who string, want int64) {
	f.Helper()
	if g := limitOf(s, who); g != want {
		f.Errorf("%s is granted %d, want %d", who, g, want)
	}
}

func limitOf(s *memstore.Store, who string) int64 {
	var g [1]weir.Grant
	s.Granted([]weir.Charge{granted(who)}, g[:])
	return g[0].Limit
}

func TestGrantsOutliveTheProcess(t *testing.T) {
	f := newFile(t)
	s := f.open()
	if _, err := os.Stat(f.grants()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of grants before there is one: %v", err)
	}
	f.grant(s, "a", 50, 3600)
	f.grant(s, "b", 60, 60)
	f.grant(s, "c", 70, 3600)
	f.grant(s, "c", 0, 0)
	if info, err := os.Stat(f.grants()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	f.close(s)
	f.clock.Advance(30 * time.Second)
	s = f.open()
	f.has(s, "a", 50)
	f.has(s, "b", 60)
	f.has(s, "c", 0)
	f.close(s)
	f.clock.Advance(30 * time.Second)
	s = f.open()
	f.has(s, "a", 50)
	f.has(s, "b", 0)
	f.grant(s, "a", 0, 0)
	f.close(s)
	s = f.open()
	f.has(s, "a", 0)
	if f.log.Len() > 0 {
		t.Errorf("there was no error, and the log has %s", &f.log)
	}
}

// A process killed during a write leaves a part of the next file. The current file
// is valid, and the next write succeeds.
func TestAHalfWrittenFileOfGrantsIsIgnored(t *testing.T) {
	f := newFile(t)
	s := f.open()
	f.grant(s, "a", 50, 3600)
	f.close(s)
	if err := os.WriteFile(f.grants()+".new", []byte("weirgrt\nhalf"), 0o644); err != nil {
		t.Fatal(err)
	}
	s = f.open()
	f.has(s, "a", 50)
	f.grant(s, "b", 60, 3600)
	f.close(s)
	if info, err := os.Stat(f.grants()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	s = f.open()
	f.has(s, "a", 50)
	f.has(s, "b", 60)
	if names, _ := filepath.Glob(f.grants() + ".*"); len(names) > 0 || f.log.Len() > 0 {
		t.Errorf("left behind: %q; the log has %s", names, &f.log)
	}
}

// If the file of grants is not complete, it is set aside with a log line. The
// counts are unchanged.
func TestAnInvalidFileOfGrantsIsSetAside(t *testing.T) {
	f := newFile(t)
	s := f.open()
	f.grant(s, "a", 50, 3600)
	f.grant(s, "b", 60, 3600)
	take(t, s, granted("a"))
	f.close(s)
	valid, err := os.ReadFile(f.grants())
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string][]byte{
		"nothing": {}, "a note": []byte("to do: nothing\n"), "zeros": make([]byte, len(valid)),
		"twice": append(bytes.Clone(valid), valid...), "too much": make([]byte, 1<<20),
	}
	for at := range valid {
		b := bytes.Clone(valid)
		b[at] ^= 0x10
		bad[fmt.Sprint("byte ", at)] = b
		if at%5 == 0 {
			bad[fmt.Sprint("cut at ", at)] = valid[:at]
		}
	}
	count := int64(1)
	for what, b := range bad {
		if err := os.WriteFile(f.grants(), b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := f.setAside(what)
		f.has(s, "a", 0)
		f.has(s, "b", 0)
		count++
		if r := take(t, s, charge("three", weir.MaxLimit, day, "a")); r.Used[0].Count != count {
			t.Fatalf("%s: the counts have changed: %+v, want %d", what, r.Used[0], count)
		}
		f.close(s)
	}
	if err := os.Mkdir(f.grants(), 0o700); err != nil {
		t.Fatal(err)
	}
	f.close(f.setAside("a folder"))
	if err := unix.Mkfifo(f.grants(), 0o600); err != nil {
		t.Fatal(err)
	}
	s = f.setAside("a pipe")
	f.grant(s, "a", 50, 3600)
	f.has(s, "a", 50)
}

// setAside opens the store, and checks that the file of grants was set aside.
func (f *file) setAside(what string) *memstore.Store {
	f.Helper()
	f.log.Reset()
	s := f.open()
	names, _ := filepath.Glob(f.grants() + ".set-aside-*")
	if _, err := os.Lstat(f.grants()); len(names) != 1 || !errors.Is(err, os.ErrNotExist) || strings.Count(f.log.String(), "set aside") != 1 {
		f.Fatalf("%s: set aside: %q, %v; the log has %s", what, names, err, &f.log)
	}
	if err := os.Remove(names[0]); err != nil {
		f.Fatal(err)
	}
	return s
}

// Grants name callers by a hash with a key that is stored with the counts. Without
// those counts, the grants match no caller.
func TestGrantsOfOtherCountsAreDropped(t *testing.T) {
	f := newFile(t)
	s := f.open()
	f.grant(s, "a", 50, 3600)
	f.close(s)
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	s = f.open()
	f.has(s, "a", 0)
	if _, err := os.Stat(f.grants()); !errors.Is(err, os.ErrNotExist) || strings.Count(f.log.String(), "dropped") != 1 {
		t.Errorf("%v; the log has %s", err, &f.log)
	}
	f.grant(s, "a", 60, 3600)
	f.close(s)
	f.has(f.open(), "a", 60)
}

func TestAGrantThatCannotBeWrittenIsAnError(t *testing.T) {
	f := newFile(t)
	s := f.open()
	f.grant(s, "a", 50, 3600)
	before, err := os.ReadFile(f.grants())
	if err != nil {
		t.Fatal(err)
	}
	inTheWay := filepath.Join(f.grants()+".new", "a file")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"a", "b"} {
		if err := s.Grant(t.Context(), []weir.Charge{granted(who)}, []weir.Grant{{Limit: 60, Until: f.clock.Now().Unix() + 60}}); err == nil {
			t.Errorf("%s: Grant returned no error", who)
		}
	}
	f.has(s, "a", 50)
	f.has(s, "b", 0)
	if after, err := os.ReadFile(f.grants()); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed: %v", err)
	}
	if err := os.RemoveAll(f.grants() + ".new"); err != nil {
		t.Fatal(err)
	}
	f.grant(s, "b", 60, 3600)
	f.has(s, "b", 60)
}

const granters = 40 // callers with grants, in turn

// A process is killed at random moments, including during a write. Every
// acknowledged grant is in the file, and every grant in the file was given.
func TestAKillLosesNoAcknowledgedGrant(t *testing.T) {
	if e, out, ok := sent(t); ok {
		s, err := memstore.New(e.options())
		if err != nil {
			t.Fatal(err)
		}
		for n := int64(e.Round) << 20; ; n++ {
			if err := s.Grant(t.Context(), []weir.Charge{granted(fmt.Sprint(n % granters))}, []weir.Grant{{Limit: n + 1, Until: e.Now + 3600}}); err != nil {
				t.Fatal(err)
			}
			writeReport(t, out, n)
		}
	}
	random := rand.New(rand.NewPCG(*killSeed, 1))
	e := errand{Run: "grant", File: filepath.Join(t.TempDir(), "counters"), Now: 1_800_000_000, Memory: memstore.MinMemory}
	acknowledged := map[int64]int64{} // the last n by caller
	for e.Round = range 8 {
		c := start(t, e)
		var n int64
		var timer *time.Timer
		for c.read(&n) {
			if timer == nil {
				timer = time.AfterFunc(time.Duration(random.IntN(60_000))*time.Microsecond, c.kill)
			}
			acknowledged[n%granters] = n
		}
		c.end()
		s, err := memstore.New(e.options())
		if err != nil {
			t.Fatal(err)
		}
		for who, last := range acknowledged {
			got := limitOf(s, fmt.Sprint(who)) - 1
			if got != last && (got != n+1 || got%granters != who) {
				t.Errorf("round %d: %d was granted %d at last, and has %d; the last of all was %d", e.Round, who, last, got, n)
			}
			acknowledged[who] = got
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// For any content of the file, the store opens, and its grants are valid.
func FuzzGrants(f *testing.F) {
	dir := f.TempDir()
	o := memstore.Options{Memory: memstore.MinMemory, File: filepath.Join(dir, "counters"), Now: func() time.Time { return time.Unix(1_800_000_000, 0) }}
	s, err := memstore.New(o)
	if err != nil {
		f.Fatal(err)
	}
	who := []weir.Charge{granted("a"), granted("b")}
	if err := s.Grant(f.Context(), who, []weir.Grant{{Limit: 5, Until: 1_800_000_100}, {Limit: 6, Until: 1_900_000_000}}); err != nil {
		f.Fatal(err)
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	valid, err := os.ReadFile(o.File + ".grants")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add(valid[:24])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(o.File+".grants", b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := memstore.New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		grants := make([]weir.Grant, 2)
		if s.Granted(who, grants) && !bytes.Equal(b, valid) {
			t.Errorf("%q grants %+v", b, grants)
		}
		aside, _ := filepath.Glob(o.File + ".grants.set-aside-*")
		for _, name := range aside {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	})
}
