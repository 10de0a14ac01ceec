package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/policyfile"
)

// The documents are checked: links resolve, the tests they name exist, and examples
// are real.

const repository = "../.."

// documents returns every page for people, by its path from the repository's root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	read := func(path string) {
		b, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.ToSlash(path)] = string(b)
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"} {
		read(name)
	}
	err := fs.WalkDir(os.DirFS(repository), "docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			read(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"docs/contract.md", "docs/policy.md", "docs/exactness.md"} {
		if all[page] == "" {
			t.Fatalf("%s is missing", page)
		}
	}
	return all
}

// A link is [text](target) in a page, outside of fences.
var linkForm = regexp.MustCompile(`\[([^\]\n]+)\]\(([^)\s]+)\)`)

var fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

func TestNoPlaceholderIsLeft(t *testing.T) {
	for page, text := range documents(t) {
		for i, line := range strings.Split(text, "\n") {
			if strings.Contains(line, "@@") {
				t.Errorf("%s:%d: a placeholder is left: %s", page, i+1, line)
			}
		}
	}
}

func TestThePagesThatInstallLeadToTheReleases(t *testing.T) {
	pages := documents(t)
	for _, page := range []string{"README.md", "docs/install.md", "docs/quickstart.md"} {
		if !strings.Contains(pages[page], "](https://github.com/weirlimit/weir/releases)") {
			t.Errorf("%s has no link to the releases", page)
		}
	}
}

// Start-up prints "listening" before, as the name of a row.
func TestThePagesAgreeOnWhenAServerIsReady(t *testing.T) {
	said := 0
	for page, text := range documents(t) {
		for _, m := range regexp.MustCompile(`ready when it\s+prints\s+(\S+)`).FindAllStringSubmatch(text, -1) {
			if said++; !strings.HasPrefix(m[1], "`ready`") {
				t.Errorf("%s: a server is ready when it prints %s: it prints ready, as startup.go does", page, m[1])
			}
		}
	}
	if said < 4 {
		t.Errorf("%d pages say when a server is ready, want 4 or more", said)
	}
}

func TestEveryLinkOfTheDocumentsResolves(t *testing.T) {
	pages := documents(t)
	for page, text := range pages {
		for _, m := range linkForm.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[2], "://") || strings.HasPrefix(m[2], "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(m[2], "#")
			target := page
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), file))
			}
			_, err := os.Stat(filepath.Join(repository, target))
			if err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[2])
			}
			to, listed := pages[target]
			// a page of a client, which is not among the documents
			if !listed && anchor != "" && err == nil {
				text, err := os.ReadFile(filepath.Join(repository, target))
				if err != nil {
					t.Fatal(err)
				}
				to = string(text)
			}
			if anchor != "" && !anchors(to)[anchor] {
				t.Errorf("%s links to %s, and %s has no such heading", page, m[2], target)
			}
		}
	}
}

// anchors returns the names that headings can be linked by.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.SplitSeq(fence.ReplaceAllString(text, ""), "\n") {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			all[strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
					return unicode.ToLower(r)
				}
				return -1
			}, strings.TrimSpace(title))] = true
		}
	}
	return all
}

// functions returns the functions that a Go file declares.
func functions(t *testing.T, path string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	all := map[string]bool{}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
			all[fn.Name.Name] = true
		}
	}
	return all
}

var goName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func TestEveryTestInTheDocumentsExists(t *testing.T) {
	declared := map[string]map[string]bool{}
	named := 0
	for page, text := range documents(t) {
		for _, m := range linkForm.FindAllStringSubmatch(text, -1) {
			name := strings.Trim(m[1], "`")
			if !strings.HasSuffix(m[2], ".go") || !goName.MatchString(name) || strings.Contains(m[2], "://") {
				continue
			}
			file := filepath.Join(repository, filepath.Dir(page), m[2])
			if declared[file] == nil {
				declared[file] = functions(t, file)
			}
			if named++; !declared[file][name] {
				t.Errorf("%s: %s does not declare %s", page, m[2], name)
			}
		}
	}
	if named < 50 {
		t.Errorf("the documents name %d tests: docs/contract.md names one for every clause", named)
	}
}

