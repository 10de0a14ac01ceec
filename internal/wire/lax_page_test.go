package wire_test

import (
	"os"
	"strings"
	"testing"
)

// The decision for an engine of our own lists every case in which a library is laxer, as the test
// of them has it.
func TestTheDecisionListsEveryCase(t *testing.T) {
	const page = "../../docs/adr/0022-the-fast-engine-is-a-loop-of-our-own.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]string{"head": "", "body": "body: ", "Host": "Host: "}
	listed := map[string]served{}
	for line := range strings.SplitSeq(string(text), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if len(cells) != 4 {
			continue
		}
		prefix, ok := in[strings.TrimSpace(cells[0])]
		if !ok {
			continue
		}
		listed[prefix+strings.Trim(cells[1], "`")] = served{cells[2] == "serves", strings.TrimSpace(cells[3]) == "serves"}
	}
	for what, want := range laxer {
		if got, ok := listed[what]; !ok || got != want {
			t.Errorf("%s: %v in %s, want %v", what, got, page, want)
		}
	}
	for what := range listed {
		if _, ok := laxer[what]; !ok {
			t.Errorf("%s is in %s, and no case", what, page)
		}
	}
}
