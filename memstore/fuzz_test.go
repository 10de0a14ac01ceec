//go:build linux

package memstore_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

// damage changes a valid file as data describes: in each seven bytes the kind, the
// place and the value.
func damage(valid, data []byte) []byte {
	b := bytes.Clone(valid)
	for ; len(data) >= 7 && len(b) > 0; data = data[7:] {
		at := int(binary.LittleEndian.Uint32(data[1:])) % len(b)
		from := int(data[5]) | int(data[6])<<8
		switch data[0] % 8 {
		case 0:
			b[at] ^= data[5]
		case 1: // in the first page
			b[at%min(4096, len(b))] ^= data[5]
		case 2: // an entry, from remapped
			copy(b[at&^15:], valid[from*16%len(valid):][:min(16, len(valid)-from*16%len(valid))])
		case 3: // a line
			copy(b[at&^63:], valid[from*64%len(valid):][:min(64, len(valid)-from*64%len(valid))])
		case 4: // a page
			copy(b[at&^4095:], valid[from*4096%len(valid):][:min(4096, len(valid)-from*4096%len(valid))])
		case 5:
			clear(b[at:min(at+from, len(b))])
		case 6:
			b = b[:at]
		case 7:
			b = append(b, bytes.Repeat(data[5:7], from)...)
		}
	}
	return b
}

// The kind of file before the damage.
const (
	closed = iota // closed properly
	open          // as a kill leaves it
	other         // not a valid file: the data is the file
	kinds
)

// For any content, opening the file and counting in it neither panics nor blocks,
// and a limit of 3 admits at most 3 from then on.
func FuzzOpen(f *testing.F) {
	var valid [kinds][]byte
	valid[closed], valid[open] = smallFiles(f)
	f.Add(byte(other), []byte{})
	f.Add(byte(other), []byte("something else"))
	for kind := range byte(other) {
		f.Add(kind, []byte{})
		for op := range byte(8) {
			f.Add(kind, []byte{op, 200, 17, 0, 0, 3, 1})
			f.Add(kind, []byte{op, 0, 0x21, 0, 0, 128, 0, op + 1, 0, 0x80, 0, 0, 9, 0})
		}
	}
	// damages of a table's line
	for _, what := range [][3]byte{{0, 128, 0}, {5, 8, 0}, {5, 16, 0}, {3, 1, 2}} {
		var data []byte
		for i := range uint32(100) {
			data = append(data, what[0])
			data = binary.LittleEndian.AppendUint32(data, 32768+i*4096+i%64*16+[]uint32{15, 8}[what[0]%2])
			data = append(data, what[1], what[2])
		}
		f.Add(byte(closed), data)
		f.Add(byte(open), data)
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		path := filepath.Join(t.TempDir(), "counters")
		b := data
		if kind %= kinds; kind != other {
			b = damage(valid[kind], data)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			openAndTake(t, path)
		}()
		select {
		case <-done:
		case <-time.After(patience):
			stacks := make([]byte, 1<<16)
			// so that the blocked goroutine ends, too
			panic("it hangs:\n" + string(stacks[:runtime.Stack(stacks, true)]))
		}
	})
}

// fuzzKeys is large enough that a few hundred more keys make the table grow.
const fuzzKeys = 5000

// smallFiles returns a file in which each key has spent 2 of 3, as its process
// closed it, and as a kill leaves it.
func smallFiles(tb testing.TB) (closed, open []byte) {
	path := filepath.Join(tb.TempDir(), "counters")
	clock := storetest.StartManualClock()
	s, err := memstore.New(memstore.Options{Memory: memstore.MinMemory, Now: clock.Now, File: path})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range fuzzKeys {
		take(tb, s, fuzzKey(i))
		take(tb, s, fuzzKey(i), charge("many a minute", weir.MaxLimit, 60, fmt.Sprint(i%64)))
	}
	if open, err = os.ReadFile(path); err != nil {
		tb.Fatal(err)
	}
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
	if closed, err = os.ReadFile(path); err != nil {
		tb.Fatal(err)
	}
	return closed, open
}

func fuzzKey(i int) weir.Charge { return charge("three a day", 3, day, fmt.Sprint(i)) }

// openAndTake opens the file, takes, lets it grow, takes again, and does that once
// more.
func openAndTake(t *testing.T, path string) {
	clock := storetest.StartManualClock()
	var admitted [fuzzKeys + 100]int
	for round := range 2 {
		s, err := memstore.New(memstore.Options{Memory: memstore.MinMemory, Now: clock.Now, File: path})
		if err != nil {
			return // rejected with an error
		}
		takeOfSome(t, s, admitted[:])
		for i := range 800 {
			take(t, s, charge("new", 1, day, fmt.Sprint(round, i)), charge("newer", 1, day, fmt.Sprint(round, i)))
		}
		takeOfSome(t, s, admitted[:])
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for i, n := range admitted {
		if n > 3 {
			t.Errorf("key %d was admitted %d times by a limit of 3", i, n)
		}
	}
}

func takeOfSome(t *testing.T, s *memstore.Store, admitted []int) {
	for i := 0; i < len(admitted); i += 7 {
		in := []weir.Charge{fuzzKey(i)}
		if i%2 == 0 {
			in = append(in, charge("many a minute", weir.MaxLimit, 60, fmt.Sprint(i%64)))
		}
		if take(t, s, in...).Allowed {
			admitted[i]++
		}
	}
}