// Every row of a table with the column "Proof" names a test, or gives the reason if
// there is none.
func TestEveryClauseHasItsProof(t *testing.T) {
	for page, text := range documents(t) {
		proof := false
		for i, line := range strings.Split(text, "\n") {
			if !strings.HasPrefix(line, "|") {
				proof = false
				continue
			}
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			last := strings.TrimSpace(cells[len(cells)-1])
			switch {
			case last == "Proof":
				proof = true
			case !proof || strings.Trim(last, "-: ") == "":
			case strings.Contains(last, "](") || strings.Contains(last, "not stated"):
			default:
				t.Errorf("%s:%d: neither a test nor the reason why there is none: %s", page, i+1, line)
			}
		}
	}
}

func TestEveryDecisionIsInTheContractPage(t *testing.T) {
	text := documents(t)["docs/contract.md"]
	for n := 1; n <= 26; n++ {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^\| \*\*D%d\*\*`, n)).MatchString(text) {
			t.Errorf("docs/contract.md has no row for D%d", n)
		}
	}
	for section := 1; section <= 9; section++ {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d(\.[0-9a-z]+)? `, section)).MatchString(text) {
			t.Errorf("docs/contract.md has no row for section %d of the contract", section)
		}
	}
}

// The page on exactness is at most one page. All its claims are in tables with the
// column "Proof", which the tests above check.
func TestTheExactnessPageProvesItsClaims(t *testing.T) {
	text := documents(t)["docs/exactness.md"]
	if n := strings.Count(text, "\n"); n > 120 {
		t.Errorf("docs/exactness.md has %d lines, more than a page", n)
	}
	tables, proofs := regexp.MustCompile(`(?m)^\|.*\|\n\|[-|]+\|$`).FindAllString(text, -1), 0
	for _, head := range tables {
		if first, _, _ := strings.Cut(head, "\n"); strings.HasSuffix(first, "| Proof |") {
			proofs++
		}
	}
	if proofs < 5 || proofs != len(tables) {
		t.Errorf("of %d tables %d have the column Proof", len(tables), proofs)
	}
}

// A YAML block with a whole policy parses, unless its fence is marked invalid. A
// console block runs with the last policy block above it as policy.yaml, and prints
// what the page shows.
func TestPoliciesAndCommandsOfTheDocumentsAreReal(t *testing.T) {
	pages := documents(t)
	reader := policyReader()
	reader.Networks = func(name string) (weir.Networks, error) {
		return policyfile.ParseNetworks(name, name, nil) // pages name files that they do not have
	}
	dir := t.TempDir()
	// docs/simulate.md replays the logs of this folder.
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(repository, "examples", "simulate"))); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for page, text := range pages {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			switch kind, body := m[1], m[2]; {
			case strings.HasPrefix(kind, "yaml") && strings.Contains(body, "limiters:"):
				_, err := reader.Parse("policy.yaml", []byte(body))
				if invalid := strings.Contains(kind, "invalid"); (err != nil) != invalid {
					t.Errorf("%s: the fence's invalid is %v, and parsing returns %v:\n%s", page, invalid, err, body)
				}
				if err := os.WriteFile("policy.yaml", []byte(body), 0o600); err != nil {
					t.Fatal(err)
				}
			case kind == "console":
				checkConsole(t, page, body)
			}
		}
	}
}

// A shellWord is one word of a command: in single quotes, or without a space.
var shellWord = regexp.MustCompile(`'[^']*'|\S+`)

