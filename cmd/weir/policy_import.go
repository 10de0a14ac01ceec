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
	hint        string // of a configuration that cannot be read
}

// importers is the table of policy import; to add one without flags, add its row.
var importers = []importer{
	{"nginx", "limit_req and limit_conn of an nginx configuration", nginx.Import,
		"nginx itself must accept the configuration: see 'nginx -t -c FILE'. FILE is its main file, from whose directory it includes others"},
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

` + aboutNotes,
		Example: "  weir policy import " + i.name + " /etc/" + i.name + " > policy.yaml",
		Args:    cli.Arguments("FILE|DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return emptyName(cmd)
			}
			result, err := i.read(args[0])
			if args[0] == "-" && err != nil {
				return cli.Fail(err, "standard input is not read: a configuration includes other files. Give its main file, or its directory")
			}
			if errors.Is(err, fs.ErrNotExist) {
				return cli.Fail(err, "give the main file of the configuration, or its directory")
			}
			if err != nil {
				return cli.Fail(err, i.hint)
			}
			return printImported(cmd, args[0], result)
		},
	}
}

// aboutNotes is the part of the help that all importers share.
const aboutNotes = `What changes is a comment of the policy, with the file and the line. What a policy cannot express is left out, and
printed on standard error too. The exit status is 1 then: read both before you use the policy.`

// printImported prints an imported policy with its notes.
func printImported(cmd *cobra.Command, path string, result *policyimport.Result) error {
	lost := result.Lost()
	for _, n := range lost {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: not imported: %s\n", reports.Shown(n.String(), 1000))
	}
	shown := strings.TrimSpace(reports.Shown(path, 200))
	if len(result.Policy.Limiters) == 0 {
		return cli.Fail(errors.New(noLimits(shown, result)), "")
	}
	source, err := result.Source(policyReader(), path)
	if err != nil {
		return printProblems(cmd.ErrOrStderr(), err)
	}
	if _, err := cmd.OutOrStdout().Write(source); err != nil {
		return err
	}
	if len(lost) > 0 {
		return cli.Fail(fmt.Errorf("the policy lacks %s of %s", cli.Count(len(lost), "line"), shown), "read the warnings, and write by hand what you need of it")
	}
	return nil
}

// noLimits says that an imported policy has no limits, and which lines answer before they count.
func noLimits(path string, result *policyimport.Result) string {
	var answers []string
	for _, n := range result.Unreached {
		answers = append(answers, reports.Shown(n.String(), 1000))
	}
	text := path + " has no limits that a policy can express"
	if len(answers) > 0 {
		text += ": " + strings.Join(answers, "; ")
	}
	return text
}
