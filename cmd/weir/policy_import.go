package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/policyimport"
	"github.com/weirlimit/weir/internal/policyimport/nginx"
	reports "github.com/weirlimit/weir/internal/replay/report"
)

// An importer reads another program's configuration.
type importer struct {
	name, about string
	read        func(path string) (*policyimport.Result, error)
}

// importers is the table of policy import; to add one without flags, add its row.
var importers = []importer{
	{"nginx", "limit_req and limit_conn of an nginx configuration", nginx.Import},
}

func newPolicyImport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import PROGRAM FILE|DIR",
		Short: "Print a policy for the limits of another program's configuration",
		Args:  cobra.ArbitraryArgs,
		RunE:  cli.Group,
	}
	for _, i := range importers {
		cmd.AddCommand(i.command())
	}
	cmd.AddCommand(newPolicyImportEnvoy()) // which has flags of its own
	return cmd
}

func (i importer) command() *cobra.Command {
	return &cobra.Command{
		Use:   i.name + " FILE|DIR",
		Short: "Print a policy for " + i.about,
		Long: "Print a policy for " + i.about + `.

What changes is a comment of the policy, with the file and the line. What a policy cannot express is also printed on standard
error, and left out. Read both before you use the policy.`,
		Example: "  weir policy import " + i.name + " /etc/" + i.name + " > policy.yaml",
		Args:    cli.Arguments("FILE|DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return emptyName(cmd)
			}
			result, err := i.read(args[0])
			if errors.Is(err, fs.ErrNotExist) {
				return cli.Fail(err, "give the main file of the configuration, or its directory")
			}
			if err != nil {
				return cli.Fail(err, "")
			}
			for _, n := range result.Notes {
				if n.Lost {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: not imported: %s\n", reports.Shown(n.String(), 1000))
				}
			}
			if len(result.Policy.Limiters) == 0 {
				return cli.Fail(fmt.Errorf("%s has no limits that a policy can express", strings.TrimSpace(reports.Shown(args[0], 200))), "")
			}
			source, err := result.Source(args[0])
			if err != nil {
				return printProblems(cmd.ErrOrStderr(), err)
			}
			_, err = cmd.OutOrStdout().Write(source)
			return err
		},
	}
}
