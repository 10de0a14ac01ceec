package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	reports "github.com/weirlimit/weir/internal/replay/report"
)

const tokenCheckLong = `Report every problem of a token file, each with its line, as 'weir serve --token-file' would.

Check a new file before you rename it over the one in use. A file that a server can read is valid: the output has its
tokens by plan, and how many have expired. With --policy, plans that no limiter of the policy has are warnings. FILE may
be - for standard input. Exit status 1: the file is invalid, or has no token, so that it would revoke all.

No output has anything of a line with a problem, since that may be a key.`

func newTokenCheck() *cobra.Command {
	var policy string
	var machine cli.OnOff
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Report every problem of a token file",
		Long:  tokenCheckLong,
		Example: `  weir token check keys.new && mv keys.new keys
  weir token check keys.new --policy my-policy.yaml
  weir token check keys --json`,
		Args: cli.Arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return emptyName(cmd)
			}
			if args[0] == "-" && policy == "-" {
				return cli.UsageError("put one of them in a file", "%s: FILE and --policy are both standard input", cmd.CommandPath())
			}
			return checkTokenFile(cmd, args[0], policy, bool(machine))
		},
	}
	cmd.Flags().StringVar(&policy, "policy", "", "`FILE` of the policy whose plans the tokens should have; - for standard input, contract for the built-in one")
	cli.Must(cmd.MarkFlagFilename("policy"))
	cli.JSONFlag(cmd, &machine)
	return cmd
}

// A tokenVerdict is what token check --json prints.
type tokenVerdict struct {
	Valid    bool               `json:"valid"`
	Tokens   int                `json:"tokens"`
	Expired  int                `json:"expired"` // of Tokens
	Next     *nextExpiry        `json:"next_expiry"`
	Plans    []planCount        `json:"plans"`
	Problems []tokenProblemJSON `json:"problems"`
	More     int                `json:"more_problems,omitempty"` // beyond Problems
	Warnings []string           `json:"warnings"`
}

// A nextExpiry is the token that expires next. It is null if none does.
type nextExpiry struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

type planCount struct {
	Plan    string `json:"plan"` // empty: none
	Tokens  int    `json:"tokens"`
	Expired int    `json:"expired"`
}

type tokenProblemJSON struct {
	Line    int    `json:"line"` // 0: the file as a whole
	Message string `json:"message"`
}

func checkTokenFile(cmd *cobra.Command, name, policy string, machine bool) error {
	tokens, err := readTokens(cmd.InOrStdin(), name)
	v := tokenVerdict{Plans: []planCount{}, Problems: []tokenProblemJSON{}, Warnings: []string{}}
	var bad *identity.TokenFileError
	switch {
	case errors.As(err, &bad):
		for _, p := range bad.Problems {
			v.Problems = append(v.Problems, tokenProblemJSON{p.Line, p.Message})
		}
		v.More = bad.More
	case err != nil:
		return err
	case len(tokens) == 0:
		v.Problems = append(v.Problems, tokenProblemJSON{0, "the file has no token: a server with --token-file refuses each token then"})
	}
	now := time.Now()
	v.count(tokens, now)
	if policy != "" {
		file, err := readPolicy(cmd.InOrStdin(), policy)
		if err != nil {
			return printProblems(cmd.ErrOrStderr(), err)
		}
		for _, p := range edge.UnlistedPlans(file.Policy, slices.Values(tokens), now) {
			warning := fmt.Sprintf("no limiter has the plan %q of %s, so the windows' own limits hold for it", p.Name, cli.Count(p.Tokens, "token"))
			if p.Hint != "" {
				warning += "; " + p.Hint
			}
			v.Warnings = append(v.Warnings, warning)
		}
	}
	if v.Valid = len(v.Problems) == 0; machine {
		err = cli.WriteJSON(cmd.OutOrStdout(), v)
	} else {
		err = v.print(cmd, name)
	}
	if err == nil && machine && !v.Valid {
		return cli.Fail(cli.ErrReported, "")
	}
	return err
}

// readTokens reads the tokens of a file as a server does; "-" means standard input.
func readTokens(stdin io.Reader, name string) ([]identity.StoredToken, error) {
	if name == "-" {
		tokens, err := identity.ReadTokens(stdin)
		if err != nil {
			return nil, cli.Fail(fmt.Errorf("standard input: %w", err), "")
		}
		return tokens, nil
	}
	file, err := identity.OpenTokenFile(name, identity.TokenFileOptions{})
	if errors.Is(err, os.ErrNotExist) {
		return nil, cli.Fail(fmt.Errorf("there is no token file %q", name), "'weir token hash' prints a line of one")
	}
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	return slices.Collect(file.All()), nil
}

// count adds up tokens by their plans; now is when they may have expired.
func (v *tokenVerdict) count(tokens []identity.StoredToken, now time.Time) {
	at := make(map[string]int) // the indexes of v.Plans
	for i := range tokens {
		t := &tokens[i]
		j, ok := at[t.Plan]
		if !ok {
			j = len(v.Plans)
			at[t.Plan], v.Plans = j, append(v.Plans, planCount{Plan: t.Plan})
		}
		v.Tokens++
		v.Plans[j].Tokens++
		switch {
		case t.HasExpired(now):
			v.Expired++
			v.Plans[j].Expired++
		case !t.Expires.IsZero() && (v.Next == nil || t.Expires.Before(v.Next.At)):
			v.Next = &nextExpiry{t.ID, t.Expires}
		}
	}
	slices.SortFunc(v.Plans, func(a, b planCount) int { return cmp.Compare(a.Plan, b.Plan) })
}

// maxPlanRows is how many plans token check prints.
const maxPlanRows = 100

// print prints v for people. name is the file's.
func (v *tokenVerdict) print(cmd *cobra.Command, name string) error {
	stderr := cmd.ErrOrStderr()
	if name = reports.Shown(name, 1000); name == "-" {
		name = "standard input"
	}
	for _, p := range v.Problems {
		if p.Line > 0 {
			fmt.Fprintf(stderr, "error: %s:%d: %s\n", name, p.Line, p.Message)
		} else {
			fmt.Fprintf(stderr, "error: %s: %s\n", name, p.Message)
		}
	}
	for i, w := range v.Warnings {
		if i == edge.MaxUnlisted {
			fmt.Fprintf(stderr, "warning: no limiter has %s more\n", cli.Count(len(v.Warnings)-i, "plan"))
			break
		}
		fmt.Fprintf(stderr, "warning: %s\n", w)
	}
	if !v.Valid {
		return cli.Fail(fmt.Errorf("%s: %s", name, cli.Count(len(v.Problems)+v.More, "problem")), "")
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: valid, %s, %d expired\n", name, cli.Count(v.Tokens, "token"), v.Expired)
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PLAN\tTOKENS\tEXPIRED")
	for i, p := range v.Plans {
		if i == maxPlanRows {
			fmt.Fprintf(w, "and %s more\n", cli.Count(len(v.Plans)-i, "plan"))
			break
		}
		fmt.Fprintf(w, "%s\t%d\t%d\n", cmp.Or(p.Plan, "-"), p.Tokens, p.Expired)
	}
	if err := w.Flush(); err != nil || v.Next == nil {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "the next to expire is %s, at %s\n", v.Next.ID, v.Next.At.Format(time.RFC3339))
	return err
}
