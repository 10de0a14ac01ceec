package engines

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// verdicts are the words for outcomes in docs/engines.md. Its cells use them in no
// other sense.
var verdicts = []string{"refused", "answered", "passed on", "waits"}

// verdict reduces an outcome's summary to one word.
func verdict(summary string) string {
	requests, answers, _ := strings.Cut(summary, " -> ")
	passed := slices.ContainsFunc(strings.Split(requests, ", "), func(r string) bool { return r != "end" && r != "nothing" })
	back := strings.Fields(answers)
	switch {
	case passed:
		return "passed on"
	case slices.Contains(back, "waits"):
		return "waits"
	case slices.Contains(back, "end"):
		return "answered"
	}
	return "refused"
}

var tableRow = regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\|[^|]*\\|([^|]*)\\|([^|]*)\\|([^|]*)\\|[^|]*\\|$")

// The table in docs/engines.md matches the corpus. Every row has a case with that
// difference, every case with a difference has a row, and each column has the
// outcomes of the row's streams.
func TestThePageOnEnginesMatchesTheCorpus(t *testing.T) {
	columns := []string{"fast", "std", "nginx"}
	found := map[string]map[string][]string{} // row, column, verdicts
	for _, c := range readCases(t) {
		for _, e := range c.except {
			if found[e.row] == nil {
				found[e.row] = map[string][]string{}
			}
			for _, column := range columns {
				want := c.want
				if other, ok := c.except[column]; ok {
					want = other.want
					if other.row != e.row {
						continue // another row describes it
					}
				}
				found[e.row][column] = append(found[e.row][column], verdict(want))
			}
		}
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "engines.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range tableRow.FindAllStringSubmatch(string(page), -1) {
		row := m[1]
		if documented[row] {
			t.Errorf("docs/engines.md has two rows %s", row)
		}
		documented[row] = true
		if found[row] == nil {
			t.Errorf("docs/engines.md has a row %s, and no case differs so", row)
			continue
		}
		for i, column := range columns {
			for _, v := range verdicts {
				listed, is := strings.Contains(m[2+i], v), slices.Contains(found[row][column], v)
				if listed != is {
					t.Errorf("docs/engines.md, row %s, column %s: %q is documented as %v, and is %v", row, column, v, listed, is)
				}
			}
		}
	}
	for row := range found {
		if !documented[row] {
			t.Errorf("a case names the row %s, which docs/engines.md does not have", row)
		}
	}
	if len(documented) < 20 {
		t.Errorf("docs/engines.md has %d rows: it is not read", len(documented))
	}
}
