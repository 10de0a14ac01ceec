//go:build !race

// One goroutine reads the sources: the race detector would only make that slow.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/weirlimit/weir"

// floors is the floor of each package. A package may import packages of lower
// floors only, so none of its own floor.
var floors = map[string]int{
	"cmd/weir": 9,
	"e2e/weir": 9, "e2e/engines": 9, "e2e/redis": 9, "e2e/apps": 9, "e2e/verify": 9, "e2e/promtool": 9, "e2e/wordpress": 9, "e2e/clients": 9,
	"e2e/redistest": 2, "e2e/nginxtest": 2, "e2e/apptest": 2, "e2e/pebbletest": 2, "e2e/child": 1, "e2e/selfsigned": 1,
	"internal/edge":         8,
	"internal/policyimport": 3, "internal/policyimport/nginx": 4, "internal/policyimport/envoy": 4,
	"internal/gateway": 7, "internal/check": 6,
	"internal/gateway/fast": 5, "internal/gateway/http2": 5, "internal/gateway/std": 5, "internal/admin/client": 5,
	"internal/gateway/rules": 4, "internal/admin": 4, "internal/sample": 4, "internal/replay/report": 4,

	"httplimit": 3, "internal/telemetry": 3, "internal/watch": 3, "internal/live": 3, "internal/explain": 3, "internal/events": 3, "internal/replay": 3,
	"internal/gateway/relay": 3,
	"internal/verify/report": 3, "internal/docsync/paced": 3, "internal/demo": 3, "internal/openapitest": 3,

	"internal/rls/xds": 2,
	"answer":           2, "policyfile": 2, "identity/jwks": 2, "internal/cli": 2, "internal/target": 2, "internal/verify": 2, "internal/docsync": 2,
	"internal/sample/sqlite": 2, "internal/handover": 2, "internal/upstream": 2,

	"identity": 1, "memstore": 1, "redisstore": 1, "storetest": 1, "failover": 1, "pacer": 1, "internal/denial": 1, "internal/gateway/pace": 1,
	"internal/poller": 1, "internal/accesslog": 1, "internal/folder": 1, "internal/admin/page": 1, "internal/sample/terms": 1,
	"internal/netfile": 1, "internal/meter": 1, "internal/acme": 1,
	"internal/rls/config": 1,
	"internal/rls":        4,
	"scripts/docsite":     1, "scripts/corpora": 1,

	"": 0, "headers": 0, "internal/wire": 0, "internal/nonblock": 0, "internal/unsent": 0, "internal/lease": 0, "internal/plaintext": 0, "internal/uplot": 0,
	"internal/wait": 0, "internal/notice": 0, "internal/owned": 0, "internal/grpcdrain": 0, "internal/pages": 0, "internal/headroom": 0, "internal/logtest": 0, "clients/js": 0,
}

// floorOf returns a package's floor. Examples are on the top floor, as users are.
func floorOf(name string) (floor int, ok bool) {
	if strings.HasPrefix(name, "examples/") {
		return 8, true
	}
	floor, ok = floors[name]
	return floor, ok
}

// A listed package is one entry of go list.
type listed struct {
	ImportPath, Dir, Name, Doc string
	GoFiles                    []string
	TestGoFiles, XTestGoFiles  []string
	Imports, Deps              []string
}

// name is the package's path inside the module, empty for the root.
func (p listed) name() string { return strings.Trim(strings.TrimPrefix(p.ImportPath, module), "/") }

