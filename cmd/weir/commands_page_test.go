package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/cli"
)

const commandsDirectory = repository + "/docs/commands"

// docs/commands has a page for each command, with every flag. The pages are made of the commands
// themselves.
func TestThePagesOfTheCommandsAreCurrent(t *testing.T) {
	want := commandPages(newRoot(cli.Environment{}))
	if *update {
		if err := os.RemoveAll(commandsDirectory); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(commandsDirectory, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, page := range want {
			if err := os.WriteFile(filepath.Join(commandsDirectory, name), page, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	const how = "go test ./cmd/weir -run Commands -update"
	files, err := os.ReadDir(commandsDirectory)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if want[f.Name()] == nil {
			t.Errorf("docs/commands/%s is no command's: %s", f.Name(), how)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		got, err := os.ReadFile(filepath.Join(commandsDirectory, name))
		if err != nil || !bytes.Equal(got, want[name]) {
			t.Errorf("docs/commands/%s is another version's: %s", name, how)
		}
	}
}

// commandPages returns a page for each command of the first level, and a list of them.
func commandPages(root *cobra.Command) map[string][]byte {
	pages := map[string][]byte{}
	var list bytes.Buffer
	fmt.Fprintf(&list, "# Commands and flags\n\nEach page has the flags of one command. It is made of the command itself, and `--help` prints the same.\n\n")
	for _, cmd := range root.Commands() {
		if !cmd.IsAvailableCommand() || cmd.Name() == "help" {
			continue
		}
		var page bytes.Buffer
		writeCommand(&page, cmd, 1)
		pages[cmd.Name()+".md"] = bytes.ReplaceAll(page.Bytes(), []byte("\n\n\n"), []byte("\n\n"))
		fmt.Fprintf(&list, "- [%s](%s.md): %s\n", cmd.CommandPath(), cmd.Name(), plainMarkdown(cmd.Short))
	}
	fmt.Fprintf(&list, "\n## Every command\n\n%s", asMarkdown(root.Long))
	pages["README.md"] = list.Bytes()
	return pages
}

// writeCommand writes a command, its flags and its subcommands; level is that of its heading.
func writeCommand(page *bytes.Buffer, cmd *cobra.Command, level int) {
	heading := strings.Repeat("#", level)
	fmt.Fprintf(page, "%s %s\n\n%s", heading, cmd.CommandPath(), asMarkdown(cmd.Long))
	if cmd.Long == "" {
		fmt.Fprintf(page, "%s.\n\n", plainMarkdown(cmd.Short))
	}
	if cmd.Runnable() && !cmd.HasSubCommands() {
		fmt.Fprintf(page, "```text\n%s\n```\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		fmt.Fprintf(page, "\n```text\n%s\n```\n", unindent(cmd.Example))
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !f.Hidden {
			writeFlag(page, f, heading+"#")
		}
	})
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			page.WriteString("\n")
			writeCommand(page, child, level+1)
		}
	}
}

// writeFlag writes a flag with a heading of its own, so that it can be linked.
func writeFlag(page *bytes.Buffer, f *pflag.Flag, heading string) {
	value, usage := pflag.UnquoteUsage(f)
	variable, has := cli.Variable(f)
	usage = strings.TrimSuffix(usage, " [$"+variable+"]")
	fmt.Fprintf(page, "\n%s `--%s`\n\n", heading, f.Name)
	switch {
	case f.NoOptDefVal != "" && value != "": // a value of its own argument is none of the flag
		fmt.Fprintf(page, "`--%s[=%s]`: ", f.Name, value)
	case value != "":
		fmt.Fprintf(page, "`--%s %s`: ", f.Name, value)
	}
	fmt.Fprintf(page, "%s.", plainMarkdown(strings.ToUpper(usage[:1])+usage[1:]))
	if f.DefValue != "" && f.DefValue != "[]" && !strings.Contains(usage, "(default") {
		fmt.Fprintf(page, " Default: `%s`.", f.DefValue)
	}
	if has {
		fmt.Fprintf(page, " Variable: `%s`.", variable)
	}
	page.WriteString("\n")
}

// asMarkdown returns a text of help: its paragraphs, and its indented lines as blocks of code.
func asMarkdown(text string) string {
	var page strings.Builder
	code := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		switch indented := strings.HasPrefix(line, "  "); {
		case indented && !code:
			page.WriteString("```text\n")
		case !indented && code:
			page.WriteString("```\n")
		}
		if code = strings.HasPrefix(line, "  "); code {
			page.WriteString(strings.TrimPrefix(line, "  ") + "\n")
		} else {
			page.WriteString(plainMarkdown(line) + "\n")
		}
	}
	if code {
		page.WriteString("```\n")
	}
	return page.String() + "\n"
}

var flagName = regexp.MustCompile(`--[a-z][a-z0-9-]*`)

// plainMarkdown escapes what Markdown would read as markup, and marks flags as code.
func plainMarkdown(text string) string {
	text = strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`, "`", "\\`", "[", `\[`, "|", `\|`).Replace(text)
	return flagName.ReplaceAllString(text, "`$0`")
}

// unindent removes two blanks from the beginning of each line.
func unindent(text string) string {
	return strings.TrimPrefix(strings.ReplaceAll(text, "\n  ", "\n"), "  ")
}
