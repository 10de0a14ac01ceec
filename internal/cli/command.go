package cli

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Group runs a command that only holds other commands: it prints the help. An argument is the name
// of a command that does not exist.
func Group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := seeHelp(cmd)
	cmd.SuggestionsMinimumDistance = 2 // letters that may be wrong
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean '%s %s'?", cmd.CommandPath(), near[0])
	}
	return UsageError(hint, "%q has no command %q", cmd.CommandPath(), args[0])
}

// NewHelp returns cobra's help command with one difference: it rejects a command that does not
// exist.
func NewHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return Group(cmd, rest)
			}
			return cmd.Help()
		},
	}
}

// Arguments returns a check that a command was given exactly the named arguments.
func Arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		hint := fmt.Sprintf("usage: %s", cmd.UseLine())
		if len(args) < len(names) {
			is := "is"
			if len(names)-len(args) > 1 {
				is = "are"
			}
			return UsageError(hint, "%s: %s %s missing", cmd.CommandPath(), strings.Join(names[len(args):], " and "), is)
		}
		if len(args) > len(names) {
			cmd.Flags().Visit(func(f *pflag.Flag) {
				if f.NoOptDefVal != "" {
					hint = fmt.Sprintf("a switch takes its value with an equals sign: --%s=on or --%s=off", f.Name, f.Name)
				}
			})
			return UsageError(hint, "%s: unexpected argument %q", cmd.CommandPath(), args[len(names)])
		}
		return nil
	}
}

// FlagError returns the failure of flags that cobra could not parse. It never repeats a secret. If
// the error of a flag's value is a Failure with a hint, that hint is given instead of the help.
func FlagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		f := invalid.GetFlag()
		hint := hintOf(invalid.Unwrap())
		if hint == "" {
			hint = seeHelp(cmd)
		}
		return UsageError(hint, "--%s %q: %w", f.Name, shown(f, invalid.GetValue()), invalid.Unwrap())
	}
	return UsageError(seeHelp(cmd), "%w", err)
}

// RejectEmptyFile rejects a flag that names a file if the name is empty, as a shell variable that
// is not set leaves it. If it counted as a flag that is left out, a server could start without
// checking any credentials.
func RejectEmptyFile(cmd *cobra.Command) (bad error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, file := f.Annotations[cobra.BashCompFilenameExt]; file && f.Value.String() == "" && f.Value.Type() == "string" && bad == nil {
			bad = UsageError("leave --"+f.Name+" out to do without one", "--%s \"\": expected the name of a file", f.Name)
		}
	})
	return bad
}

// NamesFile reports whether the value of a flag is the name of a file or a directory.
func NamesFile(f *pflag.Flag) bool {
	_, file := f.Annotations[cobra.BashCompFilenameExt]
	_, dir := f.Annotations[cobra.BashCompSubdirsInDir]
	return file || dir
}

// JSONFlag adds --json.
func JSONFlag(cmd *cobra.Command, machine *OnOff) {
	SwitchFlag(cmd, machine, "json", "print JSON")
}

// SwitchFlag adds a flag that means on if it has no value.
func SwitchFlag(cmd *cobra.Command, o *OnOff, name, usage string) {
	cmd.Flags().Var(o, name, usage)
	cmd.Flags().Lookup(name).NoOptDefVal = "on"
}

// ShowFlags makes the help of root and its commands show a switch as it is written:
// "--json[=on|off]". Package pflag writes "--json on|off[=on]", of which "--json on" would fail. On
// a terminal the descriptions of flags are broken at its width.
func ShowFlags(root *cobra.Command) {
	usage := root.UsageFunc()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		var text strings.Builder
		cmd.SetOut(&text)
		err := usage(cmd)
		cmd.SetOut(out)
		// For the help of cmd, cobra replaces its output by a buffer, but not that of its root.
		_, printed := io.WriteString(out, WrapFlags(cmd, asWritten(text.String()), Columns(cmd.Root().OutOrStdout())))
		return errors.Join(err, printed)
	})
}

// asWritten corrects the switches in a table of flags, which keeps its columns.
func asWritten(flags string) string {
	return strings.ReplaceAll(flags, " on|off[=on]", "[=on|off]   ")
}

// WrapFlags returns the usage of cmd with the descriptions of its flags broken at a number of
// columns; 0 does not break them. If the names leave too little room beside them, descriptions are
// on lines of their own.
func WrapFlags(cmd *cobra.Command, usage string, columns int) string {
	if columns == 0 {
		return usage
	}
	table := strings.TrimRight(asWritten(cmd.LocalFlags().FlagUsages()), "\n ")
	var rows []string
	for line := range strings.SplitSeq(table, "\n") {
		m := flagRow.FindStringSubmatch(line)
		if m == nil {
			return usage
		}
		row, indent := m[1], len(m[1])
		if columns-indent < minDescription {
			indent = 10
			row = strings.TrimRight(row, " ") + "\n" + strings.Repeat(" ", indent)
		}
		rows = append(rows, row+fill(m[2], indent, columns))
	}
	return strings.Replace(usage, table, strings.Join(rows, "\n"), 1)
}

// minDescription is how many columns a description needs at least beside its flag.
const minDescription = 40

var flagRow = regexp.MustCompile(`^(\s*-.*?\s{2,})(\S.*)$`)

// fill breaks a text between its words. All lines but the first begin with an indent.
func fill(text string, indent, columns int) string {
	var b strings.Builder
	at := indent
	for i, word := range strings.Fields(text) {
		switch width := utf8.RuneCountInString(word); {
		case i > 0 && at+1+width > columns:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent + width
		case i > 0:
			b.WriteByte(' ')
			at += 1 + width
		default:
			at += width
		}
		b.WriteString(word)
	}
	return b.String()
}

// NameValues replaces the marks that package pflag reads the name of a flag's value by, for cmd and
// every command below it. Completions have the descriptions as they are.
func NameValues(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	for _, c := range cmd.Commands() {
		NameValues(c)
	}
}

// Must panics on an error that only a misspelt flag name in this program can cause.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}
