package admin

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
)

// documented matches a row of the table of endpoints: method and path, and the role.
var documented = regexp.MustCompile("(?m)^\\| `(GET|POST) (/[^`?]*)[^`]*` \\| `([a-z]+)` \\| [^|]+ \\|$")

// The table of endpoints in docs/operate.md has each with its role, and no other.
func TestTheDocsHaveTheRoleOfEachEndpoint(t *testing.T) {
	const page = "../../docs/operate.md"
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, row := range documented.FindAllStringSubmatch(string(b), -1) {
		name := row[1] + " " + row[2]
		if _, twice := got[name]; twice {
			t.Errorf("%s lists %s twice", page, name)
		}
		got[name] = row[3]
	}
	want := make(map[string]string)
	for _, e := range endpoints() {
		want[e.method+" "+e.path] = e.needs.String()
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: the role of %s is %q, and the code has %q", page, name, got[name], want[name])
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s lists %s, which the code does not have", page, name)
	}
}
