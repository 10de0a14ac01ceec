//go:build linux

package memstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

// The store that keeps its counts in a file is held to the same contract.
func TestAFileIsCountedInAsMemoryIs(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
		f := newFile(t)
		f.memory = memstore.DefaultMemory
		return f.open(), f.clock
	})
}

// A file is where a store of a test keeps its counts.
type file struct {
	*testing.T
	path   string
	memory int64
	clock  *storetest.ManualClock
	log    bytes.Buffer
}

func newFile(t *testing.T) *file {
	t.Helper()
	return &file{T: t, path: filepath.Join(t.TempDir(), "counters"), memory: memstore.MinMemory, clock: storetest.StartManualClock()}
}

func (f *file) options() memstore.Options {
	return memstore.Options{Memory: f.memory, Now: f.clock.Now, File: f.path, Name: "a test", Log: slog.New(slog.NewTextHandler(&f.log, nil))}
}

// open opens the store, and closes it when the test ends, unless that was done before.
func (f *file) open() *memstore.Store {
	f.Helper()
	s, err := memstore.New(f.options())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	return s
}

func (f *file) close(s *memstore.Store) {
	f.Helper()
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
}

// stands fails where a window does not stand at count units with so many seconds to go.
func (f *file) stands(s *memstore.Store, c weir.Charge, want, seconds int64) {
	f.Helper()
	u, now := count(f, s, c), f.clock.Now().Unix()
	if u.Count != want || want > 0 && u.Reset-now != seconds {
		f.Errorf("key %q stands at %d with %d s to go, want %d with %d", c.Key, u.Count, u.Reset-now, want, seconds)
	}
}

// A restart moves no count and no reset, wherever in their windows the keys are.
func TestARestartKeepsCountsAndResets(t *testing.T) {
	f := newFile(t)
	s := f.open()
	minute, hour, spent := charge("minute", 10, 60, "a"), charge("hour", 10, 3600, "a"), charge("hour", 2, 3600, "b")
	take(t, s, minute, hour)
	f.clock.Advance(10 * time.Second)
	take(t, s, minute, spent)
	take(t, s, spent)
	f.close(s)

	f.clock.Advance(20 * time.Second)
	s = f.open()
	f.stands(s, minute, 2, 30)
	f.stands(s, hour, 1, 3570)
	if take(t, s, spent).Allowed || take(t, s, hour, spent).Allowed {
		t.Error("a restart gave a spent key its budget back")
	}
	take(t, s, minute)
	f.close(s)

	f.clock.Advance(30 * time.Second) // to the reset of the minute
	s = f.open()
	f.stands(s, minute, 0, 0)
	f.stands(s, hour, 1, 3540)
	f.stands(s, spent, 2, 3550)
	if f.log.Len() > 0 {
		t.Errorf("restarts were worth a line: %s", &f.log)
	}
}

// Where the machine's clock was set back while no process ran, counts stay and a window ends at
// most one length from now.
func TestARestartOnAClockThatWasSetBackKeepsTheCount(t *testing.T) {
	f := newFile(t)
	s := f.open()
	minute, hour := charge("minute", 1, 60, "a"), charge("hour", 1, 3600, "a")
	take(t, s, minute, hour)
	f.close(s)
	f.clock.Advance(-24 * time.Hour)
	s = f.open()
	f.stands(s, minute, 1, 60)
	f.stands(s, hour, 1, 3600)
	if take(t, s, minute).Allowed || take(t, s, hour).Allowed {
		t.Error("a clock that was set back gave a spent key its budget back")
	}
	f.clock.Advance(time.Minute)
	f.stands(s, minute, 0, 0)
	f.stands(s, hour, 1, 3540)
}

