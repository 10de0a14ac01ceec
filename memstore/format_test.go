package memstore

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/storetest"
)

var writeFormat = flag.Bool("write-format", false, "rewrite testdata/counters-1.gz; only before a format is first released")

// Each later version reads the first format: 100 keys of a limit of 5 that have
// spent from none to 4.
func TestTheFirstFormatIsRead(t *testing.T) {
	const packed = "testdata/counters-1.gz"
	file := filepath.Join(t.TempDir(), "counters")
	clock := storetest.StartManualClock()
	if *writeFormat {
		writeFirstFormat(t, packed, file, clock)
	}
	in, err := os.Open(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	unpacked, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	reset := clock.Now().Unix() + 60
	clock.Advance(30 * time.Second)
	s := newStore(t, Options{File: file, Now: clock.Now}, defaultLines)
	for n := range uint64(100) {
		r := s.mustTake(t, charge(n, 5))
		if want := int64(n%5) + 1; r.Used[0].Count != want || n%5 > 0 && r.Used[0].Reset != reset {
			t.Errorf("key %d is %+v, want %d until %d", n, r.Used[0], want, reset)
		}
	}
}

// A file that a later version wrote is neither read as if it were of this one, nor put aside: that
// would forget what callers have spent.
func TestALaterFormatIsNotOpened(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counters")
	b := header(256, seed{1, 2})
	binary.LittleEndian.PutUint32(b[atVersion:], version+1)
	binary.LittleEndian.PutUint32(b[atChecksum:], crc32.Checksum(b[:atChecksum], castagnoli))
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{File: file, Memory: MinMemory, Log: discard})
	if later := new(FormatError); !errors.As(err, &later) || later.Format != version+1 {
		t.Fatalf("New returned %v, %v; want a FormatError of format %d", s, err, version+1)
	}
	if kept, err := os.ReadFile(file); err != nil || !bytes.Equal(kept, b) {
		t.Errorf("the file was changed (%v)", err)
	}
}

