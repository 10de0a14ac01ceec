package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit statuses.
const (
	exitDone  = 0
	exitNo    = 1 // the answer is no: a policy invalid, a port taken
	exitUsage = 2 // used wrongly: an unknown flag, a bad value
)

// A failure is an error as the user sees it, with the exit status it leads to.
type failure struct {
	err  error
	hint string // what to do about it; may be empty
	exit int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// no is the failure of a command that was used rightly: the answer is no.
func no(err error, hint string) error { return &failure{err: err, hint: hint, exit: exitNo} }

// misused is the failure of a command that was used wrongly.
func misused(hint, format string, args ...any) error {
	return &failure{err: fmt.Errorf(format, args...), hint: hint, exit: exitUsage}
}

// errSilent is a no whose reasons were printed already.
var errSilent = errors.New("said already")

// run is the whole program: it returns the exit status. env has the form of os.Environ.
func run(args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot(environ(env))
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitDone
	}
	return report(stderr, cmd, err)
}

// report prints err, with its hint where it has one, and returns the exit status. What is not a failure comes from the
// command-line parser.
func report(w io.Writer, cmd *cobra.Command, err error) int {
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{err: err, hint: fmt.Sprintf("see '%s --help'", cmd.CommandPath()), exit: exitUsage}
	}
	if !errors.Is(err, errSilent) {
		fmt.Fprintf(w, "error: %s\n", strings.TrimSpace(err.Error()))
	}
	if f.hint != "" {
		fmt.Fprintf(w, "hint: %s\n", f.hint)
	}
	return f.exit
}

const rootLong = `Weir is a rate-limiting edge for HTTP APIs.

Started with 'weir serve' and nothing else, it is the Widget and Bulk-Sync API: both surfaces, a sample
backend with real rows, and the limits of the contract, on :8080. Given --upstream it stands in front of
your own backend instead, and given --policy it enforces your own limits.

Every flag has a variable: WEIR_ and the flag's name in capitals, dashes as underscores (but those that say what
'weir key' does to whom, and what 'weir verify' may do). The flag beats
the variable; an empty variable is no variable. Lists are separated by commas in both.

Exit status: 0 done; 1 the answer is no (a policy is invalid, a port is taken); 2 used wrongly.`

const rootExample = `  weir serve                                       the contract, on :8080
  weir serve --upstream http://127.0.0.1:3000      the contract's limits before your own backend
  weir policy show                                 the limits that this is about
  weir policy show --exposure                      how many requests can pass at worst
  weir policy explain POST /api/v1/widget/leads    which of them a request meets, and why
  weir simulate access.log                         whom they would have limited
  weir token create --workspace demo               a credential for the bulk-sync surface
  weir sync docs --to http://127.0.0.1:8080        push a folder of documents there
  weir verify http://127.0.0.1:8080                does it keep the contract, seen from outside?`

func newRoot(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "A rate-limiting edge for HTTP APIs",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       thisBuild().String(),
		Args:          cobra.ArbitraryArgs,
		RunE:          group,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hint := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
		var invalid *pflag.InvalidValueError
		if errors.As(err, &invalid) {
			return misused(hint, "--%s %q: %w", invalid.GetFlag().Name, shown(invalid.GetFlag(), invalid.GetValue()), invalid.Unwrap())
		}
		return misused(hint, "%w", err)
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range env.strangers(root) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: variable %s stands for no flag\n", name)
		}
		if err := emptyFile(cmd); err != nil {
			return err
		}
		return env.apply(cmd)
	}
	root.AddCommand(newServe(env), newPolicy(), newToken(), newKey(), newDenial(), newAdmin(), newSync(env), newSimulate(), newVerify(env), newVersion())
	root.SetHelpCommand(newHelp(root))
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		completion.Args, completion.RunE = cobra.ArbitraryArgs, group
	}
	document(root)
	return root
}

// newHelp is cobra's help command, but for a command that does not exist.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return group(cmd, rest)
			}
			return cmd.Help()
		},
	}
}

// emptyFile refuses a flag that names a file and was given no name, as by a shell variable that is not set. To take that for a flag
// that was left out could mean to check no credentials.
func emptyFile(cmd *cobra.Command) (bad error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, file := f.Annotations[cobra.BashCompFilenameExt]; file && f.Value.String() == "" && f.Value.Type() == "string" && bad == nil {
			bad = misused("leave --"+f.Name+" out to do without one", "--%s \"\": want the name of a file", f.Name)
		}
	})
	return bad
}

// group is what a command does that only holds others: help, unless it was asked for something it does not hold.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2 // letters that may be wrong
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean '%s %s'?", cmd.CommandPath(), near[0])
	}
	return misused(hint, "%q has no command %q", cmd.CommandPath(), args[0])
}

// arguments wants exactly the named arguments.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		hint := fmt.Sprintf("usage: %s", cmd.UseLine())
		if len(args) < len(names) {
			is := "is"
			if len(names)-len(args) > 1 {
				is = "are"
			}
			return misused(hint, "%s: %s %s missing", cmd.CommandPath(), strings.Join(names[len(args):], " and "), is)
		}
		if len(args) > len(names) {
			switch args[len(names)] {
			case "on", "off", "true", "false":
				hint = "a switch takes its value with an equals sign: --access-log=off"
			}
			return misused(hint, "%s: do not know what to do with %q", cmd.CommandPath(), args[len(names)])
		}
		return nil
	}
}
