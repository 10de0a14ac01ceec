package weir

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A section is a heading of a page with the blocks below it.
type section struct {
	title  string
	blocks []block
}

// A block is a page's text between fences; kind is the rest of the first fence's
// line.
type block struct{ kind, text string }

// sections returns the sections of a page that have blocks.
func sections(text string) (all []section) {
	for _, part := range regexp.MustCompile(`(?m)^#+ `).Split(maskFences(text), -1) {
		title, rest, _ := strings.Cut(part, "\n")
		one := section{title: title}
		for _, m := range fence.FindAllStringSubmatch(strings.ReplaceAll(rest, masked, "#"), -1) {
			one.blocks = append(one.blocks, block{m[1], m[2]})
		}
		if len(one.blocks) > 0 {
			all = append(all, one)
		}
	}
	return all
}

// masked replaces # inside fences, because it does not start a heading there.
const masked = "\x00"

func maskFences(text string) string {
	return fence.ReplaceAllStringFunc(text, func(s string) string { return strings.ReplaceAll(s, "#", masked) })
}

// The test types the README's sessions into a shell, checks its policies, and runs
// its program. The API at hand answers as most do: JSON without a line feed at its
// end. The policies get no warning.
func TestTheReadmesSessionsPrintWhatItShows(t *testing.T) {
	kinds := map[string]int{}
	for _, part := range sections(readText(t, repository+"/README.md")) {
		for _, b := range part.blocks {
			kinds[b.kind]++
		}
		t.Run(part.title, func(t *testing.T) {
			shell := newReadersShell(t, "README.md: "+part.title)
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"error":null}`) }))
			t.Cleanup(api.Close)
			shell.port("3000", portOf(t, api.Listener.Addr().String()))
			for _, b := range part.blocks {
				switch b.kind {
				case "sh":
					shell.block(b.text)
				case "yaml":
					shell.write("policy.yaml", b.text)
					shell.block("$ weir policy check policy.yaml\npolicy.yaml: valid, …")
				case "go":
					if !strings.Contains(b.text, "policyfile.") {
						shell.serveGo(b.text)
						shell.block("$ curl -s -o /dev/null -w '%header{x-ratelimit-remaining}\\n' localhost:8000/[1-2]\n99\n98\n")
						continue
					}
					shell.write("policy.yaml", "limiters: [{name: api, routes: [/*], windows: [2 per minute by customer or ip]}]")
					shell.serveGo(b.text)
					shell.block("$ " + statusOf("-H 'X-Api-Key: one' localhost:8000/[1-3]") + "\n200\n200\n429\n" +
						"$ " + statusOf("-H 'X-Api-Key: two' localhost:8000/") + "\n200\n" +
						"$ " + statusOf("-H 'X-Api-Key: three' localhost:8000/[1-3]") + "\n200\n200\n429\n")
				}
			}
		})
	}
	if kinds["sh"] != 4 || kinds["yaml"] != 2 || kinds["go"] != 3 {
		t.Errorf("the README's blocks are %v: want four of commands, two policies and three programs", kinds)
	}
}

func statusOf(args string) string { return `curl -s -o /dev/null -w '%{http_code}\n' ` + args }

// imported are the packages that a page's programs may use.
var imported = []string{
	"errors", "fmt", "io", "log", "net/http", "net/netip", "os", "strings", "time",
	module, module + "/httplimit", module + "/identity", module + "/memstore", module + "/pacer", module + "/policyfile",
}

// program returns a program with a page's lines as its main function. It adds the
// imports, and declares the variables that the page omits.
func program(lines string) string {
	var p strings.Builder
	p.WriteString("package main\n\nimport (\n")
	for _, path := range imported {
		if strings.Contains(lines, filepath.Base(path)+".") {
			p.WriteString("\t\"" + path + "\"\n")
		}
	}
	p.WriteString(")\n\nfunc main() {\n")
	given := map[string]string{
		"customers":   `map[string]string{"one": "first", "two": "second"}`,
		"yourHandler": `http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) })`,
	}
	for _, name := range []string{"customers", "yourHandler"} {
		if strings.Contains(lines, name) {
			p.WriteString("\t" + name + " := " + given[name] + "\n")
		}
	}
	p.WriteString(lines)
	if regexp.MustCompile(`(?m)^\S.*err :=`).MatchString(lines) {
		p.WriteString("\t_ = err // the page omits error handling\n")
	}
	return p.String() + "}\n"
}

// build compiles a page's lines, and returns the program's file.
func (s *readersShell) build(lines string) string {
	s.t.Helper()
	s.write("main.go", program(lines))
	built := filepath.Join(s.dir, "program")
	cmd := exec.CommandContext(s.t.Context(), "go", "build", "-o", built, filepath.Join(s.dir, "main.go"))
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", s.page, err, out)
	}
	return built
}

// serveGo runs a page's program that listens on :8000.
func (s *readersShell) serveGo(lines string) {
	s.t.Helper()
	if !strings.Contains(lines, `":8000"`) {
		s.t.Fatalf("%s: the program does not listen on :8000:\n%s", s.page, lines)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	address := l.Addr().String()
	built := s.build(strings.Replace(lines, `":8000"`, `"`+address+`"`, 1))
	if err := l.Close(); err != nil { // the program takes the port
		s.t.Fatal(err)
	}
	s.port("8000", portOf(s.t, address))
	out, status, err := s.run(built + ` &
