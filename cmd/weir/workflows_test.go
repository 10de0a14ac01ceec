package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A tag of an action can be moved to other code, which then runs with the rights of our workflows.
func TestActionsOfWorkflowsArePinnedByCommit(t *testing.T) {
	workflows, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	uses := regexp.MustCompile(`\buses: *(.*)`)
	pinned := regexp.MustCompile(`^[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	commits := map[string]string{} // of each action
	for _, path := range workflows {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range uses.FindAllStringSubmatch(string(text), -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s uses %s: write OWNER/NAME@COMMIT # vX.Y.Z, with all 40 digits of the commit", filepath.Base(path), m[1])
			}
			action, commit, _ := strings.Cut(m[1], "@")
			if other, ok := commits[action]; ok && other != commit {
				t.Errorf("%s uses %s at %s, and another job at %s", filepath.Base(path), action, commit, other)
			}
			commits[action] = commit
		}
	}
	if len(commits) == 0 {
		t.Error("no workflow uses an action; the expression of this test may be wrong")
	}
}
