package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/live"
	reports "github.com/weirlimit/weir/internal/replay/report"
	"github.com/weirlimit/weir/policyfile"
)

const policyLong = `Check, show and explain policies.

A policy is a YAML file of limiters. Each limiter has routes, and windows such as "1000 per minute by ip+agent".
'weir policy show' prints the built-in policy, which is the contract. You can use it as a start for your own:

  weir policy show > my-policy.yaml`

func newPolicy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check, show and explain policies",
		Long:  policyLong,
		Example: `  weir policy show
  weir policy check my-policy.yaml
  weir policy explain POST /api/v1/widget/leads --session abc`,
		Args: cobra.ArbitraryArgs,
		RunE: cli.Group,
	}
	cmd.AddCommand(newPolicyCheck(), newPolicyShow(), newPolicyExplain(), newPolicyImport())
	return cmd
}

// builtInPolicy is the name of the built-in policy where a file can be given. A file of that name
// is ./contract.
const builtInPolicy = "contract"

// contractName stands for the built-in policy in messages that name a policy by its file.
const contractName = "the contract (built in)"

// policyReader returns a reader that knows the key sources and messages of this program.
func policyReader() policyfile.Reader {
	return policyfile.Reader{Sources: identity.Sources(), Messages: answer.Messages()}
}

// readPolicy is readDocument without the origin of the policy.
func readPolicy(stdin io.Reader, name string) (*policyfile.File, error) {
	d, err := readDocument(stdin, name)
	if err != nil {
		return nil, err
	}
	return d.File, nil
}

// readDocument reads the policy in the named file. "-" means standard input; an empty name or
// builtInPolicy, the contract.
func readDocument(stdin io.Reader, name string) (*live.Document, error) {
	switch name {
	case "", builtInPolicy:
		return live.Parse(policyReader(), live.Contract, contractName, policyfile.ContractSource())
	case "-":
		text, err := io.ReadAll(io.LimitReader(stdin, policyfile.MaxSize+1))
		if err != nil {
			return nil, cli.Fail(fmt.Errorf("read the policy on standard input: %w", err), "")
		}
		return live.Parse(policyReader(), live.Stream, "standard input", text)
	}
	d, err := live.Load(policyReader(), name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, cli.Fail(fmt.Errorf("there is no policy file %q", name), "'weir policy show > FILE' makes one to start from")
	}
	if err != nil {
		if info, statErr := os.Stat(name); statErr == nil && info.IsDir() {
			return nil, cli.Fail(err, "name a file in it, such as "+filepath.Join(name, "policy.yaml"))
		}
	}
	return d, err
}

// emptyName returns the failure of an empty file name.
func emptyName(cmd *cobra.Command) error {
	return cli.UsageError("usage: "+cmd.UseLine(), "%s: FILE is empty", cmd.CommandPath())
}

// printProblems prints each problem of a policy with its file and line, and returns the failure to
// end with. It returns an error about anything else as it is.
func printProblems(w io.Writer, err error) error {
	var invalid *policyfile.Error
	if !errors.As(err, &invalid) {
		var f *cli.Failure
		if errors.As(err, &f) {
			return err
		}
		return cli.Fail(err, "")
	}
	for _, p := range invalid.Problems {
		printProblem(w, "error", p)
	}
	name := "the policy"
	if len(invalid.Problems) > 0 {
		name = invalid.Problems[0].File
	}
	return cli.Fail(fmt.Errorf("%s: %s", name, cli.Count(len(invalid.Problems), "problem")), "")
}

func printProblem(w io.Writer, kind string, p policyfile.Problem) {
	// The problem contains the file name, which may contain control characters.
	fmt.Fprintf(w, "%s: %s\n", kind, reports.Shown(p.String(), 1000))
	if p.Hint != "" {
		fmt.Fprintf(w, "hint: %s\n", p.Hint)
	}
}