func packages(t *testing.T) []listed {
	t.Helper()
	all, err := list()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// list runs go list once.
var list = sync.OnceValues(func() (all []listed, err error) {
	cmd := exec.Command("go", "list", "-json", "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if len(all) < 5 {
		return nil, fmt.Errorf("go list found %d packages; it looked in the wrong place", len(all))
	}
	return all, nil
})

func standard(path string) bool { return !strings.Contains(strings.Split(path, "/")[0], ".") }

func TestImportsPointDownwards(t *testing.T) {
	for _, p := range packages(t) {
		floor, ok := floorOf(p.name())
		if !ok {
			t.Errorf("package %q has no floor: give it one in floors, and in the picture of docs/architecture.md", p.name())
			continue
		}
		for _, imported := range p.Imports {
			if imported != module && !strings.HasPrefix(imported, module+"/") {
				continue
			}
			below, ok := floorOf(listed{ImportPath: imported}.name())
			if !ok || below >= floor {
				t.Errorf("%s (floor %d) imports %s (floor %d): imports point down, so that each floor can be used without those above",
					p.ImportPath, floor, imported, below)
			}
		}
	}
}

// The picture of the floors shows exactly the packages that exist.
func TestTheFloorsAndTheirPictureShowEveryPackage(t *testing.T) {
	picture, _, _ := strings.Cut(documents(t)["docs/architecture.md"], "## One request")
	there := map[string]bool{}
	for _, p := range packages(t) {
		there[p.name()] = true
		last := p.name()[strings.LastIndex(p.name(), "/")+1:]
		if !strings.HasPrefix(p.name(), "examples/") && !strings.Contains(picture, last) {
			t.Errorf("the picture of docs/architecture.md lacks %s", p.ImportPath)
		}
	}
	for name := range floors {
		if !there[name] {
			t.Errorf("there is no package %q: take it out of floors", name)
		}
	}
}

func TestThePackagesThatServicesEmbedStayLean(t *testing.T) {
	// The imports that a floor-0 package may have in addition to the standard
	// library.
	allowed := map[string][]string{"": nil, "headers": nil, "identity": {module, "github.com/golang-jwt/jwt/v5"}}
	for _, p := range packages(t) {
		extra, ok := allowed[p.name()]
		if !ok {
			continue
		}
		for _, imported := range p.Imports {
			if !standard(imported) && !slices.Contains(extra, imported) {
				t.Errorf("%s imports %s: a service that embeds the limiter compiles the standard library and no server", p.ImportPath, imported)
			}
		}
		if p.name() == "" && slices.Contains(p.Deps, "net/http") {
			t.Errorf("%s depends on net/http: the core is independent of its transports", p.ImportPath)
		}
	}
}

func TestPackageAnswerDoesNotImportNetHTTP(t *testing.T) {
	for _, p := range packages(t) {
		if p.name() != "answer" {
			continue
		}
		for _, imported := range p.Imports {
			if imported == "net/http" || strings.HasPrefix(imported, "net/http/") || strings.HasPrefix(imported, "google.golang.org/") {
				t.Errorf("%s imports %s: transports other than net/http share the answers; package httplimit is for net/http", p.ImportPath, imported)
			}
		}
	}
}

func TestClientPackagesImportNoServerCode(t *testing.T) {
	for _, p := range packages(t) {
		if p.name() != "pacer" {
			continue
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module) && imported != module && imported != module+"/headers" {
				t.Errorf("%s imports %s: a caller needs the fields and the words, nothing that serves", p.ImportPath, imported)
			}
		}
	}
}

func TestWhatIsForTestsIsImportedOnlyByTests(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.name(), "e2e/") {
			continue
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module+"/e2e/") {
				t.Errorf("%s imports %s outside its tests: it starts processes", p.ImportPath, imported)
			}
			if imported == module+"/internal/logtest" || imported == module+"/internal/openapitest" {
				t.Errorf("%s imports %s outside its tests: no program needs it", p.ImportPath, imported)
			}
		}
	}
}

func TestOnlyPackagesThatUseProtobufImportIt(t *testing.T) {
	// the collector of traces; Envoy
	doors := []string{"internal/telemetry", "internal/rls", "internal/rls/xds"}
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, "google.golang.org/protobuf") && !slices.Contains(doors, p.name()) {
				t.Errorf("%s imports %s: protobuf types live in %v and nowhere else", p.ImportPath, imported, doors)
			}
		}
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	for _, p := range packages(t) {
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("%s has no package comment beginning with %q: a reader starts there", p.ImportPath, want)
		}
	}
}

// A house rule forbids a call or a declaration, for a reason.
var houseRules = []struct {
	pkg, name string // a function of an imported package; pkg empty: a function declared here
	testsOnly bool
	reason    string
}{
	{"", "init", false, "what runs before main cannot be passed anything, and cannot fail"},
	{"time", "Sleep", true, "a test that sleeps is slow, and still fails on a slow machine; pass the time in, or use testing/synctest"},
	{"t", "Skip", true, "a skipped test proves nothing and looks green; make test installs what it needs"},
	{"t", "Skipf", true, "a skipped test proves nothing and looks green; make test installs what it needs"},
	{"t", "SkipNow", true, "a skipped test proves nothing and looks green; make test installs what it needs"},
	{"b", "Skip", true, "a skipped benchmark measures nothing and looks fine"},
	{"f", "Skip", true, "a skipped fuzz target proves nothing and looks green"},
}

