package main

import (
	"errors"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/cli"
)

// Errors of 'weir token' and its commands do not repeat what may be a key: a terminal and a log
// would keep it. A key has at least 16 characters.

// shortestKey is the least number of characters of a key.
const shortestKey = 16

// plainName matches what is too short for a key and spelled like a command or a flag.
var plainName = regexp.MustCompile(`^[a-z][a-z-]{0,14}$`)

const keyHint = "a key is read from standard input, not from the command line, which other users of the machine can read; " + hashExample

// hideKey returns s, or "…" if it is long enough for a key.
func hideKey(s string) string {
	if len(s) >= shortestKey {
		return "…"
	}
	return redactToken(s)
}

// withoutKeys makes the errors of a command and of those below it leave out arguments and unknown
// flags that may be keys. It returns cmd.
func withoutKeys(cmd *cobra.Command) *cobra.Command {
	cmd.SetFlagErrorFunc(hiddenFlagError)
	if cmd.HasSubCommands() {
		cmd.RunE = hiddenGroup
	}
	for _, child := range cmd.Commands() {
		check := child.Args
		if check == nil {
			continue
		}
		child.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if len(args) == 0 || err == nil {
				return err
			}
			shown := make([]string, len(args))
			for i, arg := range args {
				if shown[i] = "…"; plainName.MatchString(arg) {
					shown[i] = arg
				}
			}
			return check(cmd, shown)
		}
	}
	return cmd
}

// hiddenGroup is [cli.Group] for a command whose arguments may be keys.
func hiddenGroup(cmd *cobra.Command, args []string) error {
	err := cli.Group(cmd, args)
	var f *cli.Failure
	if !errors.As(err, &f) || plainName.MatchString(args[0]) {
		return err
	}
	return cli.UsageError(keyHint, "%q has no such command: what was given is left out, since it may be a key", cmd.CommandPath())
}

// hiddenFlagError is [flagError] for commands whose unknown flags may be keys, which can begin with
// a dash.
func hiddenFlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var misspelt *pflag.InvalidSyntaxError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &invalid) && len(invalid.GetValue()) >= shortestKey:
		return cli.UsageError(keyHint, "--%s: %w; what was given is left out, since it may be a key", invalid.GetFlag().Name, invalid.Unwrap())
	case errors.As(err, &misspelt):
	case errors.As(err, &unknown):
		given := unknown.GetSpecifiedShortnames()
		if given == "" {
			given = unknown.GetSpecifiedName()
		}
		if plainName.MatchString(given) {
			return flagError(cmd, err)
		}
	default:
		return flagError(cmd, err)
	}
	return cli.UsageError(keyHint, "%s: unknown flag: what was given is left out, since it may be a key", cmd.CommandPath())
}
