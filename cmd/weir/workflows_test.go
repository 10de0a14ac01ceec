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

// The tag of an image can be moved as well.
func TestImagesOfWorkflowsArePinnedByDigest(t *testing.T) {
	workflows, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	image := regexp.MustCompile(`\b(?:container|image): *(\S.*)`)
	pinned := regexp.MustCompile(`^[\w./-]+:\d+\.\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}$`)
	digests := map[string]string{} // of each image
	for _, path := range workflows {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range image.FindAllStringSubmatch(string(text), -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s runs in %s: write NAME:X.Y.Z@sha256:DIGEST", filepath.Base(path), m[1])
			}
			name, digest, _ := strings.Cut(m[1], "@")
			if other, ok := digests[name]; ok && other != digest {
				t.Errorf("%s runs in %s at %s, and another job at %s", filepath.Base(path), name, digest, other)
			}
			digests[name] = digest
		}
	}
	if len(digests) == 0 {
		t.Error("no workflow runs in an image; the expression of this test may be wrong")
	}
}
