package weir

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/nginxtest"
)

// The test does each task as a reader would. It writes the files, builds the
// programs, types the commands, and compares their output with the page. If it
// cannot run a block, that is an error.
func TestEveryTaskOfTheCookbookWorks(t *testing.T) {
	all := sections(readText(t, repository+"/docs/cookbook.md"))
	if len(all) < 31 || len(all[0].blocks) != 1 || all[0].blocks[0].kind != "sh" {
		t.Fatalf("docs/cookbook.md has %d sections: want the shared one, and 30 tasks or more", len(all))
	}
	shared := all[0].blocks[0].text
	for _, task := range all[1:] {
		t.Run(task.title, func(t *testing.T) {
			t.Parallel()
			shell := newReadersShell(t, "docs/cookbook.md: "+task.title)
			shell.block(shared)
			shows := false
			for _, b := range task.blocks {
				shell.do(b)
				shows = shows || b.kind == "sh" && strings.HasPrefix(b.text, "$ ")
			}
			if !shows {
				t.Error("no command shows that it works")
			}
		})
	}
}

// The quick start and the page of each question are read from top to bottom, by a reader who has
// only that page.
func TestEveryQuestionIsAnsweredByCommandsThatWork(t *testing.T) {
	pages, err := filepath.Glob(repository + "/docs/questions/*.md")
	if err != nil || len(pages) < 13 {
		t.Fatalf("docs/questions has %d pages, want 13 or more: %v", len(pages), err)
	}
	for _, path := range append(pages, repository+"/docs/quickstart.md") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".md"), func(t *testing.T) {
			t.Parallel()
			shell, commands := newReadersShell(t, filepath.Base(path)), 0
			for _, section := range sections(readText(t, path)) {
				for _, b := range section.blocks {
					shell.do(b)
					commands += strings.Count("\n"+b.text, "\n$ ")
				}
			}
			if commands < 2 {
				t.Errorf("the page shows %d commands, want 2 or more", commands)
			}
		})
	}
}

// do does what a reader does with a block.
func (s *readersShell) do(b block) {
	s.t.Helper()
	kind, name, _ := strings.Cut(b.kind, " ")
	switch {
	case kind == "sh":
		s.block(b.text)
	case kind == "yaml" && strings.Contains(b.text, "limiters:"):
		name = orElse(name, "policy.yaml")
		s.write(name, b.text)
		s.block("$ weir policy check " + name)
	case (kind == "yaml" || kind == "text") && name != "":
		s.write(name, b.text)
	case kind == "nginx":
		const listens = "listen 8000;"
		if !strings.Contains(b.text, listens) {
			s.t.Fatalf("%s: nginx does not %s", s.page, listens)
		}
		server := nginxtest.Start(s.t, strings.Replace(s.real(b.text), listens, "listen LISTEN;", 1))
		s.port("8000", portOf(s.t, server.Addr))
	case kind == "go" && strings.Contains(b.text, `":8000"`):
		s.serveGo(b.text)
	case kind == "go":
		s.program = b.text // built when it runs, because only then the servers' ports are known
	default:
		s.t.Errorf("%s: this block is not run:\n%s %s\n%s", s.page, kind, name, b.text)
	}
}