// checkConsole runs a block of "$ weir …" and compares the output.
func checkConsole(t *testing.T, page, block string) {
	t.Helper()
	for _, one := range strings.Split("\n"+block, "\n$ ")[1:] {
		command, want, _ := strings.Cut(one, "\n")
		words := shellWord.FindAllString(command, -1)
		for i, word := range words {
			words[i] = strings.Trim(word, "'")
		}
		if words[0] != "weir" {
			t.Errorf("%s: %q does not begin with weir", page, command)
			continue
		}
		var printed bytes.Buffer
		run(words[1:], nil, strings.NewReader(""), &printed, &printed)
		if got := strings.TrimSpace(printed.String()); got != strings.TrimSpace(want) {
			t.Errorf("%s: %s prints\n%s\nand the page shows\n%s", page, command, got, strings.TrimSpace(want))
		}
	}
}

// An http block holds a request, and the next block its answer, from a new edge
// with a stopped clock. "http 31" sends the request 31 times. SESSION and TOKEN are
// placeholders for credentials, and … for values that vary.
func TestTheExchangesOfTheDocumentsAreReal(t *testing.T) {
	found := 0
	for page, text := range documents(t) {
		request, times := "", 1
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			kind, body := m[1], m[2]
			if kind != "http" && !strings.HasPrefix(kind, "http ") {
				continue
			}
			if !strings.HasPrefix(body, "HTTP/") {
				request, times = body, 1
				if _, err := fmt.Sscanf(kind, "http %d", &times); err != nil {
					times = 1
				}
				continue
			}
			if request == "" {
				t.Errorf("%s: an answer has no request:\n%s", page, body)
				continue
			}
			checkExchange(t, page, request, times, body)
			request = ""
			found++
		}
	}
	if found == 0 {
		t.Error("no document shows an exchange")
	}
}

func checkExchange(t *testing.T, page, request string, times int, want string) {
	t.Helper()
	handler, token := stillEdge(t)
	answer := serveText(t, handler, "POST /api/v1/widget/init\nContent-Type: application/json\n\n{\"agent_id\":\"demo\"}\n")
	session := regexp.MustCompile(`"token":"([^"]*)"`).FindStringSubmatch(answer)
	if session == nil {
		t.Fatalf("no session in:\n%s", answer)
	}
	if strings.Contains(request, "/init") {
		handler, _ = stillEdge(t)
	}
	request = strings.NewReplacer("SESSION", session[1], "TOKEN", token).Replace(request)
	for range times {
		answer = serveText(t, handler, request)
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", `[^"]*`)
	if !regexp.MustCompile("^" + pattern + "$").MatchString(strings.TrimSpace(answer)) {
		t.Errorf("%s: the answer to\n%s\nis\n%s\nand the page shows\n%s", page, request, answer, want)
	}
}

// stillEdge assembles an edge at 2027-01-15 08:00:00 UTC, and creates a token.
func stillEdge(t *testing.T) (handler http.Handler, token string) {
	t.Helper()
	f := defaultServeFlags()
	policy, err := readDocument(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Unix(1_800_000_000, 0) }
	f.listen, f.admin, f.data, f.accessLog = "127.0.0.1:0", cli.AdminAddr{}, t.TempDir(), false
	c := f.config(policy, slog.New(slog.DiscardHandler), io.Discard)
	c.Now = now
	e, err := edge.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	var out bytes.Buffer
	if code := run([]string{"token", "create", "--workspace", "demo", "--data", f.data}, nil, strings.NewReader(""), &out, io.Discard); code != 0 {
		t.Fatalf("weir token create: status %d", code)
	}
	return e.Handler(), strings.TrimSpace(out.String())
}

// serveText sends a request given as text and returns the answer as text. Fields
// are in alphabetical order; those about the body's transfer are left out.
func serveText(t *testing.T, handler http.Handler, text string) string {
	t.Helper()
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	method, target, _ := strings.Cut(lines[0], " ")
	r := httptest.NewRequest(method, target, strings.NewReader(strings.TrimSuffix(body, "\n")))
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	header := w.Result().Header // as it was sent
	header.Del("Content-Length")
	var fields bytes.Buffer
	if err := header.Write(&fields); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("HTTP/1.1 %d %s\n%s\n%s", w.Code, http.StatusText(w.Code), strings.ReplaceAll(fields.String(), "\r", ""), w.Body)
}
