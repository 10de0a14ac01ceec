//go:build linux

package memstore

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/storetest"
)

// After a power cut a part of the table may be missing on the disk. The rest is
// read, the missing part starts anew, and the log reports it. If the machine did
// not go down, a missing part means that another program changed the file.
func TestAPowerCutLosesOnlyTheMissingPart(t *testing.T) {
	for _, wentDown := range []bool{true, false} {
		var output bytes.Buffer
		clock := storetest.StartManualClock()
		o := Options{File: filepath.Join(t.TempDir(), "counters"), Now: clock.Now}
		s := newStore(t, o, defaultLines)
		const keys = 1000
		for n := range uint64(keys) {
			s.mustTake(t, charge(n, 5))
		}
		m := s.backing.(*mapping)
		m.withdraw(s.table.segmentAt(0).id) // this part is missing
		if wentDown {
			m.data[atBoot]++
		}
		b, err := os.ReadFile(o.File)
		if err != nil {
			t.Fatal(err)
		}
		o.File += "-after"
		if err := os.WriteFile(o.File, b, 0o600); err != nil {
			t.Fatal(err)
		}
		o.Log = slog.New(slog.NewTextHandler(&output, nil))
		s = newStore(t, o, defaultLines)
		kept := 0
		for n := range uint64(keys) {
			switch count := s.mustTake(t, charge(n, 5)).Used[0].Count; count {
			case 2:
				kept++
			case 1:
			default:
				t.Fatalf("key %d has %d", n, count)
			}
		}
		if wentDown != (kept > keys/2) || kept == keys {
			t.Errorf("went down %v: %d of %d counts were kept", wentDown, kept, keys)
		}
		if want := map[bool]string{true: "the machine stopped", false: "set aside"}[wentDown]; !strings.Contains(output.String(), want) {
			t.Errorf("went down %v: it logged\n%s", wentDown, output.String())
		}
		s.table.audit(t)
	}
}
