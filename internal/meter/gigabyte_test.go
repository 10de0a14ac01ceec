//go:build !race

// One goroutine reads it all, which the race detector would only slow down.

package meter

import (
	"strings"
	"testing"
)

// Bodies of any length pass: a string of a gigabyte, the member after it, and another behind that.
func TestAGigabytePasses(t *testing.T) {
	pieces, size := 1<<10, 1<<20
	if testing.Short() {
		pieces = 1 << 6
	}
	piece := []byte(strings.Repeat("a long text ", size/12+1)[:size])
	for _, test := range []struct {
		end  string
		want int64
	}{
		{`","n":5}`, 5},
		{`","n":5,"n":6}`, none},
		{`","n":5`, none},
	} {
		var m Meter
		m.Reset("n", JSON)
		m.Write([]byte(`{"text":"`))
		for range pieces {
			m.Write(piece)
		}
		m.Write([]byte(test.end))
		if got := orNone(m.Units()); got != test.want {
			t.Errorf("a gigabyte that ends in %s is read as %d, want %d", test.end, got, test.want)
		}
	}
}
