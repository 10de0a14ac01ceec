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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

// The store with a file passes the same tests as the store in memory.
func TestAStoreWithAFileIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
		f := newFile(t)
		f.memory = memstore.DefaultMemory
		return f.open(), f.clock
	})
}

// A file is a test store's file.
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

// open opens the store. It is closed at the end of the test, unless it was closed
// before.
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

// mustHold checks a window's count, and the seconds until its reset.
func (f *file) mustHold(s *memstore.Store, c weir.Charge, want, seconds int64) {
	f.Helper()
	u, now := count(f, s, c), f.clock.Now().Unix()
	if u.Count != want || want > 0 && u.Reset-now != seconds {
		f.Errorf("key %q has count %d with %d s to go, want %d with %d", c.Key, u.Count, u.Reset-now, want, seconds)
	}
}

// A restart changes no count and no reset, at any point of the keys' windows.
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
	f.mustHold(s, minute, 2, 30)
	f.mustHold(s, hour, 1, 3570)
	if take(t, s, spent).Allowed || take(t, s, hour, spent).Allowed {
		t.Error("a restart gave a spent key its budget back")
	}
	take(t, s, minute)
	f.close(s)

	f.clock.Advance(30 * time.Second) // to the reset of the minute
	s = f.open()
	f.mustHold(s, minute, 0, 0)
	f.mustHold(s, hour, 1, 3540)
	f.mustHold(s, spent, 2, 3550)
	if f.log.Len() > 0 {
		t.Errorf("restarts were logged: %s", &f.log)
	}
}

// If the system clock was set back while no process ran, counts are kept, and a
// window ends at most one length from now.
func TestARestartAfterTheClockWasSetBackKeepsCounts(t *testing.T) {
	f := newFile(t)
	s := f.open()
	minute, hour := charge("minute", 1, 60, "a"), charge("hour", 1, 3600, "a")
	take(t, s, minute, hour)
	f.close(s)
	f.clock.Advance(-24 * time.Hour)
	s = f.open()
	f.mustHold(s, minute, 1, 60)
	f.mustHold(s, hour, 1, 3600)
	if take(t, s, minute).Allowed || take(t, s, hour).Allowed {
		t.Error("a clock that was set back gave a spent key its budget back")
	}
	f.clock.Advance(time.Minute)
	f.mustHold(s, minute, 0, 0)
	f.mustHold(s, hour, 1, 3540)
}

