package policyfile_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

var update = flag.Bool("update", false, "write the problems of testdata/bad into its .want files; read them before you commit")

// files returns the YAML files of a folder. It fails the test if there are fewer than minFiles: an
// empty folder would make a test that cannot fail.
func files(t testing.TB, folder string, minFiles int) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(all) < minFiles {
		t.Fatalf("%s has %d YAML files, %d at least are expected (%v)", folder, len(all), minFiles, err)
	}
	return all
}

// reader accepts the messages of the product, as the command line does.
var reader = policyfile.Reader{Messages: []string{"bulk-sync", "widget"}}

// problemsOf returns the problems that Parse reports for a file, each with its place, path and
// hint.
func problemsOf(t *testing.T, path string) string {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := reader.Parse(filepath.Base(path), source)
	var invalid *policyfile.Error
	if !errors.As(err, &invalid) {
		t.Fatalf("%s: not refused with its problems: %v, %v", path, f, err)
	}
	var b strings.Builder
	for _, p := range invalid.Problems {
		fmt.Fprintf(&b, "%s\n", p)
		if p.Hint != "" {
			fmt.Fprintf(&b, "    hint: %s\n", p.Hint)
		}
		if p.Path != "" {
			fmt.Fprintf(&b, "    at %s\n", p.Path)
		}
	}
	return b.String()
}

func TestEveryMistakeIsToldAtItsPlaceWithWhatIsAllowed(t *testing.T) {
	for _, path := range files(t, "testdata/bad", 60) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			got := problemsOf(t, path)
			golden := strings.TrimSuffix(path, ".yaml") + ".want"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("reported:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestGoodFilesHaveNeitherProblemsNorWarnings(t *testing.T) {
	for _, path := range files(t, "testdata/good", 8) {
		f, err := reader.Load(path)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		for _, w := range f.Warnings {
			t.Errorf("warning: %v (%s)", w, w.Hint)
		}
		if len(f.Lines) != len(f.Policy.Limiters) {
			t.Errorf("%s: lines %v for %d limiters", path, f.Lines, len(f.Policy.Limiters))
		}
	}
}

// The limits are those of section 8 of the contract.
func TestTheBuiltInPolicyIsTheContract(t *testing.T) {
	want := []string{
		"widget-init: POST /api/v1/widget/init: 1000 per minute by ip+agent, 30000 per hour by ip: widget",
		"widget-session: POST /api/v1/widget/messages*, /api/v1/widget/events*, /api/v1/widget/conversations*: 300 per minute by session or ip: widget",
		"widget-leads: POST /api/v1/widget/leads: 30 per minute by session or ip: widget",
		"wp-plugin: /v1/wp/*: 60 per minute by token or ip: bulk-sync",
		"widget-typing: POST /api/v1/widget/typing: 600 per minute by ip: widget",
		"widget-satisfaction: POST /api/v1/widget/satisfaction: 60 per minute by ip: widget",
		"widget-coupon: POST /api/v1/widget/coupon/apply: 120 per minute by ip: widget",
		"widget-other: /api/v1/widget/*: 6000 per minute by ip: widget",
	}
	limiters := policyfile.Contract().Limiters
	if len(limiters) != len(want) {
		t.Fatalf("%d limiters", len(limiters))
	}
	for i, l := range limiters {
		got := l.Name + ": " + joined(l.Routes) + ": " + joined(l.Windows)
		if l.Message != "" {
			got += ": " + l.Message
		}
		if got != want[i] || l.Cost != 0 || l.OnStoreFailure != weir.FailLocal {
			t.Errorf("%s (cost %d, %v)\nwant %s", got, l.Cost, l.OnStoreFailure, want[i])
		}
	}
}

func joined[T fmt.Stringer](items []T) string {
	var all []string
	for _, item := range items {
		all = append(all, item.String())
	}
	return strings.Join(all, ", ")
}

func TestTheContractsSourceIsTheContractAndTheCallersOwn(t *testing.T) {
	source := policyfile.ContractSource()
	f, err := reader.Parse("contract.yaml", source)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Warnings) > 0 {
		t.Errorf("the contract has warnings: %v", f.Warnings)
	}
	for i, l := range f.Policy.Limiters {
		line := strings.Split(string(source), "\n")[f.Lines[i]-1]
		if !strings.HasPrefix(line, "  - name: "+l.Name) {
			t.Errorf("limiter %q is reported on line %d: %s", l.Name, f.Lines[i], line)
		}
	}
	clear(source)
	if policyfile.ContractSource()[0] == 0 {
		t.Error("a caller that changes its copy of the source changes the copies of all callers")
	}
}

