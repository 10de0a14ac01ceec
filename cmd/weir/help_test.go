package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
)

// A terminal breaks longer lines within words. The table of flags has lines of its own form.
func TestTheTextsOfHelpHaveShortLines(t *testing.T) {
	const columns = 125
	texts := 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for line := range strings.SplitSeq(cmd.Long, "\n") {
			if texts++; len([]rune(line)) > columns {
				t.Errorf("%s --help has a line of %d columns, at most %d are allowed: %s", cmd.CommandPath(), len([]rune(line)), columns, line)
			}
		}
		for _, child := range cmd.Commands() {
			check(child)
		}
	}
	check(newRoot(cli.Environment{}))
	if texts < 50 {
		t.Errorf("only %d lines of help were read", texts)
	}
}

// Without a terminal, as in a page, each flag has one line.
func TestTheTableOfFlagsFitsTheTerminal(t *testing.T) {
	const columns = 80
	wrapped := 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		usage := cmd.UsageString()
		_, table, _ := strings.Cut(cli.WrapFlags(cmd, usage, columns), "\nFlags:\n")
		for line := range strings.SplitSeq(table, "\n") {
			if len([]rune(line)) > columns {
				t.Errorf("%s --help has a line of %d columns: %s", cmd.CommandPath(), len([]rune(line)), line)
			}
		}
		_, whole, _ := strings.Cut(usage, "\nFlags:\n")
		if strings.Count(table, "\n") > strings.Count(whole, "\n") {
			wrapped++
		}
		if one, other := strings.Join(strings.Fields(table), " "), strings.Join(strings.Fields(whole), " "); one != other {
			t.Errorf("%s --help has other words if it is wrapped:\n%s\n%s", cmd.CommandPath(), one, other)
		}
		for _, child := range cmd.Commands() {
			check(child)
		}
	}
	check(newRoot(cli.Environment{}))
	if wrapped < 10 {
		t.Errorf("only %d commands have descriptions that were wrapped", wrapped)
	}
}

// "--json on" is an argument too many: the value of a switch follows an equals sign.
func TestHelpAndPagesShowSwitchesAsTheyAreWritten(t *testing.T) {
	root, switches := newRoot(cli.Environment{}), 0
	for name, page := range commandPages(root) {
		if line := regexp.MustCompile(`--[a-z-]+ on\|off.*`).Find(page); line != nil {
			t.Errorf("docs/commands/%s: %s", name, line)
		}
		switches += strings.Count(string(page), "[=on|off]`: ")
	}
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		usage := cmd.UsageString()
		if line := regexp.MustCompile(`--[a-z-]+ on\|off.*`).FindString(usage); line != "" {
			t.Errorf("%s --help: %s", cmd.CommandPath(), line)
		}
		switches -= strings.Count(usage, "[=on|off]  ")
		for _, child := range cmd.Commands() {
			check(child)
		}
	}
	check(root)
	if switches != 0 {
		t.Errorf("the pages have %d switches more than the help", switches)
	}
}

var cookbookTask = regexp.MustCompile(`(?m)^## .+$`)

// Whoever looks for a task reads the list at the top of the page.
func TestTheCookbookListsEachOfItsTasks(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(repository, "docs/cookbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	list, tasks, found := strings.Cut(string(b), "\n## ")
	if !found {
		t.Fatal("docs/cookbook.md has no task")
	}
	for _, task := range cookbookTask.FindAllString("## "+tasks, -1) {
		for anchor := range anchors(task) {
			if !strings.Contains(list, "(#"+anchor+")") {
				t.Errorf("the list at the top of docs/cookbook.md has no link to %q", task)
			}
		}
	}
}
