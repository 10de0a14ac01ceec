package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/policyfile"
)

func newPolicyCheck() *cobra.Command {
	var machine cli.OnOff
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Report every problem of a policy file",
		Long: `Report every problem of a policy file, each with its line and what is allowed there.

A policy with warnings is valid. A warning is, for example, a path that no limiter covers although other paths with
the same prefix are covered. FILE may be - for standard input. Exit status 1: the policy is invalid.`,
		Example: `  weir policy check my-policy.yaml
  weir policy show | weir policy check -
  weir policy check my-policy.yaml --json`,
		Args: cli.Arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return emptyName(cmd)
			}
			file, err := readPolicy(cmd.InOrStdin(), args[0])
			if machine {
				return printVerdict(cmd, file, err)
			}
			if err != nil {
				return printProblems(cmd.ErrOrStderr(), err)
			}
			for _, w := range file.Warnings {
				printProblem(cmd.ErrOrStderr(), "warning", w)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: valid, %s\n", args[0], sizeOf(file.Policy))
			return err
		},
	}
	cli.JSONFlag(cmd, &machine)
	return cmd
}

// sizeOf returns how many limiters and windows a policy has, in words.
func sizeOf(p weir.Policy) string {
	windows, inFlight := 0, 0
	for _, l := range p.Limiters {
		windows += len(l.Windows)
		inFlight += len(l.Rows()) - len(l.Windows)
	}
	size := cli.Count(len(p.Limiters), "limiter") + " with " + cli.Count(windows, "window")
	if inFlight > 0 {
		size += " and " + cli.Count(inFlight, "limit") + " in flight"
	}
	return size
}

// A verdict is what policy check --json prints.
type verdict struct {
	Valid    bool          `json:"valid"`
	Problems []problemJSON `json:"problems"`
	Warnings []problemJSON `json:"warnings"`
}

type problemJSON struct {
	File    string `json:"file"`
	Line    int    `json:"line"` // 0: the file as a whole
	Column  int    `json:"column"`
	Path    string `json:"path"`
	Value   string `json:"value"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func problemsJSON(problems []policyfile.Problem) []problemJSON {
	all := make([]problemJSON, len(problems))
	for i, p := range problems {
		all[i] = problemJSON{p.File, p.Line, p.Column, p.Path, p.Value, p.Message, p.Hint}
	}
	return all
}

// printVerdict prints the result of readPolicy as JSON.
func printVerdict(cmd *cobra.Command, file *policyfile.File, err error) error {
	v := verdict{Valid: err == nil, Problems: []problemJSON{}, Warnings: []problemJSON{}}
	var invalid *policyfile.Error
	switch {
	case err == nil:
		v.Warnings = problemsJSON(file.Warnings)
	case errors.As(err, &invalid):
		v.Problems = problemsJSON(invalid.Problems)
	default:
		return printProblems(cmd.ErrOrStderr(), err)
	}
	if err := cli.WriteJSON(cmd.OutOrStdout(), v); err != nil {
		return err
	}
	if !v.Valid {
		return cli.Fail(cli.ErrReported, "")
	}
	return nil
}
