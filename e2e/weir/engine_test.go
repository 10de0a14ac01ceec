package weir

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// What stands before an upstream is tested on both engines: TestMain runs all tests, on the engine
// that is the default, and then those that had a server before an upstream once more, on net/http.

// The values of --engine.
const (
	engineAuto = "auto"
	engineStd  = "std"
)

// testEngine is the one that servers before an upstream have.
var testEngine = engineAuto

// twice are the tests that run once more.
var twice struct {
	sync.Mutex
	names map[string]bool
}

// onBothEngines has a test run once more, on net/http.
func onBothEngines(test string) {
	twice.Lock()
	defer twice.Unlock()
	if twice.names == nil {
		twice.names = make(map[string]bool)
	}
	twice.names[test] = true
}

// runOnBothEngines runs all tests, and again those that want it. It returns the exit status.
func runOnBothEngines(m *testing.M) int {
	if code := m.Run(); code != 0 || len(twice.names) == 0 {
		return code
	}
	var again []string
	for _, name := range slices.Sorted(maps.Keys(twice.names)) {
		again = append(again, "^"+strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^")+"$")
	}
	if err := flag.Set("test.run", strings.Join(again, "|")); err != nil {
		panic(err)
	}
	testEngine = engineStd
	code := m.Run()
	if code != 0 {
		fmt.Fprintf(os.Stderr, "the second time, with --engine %s\n", testEngine)
	}
	return code
}

// engineLine is the line of the start-up block that says who speaks HTTP.
var engineLine = regexp.MustCompile(`(?m)^engine +(.*)$`)

// servedBy is what it says before an upstream, by engine.
var servedBy = map[string]string{engineAuto: "Weir's own for HTTP/1.1, net/http for HTTP/2", engineStd: "net/http, since --engine is std"}

// engineFor returns the variable for a server of the named test that is started with args; none
// where that has no upstream, or an engine of its own.
func engineFor(test string, args []string) (env []string) {
	own := func(arg string) bool { return arg == "--engine" || strings.HasPrefix(arg, "WEIR_ENGINE=") }
	if !slices.Contains(args, "--upstream") || slices.ContainsFunc(args, own) {
		return nil
	}
	onBothEngines(test)
	return []string{"WEIR_ENGINE=" + testEngine}
}

// mustBeServedBy wants a server that stands before an upstream to say that it has the engine.
func (s *server) mustBeServedBy(t *testing.T, engine string) {
	t.Helper()
	if said, err := s.stdout.await(engineLine); err != nil || said[1] != servedBy[engine] {
		t.Fatalf("it is not served by --engine %s: %q, %v", engine, said, err)
	}
}

// top is the name of a test without those of its subtests.
func top(t *testing.T) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}