// After a day in which no process ran, everything is restored, and the room is there again.
func TestARestartAfterADayFindsEverythingRestored(t *testing.T) {
	f := newFile(t)
	s := f.open()
	n := int(2 * s.Stats().Capacity)
	for i := range n {
		take(t, s, charge("hour", 1, 3600, fmt.Sprint(i)))
	}
	f.close(s)
	f.clock.Advance(24 * time.Hour)
	s = f.open()
	for i := range n / 4 {
		if !take(t, s, charge("hour", 1, 3600, fmt.Sprint(i))).Allowed {
			t.Fatalf("a day later key %d is refused; the store holds %+v", i, s.Stats())
		}
	}
}

// Two processes would each count for themselves: the second one is told who the first is, until
// that one is gone.
func TestAFileThatIsHeldIsRefusedAndSaysByWhom(t *testing.T) {
	if e, out, ok := sent(t); ok {
		s, err := memstore.New(e.options())
		if err != nil {
			t.Fatal(err)
		}
		say(t, out, take(t, s, charge("held", 5, day, "a")).Used[0].Count)
		_, _ = io.Copy(io.Discard, os.Stdin) // which ends when the parent is gone
		return
	}
	f := newFile(t)
	e := errand{Run: "hold", File: f.path, Memory: f.memory, Now: f.clock.Now().Unix()}
	c := start(t, e)
	var told int64
	if !c.read(&told) || told != 1 {
		c.end()
	}
	for range 3 {
		f.refused(e.name(), c.cmd.Process.Pid)
	}
	c.kill()
	c.end()
	s := f.open()
	f.stands(s, charge("held", 5, day, "a"), 1, day)
	f.refused("a test", os.Getpid())
	f.close(s)
	f.close(f.open())
}

// refused fails where the file opens, or the error does not say who has it.
func (f *file) refused(name string, pid int) {
	f.Helper()
	_, err := memstore.New(f.options())
	var inUse *memstore.InUseError
	if !errors.As(err, &inUse) || *inUse != (memstore.InUseError{File: f.path, Name: name, PID: pid}) {
		f.Fatalf("a file that %q (%d) holds gave %#v", name, pid, err)
	}
	for _, want := range []string{name, strconv.Itoa(pid), f.path} {
		if !strings.Contains(err.Error(), want) {
			f.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

// Another name for the file, or a lock file that somebody removed, lets no second one in either.
func TestAFileThatIsHeldIsRefusedByAnyName(t *testing.T) {
	f := newFile(t)
	f.open()
	if err := os.Remove(f.path + ".lock"); err != nil {
		t.Fatal(err)
	}
	other := &file{T: t, path: filepath.Join(t.TempDir(), "counters"), memory: f.memory, clock: f.clock}
	if err := os.Symlink(f.path, other.path); err != nil {
		t.Fatal(err)
	}
	for _, again := range []*file{f, other} {
		var held *memstore.InUseError
		if _, err := memstore.New(again.options()); !errors.As(err, &held) {
			t.Errorf("%s: %v", again.path, err)
		}
	}
}

// After Close a take is an error, and nothing is counted.
func TestAClosedStoreRefusesToCount(t *testing.T) {
	f := newFile(t)
	s := f.open()
	f.close(s)
	var r weir.Receipt
	if err := s.Take(t.Context(), []weir.Charge{charge("a", 1, 60, "a")}, &r); !errors.Is(err, memstore.ErrClosed) {
		t.Errorf("a take of a closed store gave %v", err)
	}
}

// Where the file cannot be, the error says where and why.
func TestAFileThatCannotBeIsAClearError(t *testing.T) {
	dir := t.TempDir()
	regular := filepath.Join(dir, "regular")
	if err := os.WriteFile(regular, []byte("a regular file"), 0o600); err != nil {
		t.Fatal(err)
	}
	directory := filepath.Join(dir, "directory")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	for what, path := range map[string]string{
		"below a regular file":       filepath.Join(regular, "counters"),
		"in no directory":            filepath.Join(dir, "none", "counters"),
		"a directory":                directory,
		"in a directory of readings": "/proc/counters", // as a read-only directory, for root too
	} {
		s, err := memstore.New(memstore.Options{File: path})
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: it opened", what)
		} else if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error does not name %s: %v", what, path, err)
		}
	}
	if text, err := os.ReadFile(regular); err != nil || string(text) != "a regular file" {
		t.Errorf("the regular file now holds %q (%v)", text, err)
	}
}

// The counts tell who called, as little as a hash does: nobody but the owner reads them.
func TestTheFileIsItsOwnersAlone(t *testing.T) {
	f := newFile(t)
	f.open()
	files, err := os.ReadDir(filepath.Dir(f.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if info, err := file.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v (%v)", file.Name(), info.Mode(), err)
		}
	}
}

// written returns the bytes of a file in which 500 keys have spent 2 of 3, and the options it was
// written with.
func written(t *testing.T) (*file, []byte) {
	t.Helper()
	f := newFile(t)
	s := f.open()
	for i := range 500 {
		c := threeADay(i)
		c.Cost = 2
		take(t, s, c)
	}
	f.close(s)
	b, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	return f, b
}

func threeADay(i int) weir.Charge { return charge("three", 3, day, fmt.Sprint("address ", i), "agent") }

// What is not a file of counts, or no longer one, is set aside with a line about it or refused;
// never trusted, never lost.
func TestAFileThatIsNotOneIsSetAsideOrRefused(t *testing.T) {
	valid, b := written(t)
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, len(b))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	text := []byte(strings.Repeat("who spent how much is not written here\n", 5000))
	type case_ struct {
		what  string
		bytes []byte
	}
	cases := []case_{
		{"a text", text}, {"a short text", text[:20]}, {"noise", noise}, {"noise of half the length", noise[:len(b)/2]},
		{"zeros", make([]byte, len(b))}, {"a page of zeros", make([]byte, 4096)}, {"an SQLite file", append([]byte("SQLite format 3\x00"), noise...)},
	}
	for _, n := range []int{1, 7, 8, 63, 64, 100, 512, 4095, 4096, 4097, 8192, len(b) / 2, len(b) - 4096, len(b) - 1} {
		if n < len(b) {
			cases = append(cases, case_{fmt.Sprintf("cut to %d of %d bytes", n, len(b)), b[:n]})
		}
	}
	for _, c := range cases {
		f := valid.with(t, c.bytes)
		if s := f.distrusted(c.what, c.bytes); s != nil {
			f.close(s)
		}
	}
}