func writeFirstFormat(t *testing.T, packed, file string, clock *storetest.ManualClock) {
	s, err := open(Options{File: file, Memory: MinMemory, Now: clock.Now, Log: discard}, 8)
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(100) {
		for range n % 5 {
			s.mustTake(t, charge(n, 5))
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(packed)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(out)
	z.Write(b)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	os.Remove(file)
}

// If a kill interrupts a rewrite, the records are ordered by age. If a kill cannot
// explain the records, the file is rejected.
func TestSegmentsAreResolvedByAge(t *testing.T) {
	const half, quarter = 1 << 63, 1 << 62
	for _, test := range []struct {
		name    string
		records []record
		want    []record // none if it is rejected
		gaps    []scope
	}{
		{"two halves", []record{{0, scope{0, 1}, 1}, {1, scope{half, 1}, 2}}, []record{{0, scope{0, 1}, 1}, {1, scope{half, 1}, 2}}, nil},
		{"a split of which one half is there", []record{{0, scope{0, 0}, 1}, {1, scope{0, 1}, 2}},
			[]record{{0, scope{half, 1}, 1}, {1, scope{0, 1}, 2}}, nil},
		{"that, and the other half split likewise", []record{{0, scope{0, 0}, 1}, {1, scope{0, 1}, 2}, {2, scope{half, 2}, 3}},
			[]record{{0, scope{half | quarter, 2}, 1}, {1, scope{0, 1}, 2}, {2, scope{half, 2}, 3}}, nil},
		{"a merge whose halves are still there", []record{{0, scope{0, 1}, 1}, {1, scope{half, 1}, 2}, {2, scope{0, 0}, 3}},
			[]record{{2, scope{0, 0}, 3}}, nil},
		{"a gap", []record{{0, scope{0, 1}, 1}, {1, scope{half, 3}, 2}}, []record{{0, scope{0, 1}, 1}, {1, scope{half, 3}, 2}},
			[]scope{{half | quarter>>1, 3}, {half | quarter, 2}}},
		{"both ends and not the middle", []record{{0, scope{0, 0}, 1}, {1, scope{quarter, 2}, 2}, {2, scope{half, 2}, 3}},
			[]record{{1, scope{quarter, 2}, 2}, {2, scope{half, 2}, 3}}, []scope{{0, 2}, {half | quarter, 2}}},
		{"three quarters", []record{{0, scope{0, 0}, 1}, {1, scope{0, 2}, 2}}, []record{{1, scope{0, 2}, 2}}, []scope{{quarter, 2}, {half, 1}}},
		{"splits without end", []record{{0, scope{0, 0}, 1}, {1, scope{0, 40}, 2}}, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			use, gaps, _, err := resolveRecords(test.records)
			if (err == nil) != (test.want != nil) || err == nil && (!slices.Equal(use, test.want) || !slices.Equal(gaps, test.gaps)) {
				t.Errorf("%s: %+v, gaps %+v, %v", test.name, use, gaps, err)
			}
		})
	}
}

// A process that died during a take held entries. The next process releases them
// with their counts, even if the file is marked as closed.
func TestEntriesHeldByADeadProcessAreReleased(t *testing.T) {
	for _, state := range []uint64{stateOpen, stateClosed} {
		clock := storetest.StartManualClock()
		o := Options{File: filepath.Join(t.TempDir(), "counters"), Now: clock.Now}
		s := newStore(t, o, defaultLines)
		c := charge(7, 5)
		s.mustTake(t, c)
		hash := s.seed.hash(c.Key)
		word, _ := s.table.find(hash).freeze(hash)
		b, err := os.ReadFile(o.File)
		s.table.find(hash).word.Store(word) // or Close would wait for it
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(b[atState:], state)
		o.File += "-after"
		if err := os.WriteFile(o.File, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s = newStore(t, o, defaultLines)
		if r := s.mustTake(t, c, charge(8, 5)); !r.Allowed || r.Used[0].Count != 2 {
			t.Errorf("state %d: the next take answered %+v", state, r)
		}
	}
}

// A reset or a clock beyond the representable range blocks nothing.
func TestTheEndOfTimeBlocksNothing(t *testing.T) {
	now := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newStore(t, Options{Now: func() time.Time { return now }}, defaultLines)
	c := charge(1, 2)
	c.Per = 1 << 32
	for i := range 4 {
		if allowed := s.mustTake(t, c).Allowed; allowed != (i < 2) {
			t.Errorf("take %d: allowed %v", i+1, allowed)
		}
	}
}

// A watchedBacking calls watch after every change of a record, as if the process
// were killed there.
type watchedBacking struct {
	backing
	records map[uint32]record
	serial  uint64
	watch   func()
}

func (g *watchedBacking) publish(id uint32, s scope) {
	g.serial++
	g.records[id] = record{id, s, g.serial}
	g.watch()
}

func (g *watchedBacking) withdraw(id uint32) {
	delete(g.records, id)
	g.watch()
}

// Segments are split, cleaned and merged. If the process is killed after any one
// change of the file's records, the next process finds every key with its count.
func TestAfterAKillAtAnyPointEveryCountIsFound(t *testing.T) {
	clock := storetest.StartManualClock()
	s := newStore(t, Options{Now: clock.Now}, smallLines)
	live := map[uint64]int64{} // hash to count
	checks := 0
	var taking uint64 // its count may already be one more
	g := &watchedBacking{backing: s.table.arena.backing, records: map[uint32]record{}, watch: func() {}}
	for position := uint64(0); ; {
		seg := s.table.segmentAt(position)
		g.publish(seg.id, seg.scope)
		if position = seg.scope.end(); position == 0 {
			break
		}
	}
	s.table.arena.backing = g
	g.watch = func() {
		checks++
		var records []record
		for _, r := range g.records {
			records = append(records, r)
		}
		use, gaps, _, err := resolveRecords(records)
		if err != nil || len(gaps) > 0 {
			t.Fatalf("after %d changes: gaps %v, %v", checks, gaps, err)
		}
		for hash, count := range live {
			found := false
			for _, r := range use {
				if !r.scope.covers(position(hash)) {
					continue
				}
				e := probe(g.lines(r.id), hash, s.table.mask)
				if e != nil {
					more := unpack(e.word.Load(), hash).Count - count
					found = more == 0 || more == 1 && hash == taking
				}
			}
			if !found {
				t.Fatalf("after %d changes a count is not found", checks)
			}
		}
	}
	take := func(n uint64) {
		c := charge(n, 1000)
		taking = s.seed.hash(c.Key)
		live[taking] = s.mustTake(t, c).Used[0].Count
	}
	for round := range uint64(4) {
		for n := range uint64(120) {
			take(round<<32 | n)
			take(round<<32 | n/2)
		}
		clear(live)
		clock.Advance(time.Minute)
		for n := range uint64(400) {
			take(1<<40 | n%5)
			if n%10 == 0 {
				clock.Advance(100 * time.Millisecond)
			}
		}
		clear(live)
		clock.Advance(time.Minute)
	}
	if checks < 300 {
		t.Errorf("only %d changes were checked", checks)
	}
}

// If the first process was killed while it started, the file has room but no
// records. The next process uses that room.
func TestAFileThatWasOnlyExtendedIsUsed(t *testing.T) {
	clock := storetest.StartManualClock()
	o := Options{File: filepath.Join(t.TempDir(), "counters"), Memory: MinMemory, Now: clock.Now}
	s := newStore(t, o, 64)
	b := header(s.table.arena.segmentBytes, s.seed)
	b = append(b, make([]byte, recordsPage+chunkSegments*s.table.arena.segmentBytes)...)
	o.File += "-killed"
	if err := os.WriteFile(o.File, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, o, 64)
	for n := uint64(0); s.shared.Load() == 0; n++ { // up to the bound
		s.mustTake(t, charge(n, 5))
	}
	if info, err := os.Stat(o.File); err != nil || info.Size() > 2*MinMemory {
		t.Errorf("the file has %d bytes (%v) under a bound of %d", info.Size(), err, MinMemory)
	}
}