func TestLoadTellsAFileThatCannotBeReadFromOneThatIsWrong(t *testing.T) {
	folder := t.TempDir()
	if _, err := policyfile.Load(filepath.Join(folder, "nowhere.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	var invalid *policyfile.Error
	if _, err := policyfile.Load(folder); err == nil || errors.As(err, &invalid) || !strings.Contains(err.Error(), folder+" is a directory") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := policyfile.Load("testdata/bad/cost-zero.yaml"); !errors.As(err, &invalid) || invalid.Problems[0].File != "testdata/bad/cost-zero.yaml" {
		t.Errorf("a policy with a problem: %v", err)
	}
}

func TestAReaderKnowsTheCallersSourcesAndMessages(t *testing.T) {
	source := []byte("limiters:\n  - {name: a, routes: [/*], windows: [5 per minute by plan], message: upgrade}\n")
	if _, err := policyfile.Parse("a.yaml", source); err == nil || !strings.Contains(err.Error(), `"plan" is unknown: `+weir.SourceNames(weir.Sources())) {
		t.Errorf("a source that is not declared: %v", err)
	}
	own := policyfile.Reader{Sources: []weir.Source{{Name: "ip", Kind: weir.Address}, {Name: "plan", Kind: weir.Credential}}, Messages: []string{"upgrade"}}
	if _, err := own.Parse("a.yaml", source); err != nil {
		t.Errorf("a source and a message that the caller declared: %v", err)
	}
	own.Messages = nil
	if _, err := own.Parse("a.yaml", source); err != nil {
		t.Errorf("a message without a catalogue: %v", err)
	}
	own.Messages = []string{}
	if _, err := own.Parse("a.yaml", source); err == nil {
		t.Error("a message that an empty catalogue lacks was accepted")
	}
}

func TestOptionalFieldsAreRead(t *testing.T) {
	f, err := reader.Parse("a.yaml", []byte("limiters:\n"+
		"  - {name: a, routes: [/a*], windows: [50 per 90 seconds by ip], cost: 5, message: bulk-sync, on_store_failure: deny}\n"+
		"  - {name: b, routes: [/b*], windows: [50 per 2 hours by ip], on_store_failure: allow}\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := f.Policy.Limiters[0], f.Policy.Limiters[1]
	if a.Cost != 5 || a.Message != "bulk-sync" || a.OnStoreFailure != weir.FailDeny || a.Windows[0].Per != 90*time.Second {
		t.Errorf("%+v", a)
	}
	if b.Cost != 0 || b.Message != "" || b.OnStoreFailure != weir.FailAllow || b.Windows[0].Per != 2*time.Hour {
		t.Errorf("%+v", b)
	}
}

func TestProblemsAreTextWithFileLineAndColumn(t *testing.T) {
	p := policyfile.Problem{File: "a.yaml", Line: 3, Column: 7, Message: "wrong", Hint: "right"}
	if got := p.String(); got != "a.yaml:3:7: wrong" {
		t.Errorf("%q", got)
	}
	whole := policyfile.Problem{File: "a.yaml", Message: "empty"}
	err := &policyfile.Error{Problems: []policyfile.Problem{p, whole}}
	if got := err.Error(); got != "a.yaml:3:7: wrong (right)\na.yaml: empty" {
		t.Errorf("%q", got)
	}
}

func TestLinesAreCountedAlikeWithEveryLineEnding(t *testing.T) {
	source := "# a comment\nlimiters: # another\n  - name: a\n    wrong: 1\n"
	_, want := policyfile.Parse("p.yaml", []byte(source))
	_, got := policyfile.Parse("p.yaml", []byte(strings.ReplaceAll(source, "\n", "\r\n")))
	if want == nil || got == nil || got.Error() != want.Error() {
		t.Errorf("with CR LF: %v\nwith LF: %v", got, want)
	}
}
