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
	checkPins(t, `\buses: *(.*)`, `^[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`, "uses",
		"OWNER/NAME@COMMIT # vX.Y.Z, with all 40 digits of the commit")
}

// The tag of an image can be moved as well.
func TestImagesOfWorkflowsArePinnedByDigest(t *testing.T) {
	checkPins(t, `\b(?:container|image): *(\S.*)`, `^[\w./-]+:\d+\.\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}$`, "runs in",
		"NAME:X.Y.Z@sha256:DIGEST")
}

// checkPins checks that what the workflows refer to is pinned, and everywhere to the same. The
// first group of refers is NAME@PIN. Messages say that a workflow uses, or runs in, one,
// and how it is to be written.
func checkPins(t *testing.T, refers, pinned, uses, written string) {
	t.Helper()
	workflows, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	refersTo, isPinned := regexp.MustCompile(refers), regexp.MustCompile(pinned)
	pins := map[string]string{} // by name
	for _, path := range workflows {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range refersTo.FindAllStringSubmatch(string(text), -1) {
			if !isPinned.MatchString(m[1]) {
				t.Errorf("%s %s %s: write %s", filepath.Base(path), uses, m[1], written)
			}
			name, pin, _ := strings.Cut(m[1], "@")
			if other, ok := pins[name]; ok && other != pin {
				t.Errorf("%s %s %s at %s, and another job at %s", filepath.Base(path), uses, name, pin, other)
			}
			pins[name] = pin
		}
	}
	if len(pins) == 0 {
		t.Errorf("no workflow %s anything: the expression %s may be wrong", uses, refers)
	}
}
