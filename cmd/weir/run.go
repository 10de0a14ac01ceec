package main

import (
	"fmt"
	"io"

	"github.com/weirlimit/weir/internal/cli"

	"github.com/spf13/cobra"
)

// run is the whole program: it returns the exit status. env has the form of os.Environ.
func run(args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot(cli.ParseEnvironment(env))
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return cli.Done
	}
	return cli.Report(stderr, cmd, err)
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

func newRoot(env cli.Environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "A rate-limiting edge for HTTP APIs",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       thisBuild().String(),
		Args:          cobra.ArbitraryArgs,
		RunE:          cli.Group,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(cli.FlagError)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range env.Unknown(root) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: variable %s stands for no flag\n", name)
		}
		if err := cli.RejectEmptyFile(cmd); err != nil {
			return err
		}
		return env.Apply(cmd)
	}
	root.AddCommand(newServe(env), newPolicy(), newToken(), newKey(), newDenial(), newAdmin(), newSync(env), newSimulate(), newVerify(env), newVersion())
	root.SetHelpCommand(cli.NewHelp(root))
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		completion.Args, completion.RunE = cobra.ArbitraryArgs, cli.Group
	}
	cli.DocumentVariables(root)
	return root
}