until (: </dev/tcp/127.0.0.1/` + portOf(s.t, address) + `) || ! kill -0 $!; do sleep 0.05; done 2>/dev/null
kill -0 $!`)
	if err != nil || status != 0 {
		s.t.Fatalf("%s: the program does not listen: %v\n%s", s.page, err, out)
	}
}

// The test runs the tour's commands in order: a 429, an answer from a document, and
// a sync.
func TestTheToursCommandsPrintWhatItShows(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	port := serveShown(t, data, nil, "--listen=127.0.0.1:0", "--data="+data)
	var blocks []string
	for _, m := range fence.FindAllStringSubmatch(readText(t, repository+"/docs/tour.md"), -1) {
		blocks = append(blocks, m[2])
	}
	find := func(begin string) int {
		for i, block := range blocks {
			if strings.HasPrefix(block, begin) {
				return i
			}
		}
		t.Fatalf("no block begins with %s", begin)
		return 0
	}
	here := strings.NewReplacer("localhost:8080", "127.0.0.1:"+port, "curl -sN", "curl -sN --max-time 5")
	env := []string{"PATH=" + filepath.Dir(path) + ":" + os.Getenv("PATH"), "WEIR_DATA=" + data}
	leads, documents, folder := find("SESSION="), find("TOKEN="), find("export WEIR_TOKEN=")
	dir := t.TempDir() // with the folder to push, which gets a file of its own
	if err := os.CopyFS(filepath.Join(dir, "docs"), os.DirFS(repository+"/docs")); err != nil {
		t.Fatal(err)
	}
	run := func(script string) string {
		return strings.ReplaceAll(shell(t, dir, env, here.Replace(script)), "\r", "")
	}
	refused := run(blocks[leads])
	if !printsAs(strings.TrimSpace(blocks[leads+1]), refused) {
		t.Errorf("a lead too many is answered\n%s\nand the tour shows\n%s", refused, blocks[leads+1])
	}
	session, _, _ := strings.Cut(blocks[leads], "\nfor ")
	answered := run(session + "\n" + blocks[documents] + "\ntrue # --max-time ends the feed")
	found := strings.Contains(answered, "“We are open from nine to five")
	delivered := strings.Count(answered, `"type":"message.created"`) == 2
	if !found || !delivered || strings.Contains(answered, `"error"`) {
		t.Errorf("a document, a question and the feed are answered\n%s", answered)
	}
	if pushed := run(blocks[folder]); strings.Contains(pushed, "error") {
		t.Errorf("the folder is pushed:\n%s", pushed)
	}
}
