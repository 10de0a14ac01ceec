//go:build !race

// One goroutine reads files: the race detector would only make that slow.

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/cli"

	"github.com/spf13/cobra"
)

// A promise of a later feature becomes false once the feature exists, and is easily
// forgotten. So no text names what is missing: it describes what the program does.
var (
	promises = regexp.MustCompile(`(?i:\b(not in (this|the present) version|in a (later|future) (version|release)|coming soon|not (yet )?(implemented|supported)|` +
		`unimplemented|no (metrics|shadow mode)|work in progress|for the time being)\b)|\b(TODO|FIXME|TBD|XXX)\b`)
	// Only for texts that people read; in code these words describe data.
	unfinished = regexp.MustCompile(`(?i)\b(not yet|for now)\b`)
)

// stale returns the promises in a text.
func stale(text string, forPeople bool) []string {
	found := promises.FindAllString(text, -1)
	if forPeople {
		found = append(found, unfinished.FindAllString(text, -1)...)
	}
	return found
}

func TestStalePhrasesAreFound(t *testing.T) {
	for _, text := range []string{"Shadow mode is\nnot in this version.", "coming soon", "// TODO: more", "in a later version", "it is not yet there", "There are no metrics."} {
		if len(stale(strings.Join(strings.Fields(text), " "), true)) == 0 {
			t.Errorf("%q is not found", text)
		}
	}
	for _, text := range []string{"it was made by a later version", "unsupported_media_type", "the todo list", "203.0.113.xxx"} {
		if found := stale(text, true); found != nil {
			t.Errorf("%q: %v", text, found)
		}
	}
}

func TestNoTextPromisesALaterFeature(t *testing.T) {
	forPeople := []string{".md", ".yaml", ".yml", ".conf", ".service", ".socket", ".html", ".json"}
	read := 0
	err := fs.WalkDir(os.DirFS(repository), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || path == "internal/uplot") {
			return fs.SkipDir // files of other projects
		}
		people := slices.Contains(forPeople, filepath.Ext(path)) && !strings.Contains(path, "testdata")
		if d.IsDir() || !people && !slices.Contains([]string{".go", ".txtar", ".js", ".sql"}, filepath.Ext(path)) || d.Name() == "stale_test.go" {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			return err
		}
		read++
		// A phrase may span two lines.
		words := strings.Join(strings.Fields(strings.ReplaceAll(string(b), "\n//", "\n")), " ")
		for _, phrase := range stale(words, people) {
			t.Errorf("%s contains %q: describe what exists, or build it", path, phrase)
		}
		return nil
	})
	if err != nil || read < 300 {
		t.Errorf("%d files were read: %v", read, err)
	}
}

func TestNoHelpPromisesALaterFeature(t *testing.T) {
	pages := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			look(below)
		}
		var help bytes.Buffer
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		if code := run(args, nil, strings.NewReader(""), &help, &help); code != cli.Done {
			t.Errorf("weir %v: status %d", args, code)
		}
		pages++
		for _, phrase := range stale(strings.Join(strings.Fields(help.String()), " "), true) {
			t.Errorf("weir %s prints %q: describe what exists, or build it", strings.Join(args, " "), phrase)
		}
	}
	look(newRoot(cli.ParseEnvironment(nil)))
	if pages < 20 {
		t.Errorf("%d pages of help", pages)
	}
}
