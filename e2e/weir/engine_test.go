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

// Servers before an upstream are tested on both engines. TestMain runs all tests on
// the default engine, and then those with such a server again on net/http.

// The values of --engine.
const (
	engineAuto = "auto"
	engineStd  = "std"
)

// testEngine is the engine of servers before an upstream.
var testEngine = engineAuto

// twice are the tests to run again.
var twice struct {
	sync.Mutex
	names map[string]bool
}

// onBothEngines marks a test to run again on net/http.
func onBothEngines(test string) {
	twice.Lock()
	defer twice.Unlock()
	if twice.names == nil {
		twice.names = make(map[string]bool)
	}
	twice.names[test] = true
}

// runOnBothEngines runs all tests, then the marked ones again. It returns the exit
// status.
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

// engineLine matches the line of the start-up block that names the engine.
var engineLine = regexp.MustCompile(`(?m)^engine +(.*)$`)

// servedBy is the text of that line before an upstream, by engine.
var servedBy = map[string]string{engineAuto: "Weir's own, for HTTP/1.1 and HTTP/2", engineStd: "net/http, since --engine is std"}

// engineFor returns the environment variable for a server of the named test with
// args. It is empty if the server has no upstream, or sets its engine.
func engineFor(test string, args []string) (env []string) {
	own := func(arg string) bool { return arg == "--engine" || strings.HasPrefix(arg, "WEIR_ENGINE=") }
	if !slices.Contains(args, "--upstream") || slices.ContainsFunc(args, own) {
		return nil
	}
	onBothEngines(test)
	return []string{"WEIR_ENGINE=" + testEngine}
}

// mustBeServedBy checks that a server before an upstream reports the engine.
func (s *server) mustBeServedBy(t *testing.T, engine string) {
	t.Helper()
	if line, err := s.stdout.await(engineLine); err != nil || line[1] != servedBy[engine] {
		t.Fatalf("it is not served by --engine %s: %q, %v", engine, line, err)
	}
}

// top returns the name of a test without those of its subtests.
func top(t *testing.T) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}
