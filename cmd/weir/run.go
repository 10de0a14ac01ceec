package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
)

// run runs the program and returns its exit status. env has the form of os.Environ.
func run(args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot(cli.ParseEnvironment(env))
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		cli.NameValues(root)
	}
	cmd, err := root.ExecuteC()
	if err == nil {
		return cli.Done
	}
	return cli.Report(stderr, cmd, err)
}

const rootLong = `Weir is a rate-limiting edge for HTTP APIs.

Without flags, 'weir serve' runs the Widget and Bulk-Sync API on :8080: both surfaces, the limits of the
contract, and a sample backend that stores real rows. With --upstream it protects your own backend instead.
With --policy it enforces your own limits.

A flag's variable is WEIR_ and the name of the flag in capitals, with underscores for dashes. The help of each
command lists its variables. A flag overrides its variable. An empty variable counts as unset. In a variable, the
elements of a list are separated by commas. These flags have no variable: those that name a caller or a change for
'weir key', or a key for 'weir token hash', those that permit something to 'weir verify', and those that bound one run
of 'weir simulate'.

Exit status: 0 success; 1 failure, such as an invalid policy or a port in use; 2 incorrect use.`

const rootExample = `  weir serve                                       the contract, on :8080
  weir serve --policy FILE --upstream URL          your own limits in front of your own backend
  weir policy show                                 the limits of the contract
  weir policy show --exposure                      how many requests can pass in the worst case
  weir policy explain POST /api/v1/widget/leads    which limiter applies to a request, and why
  weir simulate access.log                         which requests of a log would have been limited
  weir token create --workspace demo               a credential for the bulk-sync surface
  weir sync docs --to http://127.0.0.1:8080        push a folder of documents to a server
  weir verify http://127.0.0.1:8080                test from outside whether a server keeps the contract`

func newRoot(env cli.Environment) *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:           "weir",
		Short:         "A rate-limiting edge for HTTP APIs",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if version && len(args) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), thisBuild())
				return err
			}
			return cli.Group(cmd, args)
		},
	}
	// Not by cobra's Version: that is printed by a template, for which the linker keeps every
	// method of every type.
	root.Flags().BoolVarP(&version, "version", "v", false, "version for weir")
	root.SetFlagErrorFunc(flagError)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range env.Unknown(root) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: variable %s belongs to no flag\n", name)
		}
		if err := cli.RejectEmptyFile(cmd); err != nil {
			return err
		}
		return env.Apply(cmd)
	}
	root.AddCommand(newServe(env), newPolicy(), withoutKeys(newToken()), newKey(), newDenial(), newAdmin(), newSync(env), newSimulate(), newVerify(env), newHealth(), newVersion())
	root.SetHelpCommand(cli.NewHelp(root))
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		completion.Args, completion.RunE = cobra.ArbitraryArgs, cli.Group
	}
	cli.DocumentVariables(root)
	cli.ShowFlags(root)
	return root
}
