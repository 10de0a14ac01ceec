package memstore

import (
	"path/filepath"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// smallLines makes segments so small that a few keys fill one: the table is
// rewritten all the time.
const smallLines = 2

// All kinds of stores pass the tests: with segments of normal and of tiny size, on
// memory that the race detector sees, and on mappings.
func TestStore(t *testing.T) {
	for _, test := range []struct {
		name  string
		lines int64
		file  bool
	}{
		{"in memory", defaultLines, false},
		{"in a file", defaultLines, true},
		{"in memory, tiny segments", smallLines, false},
		{"in a file, tiny segments", smallLines, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
				clock := storetest.StartManualClock()
				o := Options{Now: clock.Now, Memory: 64 << 20}
				if test.file {
					o.File = filepath.Join(t.TempDir(), "counters")
				}
				return newStore(t, o, test.lines), clock
			})
		})
	}
}

func newStore(t testing.TB, o Options, lines int64) *Store {
	t.Helper()
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Log == nil {
		o.Log = discard
	}
	s, err := open(o, lines)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