// After a day without a process everything is restored, and the table has room
// again.
func TestARestartAfterADayRestoresEverything(t *testing.T) {
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

// Two processes would count separately. The second one gets an error that names the
// first, until the first is gone.
func TestAFileInUseIsRejectedWithItsProcess(t *testing.T) {
	if e, out, ok := sent(t); ok {
		s, err := memstore.New(e.options())
		if err != nil {
			t.Fatal(err)
		}
		writeReport(t, out, take(t, s, charge("held", 5, day, "a")).Used[0].Count)
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent is gone
		return
	}
	f := newFile(t)
	e := errand{Run: "hold", File: f.path, Memory: f.memory, Now: f.clock.Now().Unix()}
	c := start(t, e)
	var got int64
	if !c.read(&got) || got != 1 {
		c.end()
	}
	for range 3 {
		f.refused(e.name(), c.cmd.Process.Pid)
	}
	c.kill()
	c.end()
	s := f.open()
	f.mustHold(s, charge("held", 5, day, "a"), 1, day)
	f.refused("a test", os.Getpid())
	f.close(s)
	f.close(f.open())
}

// refused checks that the file does not open, and that the error names its process.
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

// A second process is rejected, too, if it uses another name of the file, or if the
// lock file was removed.
func TestAFileInUseIsRejectedByAnyName(t *testing.T) {
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

// After Close a take is an error, and counts nothing.
func TestAClosedStoreRefusesToCount(t *testing.T) {
	f := newFile(t)
	s := f.open()
	f.close(s)
	var r weir.Receipt
	if err := s.Take(t.Context(), []weir.Charge{charge("a", 1, 60, "a")}, &r); !errors.Is(err, memstore.ErrClosed) {
		t.Errorf("a take of a closed store gave %v", err)
	}
}

// If the file cannot be created, the error gives the path and the reason.
func TestAFileThatCannotBeCreatedIsAnError(t *testing.T) {
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
		"in a directory of readings": "/proc/counters", // like a read-only directory, for root, too
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

// The hashes of callers are private: only the owner can read the file.
func TestTheFileIsPrivateToItsOwner(t *testing.T) {
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

// written returns the bytes of a file in which 500 keys have spent 2 of 3, and the
// options of its store.
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

// If the file is not a valid file of counts, it is set aside with a log line, or
// rejected. It is never trusted, and never deleted.
func TestAnInvalidFileIsSetAsideOrRejected(t *testing.T) {
	valid, b := written(t)
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, len(b))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	text := []byte(strings.Repeat("who spent how much is not written here\n", 5000))
	type case_ struct {
		what   string
		bytes  []byte
		reason string // in the log; empty: any
	}
	longer := fmt.Sprintf("it is longer than it should be: %d bytes instead of %d", len(b)+5000, len(b))
	cases := []case_{
		{"a text", text, "it is not a file of counts"}, {"a short text", text[:20], "too few"}, {"noise", noise, ""}, {"noise of half the length", noise[:len(b)/2], ""},
		{"zeros", make([]byte, len(b)), ""}, {"a page of zeros", make([]byte, 4096), ""}, {"an SQLite file", append([]byte("SQLite format 3\x00"), noise...), ""},
		{"noise behind it", slices.Concat(b, noise[:5000]), longer}, {"its last byte missing", b[:len(b)-1], "it was truncated"},
	}
	for _, n := range []int{1, 7, 8, 63, 64, 100, 512, 4095, 4096, 4097, 8192, len(b) / 2, len(b) - 4096} {
		if n < len(b) {
			cases = append(cases, case_{fmt.Sprintf("cut to %d of %d bytes", n, len(b)), b[:n], ""})
		}
	}
	for _, c := range cases {
		f := valid.with(t, c.bytes)
		if s := f.distrusted(c.what, c.bytes); s != nil {
			f.close(s)
		}
		if !strings.Contains(f.log.String(), c.reason) {
			t.Errorf("%s: the log has %s, want %q", c.what, &f.log, c.reason)
		}
	}
}

// with returns a file of its own with these bytes.
func (f *file) with(t *testing.T, b []byte) *file {
	t.Helper()
	other := &file{T: t, path: filepath.Join(t.TempDir(), "counters"), memory: f.memory, clock: f.clock}
	if err := os.WriteFile(other.path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return other
}

// distrusted opens an invalid file. It expects an error that names the file, or an
// empty store, a log line, and the bytes in another file.
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
			f.Fatalf("%s: it was trusted: key %d is %+v", what, i, u)
		}
	}
	if !strings.Contains(f.log.String(), f.path) {
		f.Errorf("%s: no line names the file: %q", what, &f.log)
	}
	if !f.kept(b) {
		f.Errorf("%s: the bytes are in no other file", what)
	}
	return s
}

// kept reports whether another file of the directory has these bytes.
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

// An empty file counts as a missing one: a full disk may have left it.
func TestAnEmptyFileCountsAsMissing(t *testing.T) {
	f := newFile(t).with(t, nil)
	s := f.open()
	take(t, s, threeADay(1))
	f.close(s)
	f.mustHold(f.open(), threeADay(1), 1, day)
}

// If the file was removed, the log reports that the counts are gone. A first start has none, and
// nothing to report.
func TestARemovedFileIsReported(t *testing.T) {
	f := newFile(t)
	for _, reports := range []int{0, 0, 1} {
		if reports > 0 {
			if err := os.Remove(f.path); err != nil {
				t.Fatal(err)
			}
		}
		f.close(f.open())
		if got := strings.Count(f.log.String(), "there is no file of counts"); got != reports {
			t.Errorf("%d lines report missing counts, want %d: %s", got, reports, &f.log)
		}
	}
}

// A flipped bit in the header is detected. If it does not affect the counts, it may
// stay undetected.
func TestAFlippedBitInTheHeaderIsDetected(t *testing.T) {
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
			f.mustHold(s, threeADay(i), 2, day)
		}
		f.close(s)
		if t.Failed() {
			t.Fatalf("with a bit of byte %d flipped", at)
		}
	}
	if noticed < 32 {
		t.Errorf("a flipped bit was detected in %d of the first bytes of a file", noticed)
	}
}

// A file written under one bound opens under another. Every count is there, and no
// key exceeds its limit.
func TestAFileOpensUnderAnotherBound(t *testing.T) {
	f := newFile(t)
	const keys, limit = 70_000, 3 // more than the smallest memory holds
	for n, memory := range []int64{16 << 20, memstore.MinMemory, 64 << 20, 2 * memstore.MinMemory} {
		f.memory = memory
		s := f.open()
		for i := range keys {
			if r := take(t, s, charge("week", limit, week, fmt.Sprint(i))); r.Allowed != (n < limit) || r.Used[0].Count != int64(min(n+1, limit)) {
				t.Fatalf("key %d under %d bytes: %+v", i, memory, r)
			}
		}
		if st := s.Stats(); st.Memory != memory {
			t.Errorf("opened with %d bytes its Stats are %+v", memory, st)
		}
		f.close(s)
	}
}

// If the file is larger than the bound, new keys take the free places and then
// share budgets. As windows end, the file shrinks to the bound, and each key has
// its own budget again.
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
		t.Errorf("no key shared a budget under an exceeded bound: %+v", s.Stats())
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