// with returns a file of its own that holds these bytes.
func (f *file) with(t *testing.T, b []byte) *file {
	t.Helper()
	other := &file{T: t, path: filepath.Join(t.TempDir(), "counters"), memory: f.memory, clock: f.clock}
	if err := os.WriteFile(other.path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return other
}

// distrusted opens what is not a file of counts: an error that names it, or an empty store, a line
// in the log and the bytes kept in another file.
func (f *file) distrusted(what string, b []byte) *memstore.Store {
	f.Helper()
	s, err := memstore.New(f.options())
	if err != nil {
		if !strings.Contains(err.Error(), f.path) {
			f.Errorf("%s: the error does not name the file: %v", what, err)
		}
		return nil
	}
	for i := range 500 {
		if u := count(f, s, threeADay(i)); u.Count != 0 {
			f.Fatalf("%s: it was trusted: key %d stands at %+v", what, i, u)
		}
	}
	if !strings.Contains(f.log.String(), f.path) {
		f.Errorf("%s: no line names the file: %q", what, &f.log)
	}
	if !f.kept(b) {
		f.Errorf("%s: what was there is in no other file", what)
	}
	return s
}

// kept says whether some other file of the directory holds these bytes.
func (f *file) kept(b []byte) bool {
	f.Helper()
	files, err := os.ReadDir(filepath.Dir(f.path))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		path := filepath.Join(filepath.Dir(f.path), file.Name())
		if other, err := os.ReadFile(path); err == nil && path != f.path && bytes.Equal(other, b) {
			return true
		}
	}
	return false
}