func TestHouseRules(t *testing.T) {
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			checkHouseRules(t, filepath.Join(p.Dir, name))
		}
	}
}

func checkHouseRules(t *testing.T, path string) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	bubble := false // true in a synctest bubble, where a sleep takes no time
	for _, i := range f.Imports {
		bubble = bubble || i.Path.Value == `"testing/synctest"`
	}
	short := map[ast.Node]bool{} // skipped only with -short
	complain := func(n ast.Node, pkg, name string) {
		if bubble && name == "Sleep" || short[n] {
			return
		}
		for _, rule := range houseRules {
			if rule.pkg == pkg && rule.name == name && (!rule.testsOnly || strings.HasSuffix(path, "_test.go")) {
				t.Errorf("%v: %s: %s", files.Position(n.Pos()), strings.Trim(pkg+"."+name, "."), rule.reason)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			if isShort(n.Cond) {
				markSkips(n.Body, short)
			}
		case *ast.FuncDecl:
			if n.Recv == nil {
				complain(n, "", n.Name.Name)
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				complain(n, x.Name, n.Sel.Name)
			}
		}
		return true
	})
}

// isShort reports whether a condition is testing.Short().
func isShort(cond ast.Expr) bool {
	call, ok := cond.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := f.X.(*ast.Ident)
	return ok && x.Name == "testing" && f.Sel.Name == "Short"
}

// markSkips marks the calls of Skip whose reason begins with "-short: ".
func markSkips(body *ast.BlockStmt, short map[ast.Node]bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 1 {
			reason, ok := call.Args[0].(*ast.BasicLit)
			short[call.Fun] = ok && strings.HasPrefix(reason.Value, `"-short: `)
		}
		return true
	})
}

// startsProcesses lists the files outside e2e whose tests may start a process, and why.
var startsProcesses = map[string]string{
	"cmd/weir/house_test.go":  "go list knows the packages",
	"memstore/child_test.go":  "it kills copies of its own test binary; not with -short",
	"pacer/file_test.go":      "copies of its own test binary share a file; not with -short",
	"storetest/plain_test.go": "it runs its own test binary with faulty stores; not with -short",
}

// The tests of make check need only Go: no Redis, nginx or browser.
func TestTestsThatStartProcessesAreInE2E(t *testing.T) {
	forbidden := []string{`"os/exec"`, `"github.com/chromedp/chromedp"`, `"` + module + `/e2e/redistest"`, `"` + module + `/e2e/nginxtest"`, `"` + module + `/e2e/apptest"`}
	used := 0
	for _, p := range packages(t) {
		if strings.HasPrefix(p.name(), "e2e/") {
			continue
		}
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				if !slices.Contains(forbidden, i.Path.Value) {
					continue
				}
				path := filepath.ToSlash(filepath.Join(p.name(), name))
				if startsProcesses[path] == "" || i.Path.Value != `"os/exec"` {
					t.Errorf("%s imports %s: a test that starts a process belongs in e2e", path, i.Path.Value)
				}
				used++
			}
		}
	}
	if used != len(startsProcesses) {
		t.Errorf("%d files start processes, and startsProcesses lists %d", used, len(startsProcesses))
	}
}

func TestFilesAreShort(t *testing.T) {
	// Lines of a file. The aim is 400; tables of cases may be longer.
	const maxLines, maxTestLines = 500, 600
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			files := token.NewFileSet()
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if ast.IsGenerated(f) {
				continue
			}
			allowed := maxLines
			if strings.HasSuffix(name, "_test.go") {
				allowed = maxTestLines
			}
			if lines := files.File(f.Pos()).LineCount(); lines > allowed {
				t.Errorf("%s has %d lines, more than %d: one file, one thing to read", filepath.Join(p.name(), name), lines, allowed)
			}
		}
	}
}

// A template looks methods up by name. If one is linked in, the linker keeps every exported method
// of every type, and the program is 40 % larger (docs/adr/0041-what-is-in-a-release.md).
func TestNoPackageOfTheProgramUsesTemplates(t *testing.T) {
	for _, p := range packages(t) {
		if p.name() != "cmd/weir" && !strings.HasPrefix(p.name(), "internal/") && strings.Contains(p.name(), "/") {
			continue // examples and tests
		}
		for _, imported := range p.Imports {
			if imported == "text/template" || imported == "html/template" {
				t.Errorf("%s imports %s: write the text in Go, or compile it with quicktemplate as internal/replay/report does", p.ImportPath, imported)
			}
		}
	}
}