// An empty file is as none: a full disk may have left one.
func TestAnEmptyFileIsAsNone(t *testing.T) {
	f := newFile(t).with(t, nil)
	s := f.open()
	take(t, s, threeADay(1))
	f.close(s)
	f.stands(f.open(), threeADay(1), 1, day)
}

// A flipped bit in what says how to read the counts is noticed. Where the counts are none the
// worse, it may be none there.
func TestAFlippedBitInTheHeaderIsNoticed(t *testing.T) {
	valid, b := written(t)
	random := rand.New(rand.NewPCG(3, 4))
	noticed := 0
	for at := 0; at < 256; at += 1 + at/32 {
		flipped := bytes.Clone(b)
		flipped[at] ^= 1 << random.IntN(8)
		f := valid.with(t, flipped)
		s, err := memstore.New(f.options())
		if err != nil || strings.Contains(f.log.String(), "set aside") {
			noticed++
			if s != nil {
				f.close(s)
			}
			if s = valid.with(t, flipped).distrusted(fmt.Sprintf("byte %d flipped", at), flipped); s != nil {
				f.close(s)
			}
			continue
		}
		for i := range 500 {
			f.stands(s, threeADay(i), 2, day)
		}
		f.close(s)
		if t.Failed() {
			t.Fatalf("with a bit of byte %d flipped", at)
		}
	}
	if noticed < 32 {
		t.Errorf("of the first bytes of a file %d were noticed when a bit was flipped", noticed)
	}
}

// What was written under one bound opens under another: every count is there, and nobody has more
// than the limit.
func TestAFileOpensUnderAnotherBound(t *testing.T) {
	f := newFile(t)
	const keys, limit = 70_000, 3 // more than fit into the least memory
	for n, memory := range []int64{16 << 20, memstore.MinMemory, 64 << 20, 2 * memstore.MinMemory} {
		f.memory = memory
		s := f.open()
		for i := range keys {
			if r := take(t, s, charge("week", limit, week, fmt.Sprint(i))); r.Allowed != (n < limit) || r.Used[0].Count != int64(min(n+1, limit)) {
				t.Fatalf("key %d under %d bytes: %+v", i, memory, r)
			}
		}
		if st := s.Stats(); st.Memory != memory {
			t.Errorf("opened with %d bytes it says %+v", memory, st)
		}
		f.close(s)
	}
}

// Under a smaller bound than the file needs, newcomers take what places there are and then share.
// As windows end it shrinks to what the bound allows, and everybody has a budget of its own again.
func TestAFileLargerThanTheBoundShrinksAsItsWindowsEnd(t *testing.T) {
	f := newFile(t)
	f.memory = 16 << 20
	s := f.open()
	for i := range 200_000 {
		take(t, s, charge("hour", 1, 3600, fmt.Sprint(i)))
	}
	f.close(s)
	f.memory = memstore.MinMemory
	s = f.open()
	for i := range 20_000 {
		if take(t, s, charge("minute", 1, 60, fmt.Sprint(i))); take(t, s, charge("minute", 1, 60, fmt.Sprint(i))).Allowed {
			t.Fatalf("newcomer %d was admitted twice by a limit of 1", i)
		}
	}
	if s.Stats().Shared == 0 {
		t.Errorf("nobody shared under a bound that is exceeded: %+v", s.Stats())
	}
	f.clock.Advance(time.Hour)
	shared := s.Stats().Shared
	for minute := range 60 {
		for i := range 1000 {
			if !take(t, s, charge("minute", 1, 60, fmt.Sprint(i))).Allowed {
				t.Fatalf("an hour and %d minutes later newcomer %d was refused: %+v", minute, i, s.Stats())
			}
		}
		f.clock.Advance(time.Minute)
	}
	if st := s.Stats(); st.Bytes > st.Memory || st.Shared != shared {
		t.Errorf("two hours later, with 1000 live keys, the store holds %+v", st)
	}
}
