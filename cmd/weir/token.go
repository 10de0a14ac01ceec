package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/sample"
)

const tokenLong = `Create, list and revoke API tokens, change their plans, and hash and check keys of your own.

create, list, plan and revoke are for tokens that Weir makes. Their hashes are kept in the data directory. The sample
backend verifies them, and 'weir serve --tokens' does so before an API of yours. A server that uses the directory accepts
a new token, rejects a revoked one, and knows a changed plan within a second and without a restart.

hash and check are for keys that another service makes: hash prints a line of 'weir serve --token-file', and check
reports the problems of such a file.`

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke API tokens, change their plans, hash and check those of another service",
		Long:  tokenLong,
		Example: `  weir token create --workspace demo
  weir token list
  weir token revoke 3f9a…
  weir token hash --id acme --plan gold < key >> keys
  weir token check keys`,
		Args: cobra.ArbitraryArgs,
		RunE: cli.Group,
	}
	cmd.AddCommand(newTokenCreate(), newTokenList(), newTokenPlan(), newTokenRevoke(), newTokenHash(), newTokenCheck())
	return cmd
}

// dataFlag adds --data to a command that reads or changes the data directory.
func dataFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "data", "weir-data", "`DIR` that is the server's --data")
	cli.Must(cmd.MarkFlagDirname("data"))
}

// makeDataDir creates the data directory if there is none, and prints that it did: no server knows
// what is in a new one.
func makeDataDir(cmd *cobra.Command, dir string) error {
	_, missing := os.Stat(dir)
	if err := sample.MakeDir(dir); err != nil {
		return cli.Fail(fmt.Errorf("open the data directory %q: %w", dir, err), edge.DataHint(err))
	}
	if errors.Is(missing, fs.ErrNotExist) {
		fmt.Fprintf(cmd.ErrOrStderr(), "made the data directory %s; a server with another one will not know this token: give the server's with --data DIR\n", absolute(dir))
	}
	return nil
}

// openTokens opens the tokens of a directory.
func openTokens(ctx context.Context, dir string) (*sample.Tokens, error) {
	tokens, err := sample.OpenTokens(ctx, sample.Options{Dir: dir})
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("open the tokens in %q: %w", dir, err), edge.DataHintOr(err, "give the --data DIR of 'weir serve'; you must be able to write there"))
	}
	return tokens, nil
}

// openOldTokens is openTokens for a directory that must exist.
func openOldTokens(ctx context.Context, dir string) (*sample.Tokens, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, noDataDir(dir)
	} else if errors.Is(err, fs.ErrNotExist) {
		return nil, cli.Fail(fmt.Errorf("there is no data directory %q", dir), "give the --data DIR of 'weir serve'; 'weir token create' also creates one")
	}
	return openTokens(ctx, dir)
}

// workspaceName matches the name of a workspace, which is part of URLs, logs and widgets.
var workspaceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func newTokenCreate() *cobra.Command {
	var dir, workspace, plan string
	var machine cli.OnOff
	cmd := &cobra.Command{
		Use:   "create --workspace NAME",
		Short: "Create a token and print it once",
		Long: `Create an API token for a workspace, such as a customer. If there is no workspace of that name, it is created too.

Standard output is the token alone. It cannot be printed again, because only its hash is kept.`,
		Example: `  weir token create --workspace demo
  TOKEN=$(weir token create --workspace demo)
  curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v1/wp/status`,
		Args: cli.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !workspaceName.MatchString(workspace) {
				return cli.UsageError("for example: weir token create --workspace demo",
					"--workspace %q: expected 1 to 64 letters, digits, dots, dashes or underscores, beginning with a letter or digit", hideKey(workspace))
			}
			if err := checkPlanFlag(plan); err != nil {
				return err
			}
			return createToken(cmd, dir, workspace, plan, bool(machine))
		},
	}
	cmd.Flags().StringVar(&workspace, "workspace", "", "`NAME` of the workspace that the token belongs to, such as a customer; in the sample backend, its widgets' agent_id")
	cmd.Flags().StringVar(&plan, "plan", "", "`NAME` of its plan, for limiters with plans by token")
	dataFlag(cmd, &dir)
	cli.JSONFlag(cmd, &machine)
	return cmd
}

// checkPlanFlag returns an error for a --plan that no policy can name; it may be empty.
func checkPlanFlag(plan string) error {
	if plan == "" || weir.IsPlanName(plan) {
		return nil
	}
	return cli.UsageError("for example: --plan gold", "--plan %q: expected 1 to 64 letters, digits, dots, dashes or underscores, and not the word by", hideKey(plan))
}

func createToken(cmd *cobra.Command, dir, workspace, plan string, machine bool) error {
	if err := makeDataDir(cmd, dir); err != nil {
		return err
	}
	tokens, err := openTokens(cmd.Context(), dir)
	if err != nil {
		return err
	}
	defer tokens.Close()
	made, err := tokens.CreateInPlan(cmd.Context(), workspace, plan)
	if err != nil {
		return cli.Fail(fmt.Errorf("create a token for workspace %q: %w", workspace, err), "")
	}
	notice := fmt.Sprintf("token %s of workspace %q; it is shown only this once", made.ID, workspace)
	if made.NewWorkspace {
		notice = fmt.Sprintf("workspace %q is new\n", workspace) + notice
	}
	return freshToken{
		token: made.Token, notice: notice,
		fields: map[string]string{"token": made.Token, "id": made.ID, "workspace": made.Workspace, "plan": plan},
		revoke: func() error { return tokens.Revoke(cmd.Context(), made.ID) }, command: "weir token revoke --data " + dir + " " + made.ID,
	}.show(cmd, machine)
}

// A freshToken is a token that was just created. It is stored nowhere.
type freshToken struct {
	token, notice string
	fields        map[string]string // as JSON
	revoke        func() error
	command       string // which does the same
}

// show writes the token. If that fails, because the disk is full or the reader of a pipe is gone,
// it revokes the token, which would stay in force unseen.
func (f freshToken) show(cmd *cobra.Command, machine bool) error {
	signal.Ignore(syscall.SIGPIPE) // else a write to such a pipe ends the process
	fmt.Fprintln(cmd.ErrOrStderr(), f.notice)
	var err error
	if machine {
		err = cli.WriteJSON(cmd.OutOrStdout(), f.fields)
	} else {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), f.token)
	}
	if err == nil {
		return nil
	}
	if failed := f.revoke(); failed != nil {
		return cli.Fail(fmt.Errorf("show the token: %w; %w", err, failed), fmt.Sprintf("it is in force all the same: '%s'", f.command))
	}
	return cli.Fail(fmt.Errorf("show the token, which is revoked now: %w", err), "")
}

func newTokenList() *cobra.Command {
	var dir string
	var machine cli.OnOff
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the tokens, without their secrets",
		Example: "  weir token list\n  weir token list --json",
		Args:    cli.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			tokens, err := openOldTokens(cmd.Context(), dir)
			if err != nil {
				return err
			}
			defer tokens.Close()
			all, err := tokens.List(cmd.Context())
			if err != nil {
				return cli.Fail(fmt.Errorf("list the tokens in %q: %w", dir, err), "")
			}
			if machine {
				return cli.WriteJSON(cmd.OutOrStdout(), tokenRows(all))
			}
			return printTokens(cmd, all)
		},
	}
	dataFlag(cmd, &dir)
	cli.JSONFlag(cmd, &machine)
	return cmd
}

// A tokenRow is a token as --json lists it.
type tokenRow struct {
	ID        string     `json:"id"`
	Workspace string     `json:"workspace"`
	Plan      string     `json:"plan"` // empty: none
	Created   time.Time  `json:"created"`
	Revoked   *time.Time `json:"revoked"` // null: in force
}

func tokenRows(all []sample.TokenInfo) []tokenRow {
	rows := make([]tokenRow, len(all))
	for i, t := range all {
		rows[i] = tokenRow{ID: t.ID, Workspace: t.Workspace, Plan: t.Plan, Created: t.Created.UTC()}
		if !t.Revoked.IsZero() {
			revoked := t.Revoked.UTC()
			rows[i].Revoked = &revoked
		}
	}
	return rows
}

func printTokens(cmd *cobra.Command, all []sample.TokenInfo) error {
	if len(all) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no tokens yet; 'weir token create --workspace NAME' creates one")
		return nil
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tWORKSPACE\tPLAN\tCREATED\tSTATE")
	for _, row := range tokenRows(all) {
		state := "in force"
		if row.Revoked != nil {
			state = "revoked " + row.Revoked.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", row.ID, row.Workspace, cmp.Or(row.Plan, "-"), row.Created.Format(time.RFC3339), state)
	}
	return w.Flush()
}

func newTokenRevoke() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "revoke ID",
		Short:   "Revoke a token; servers reject it within a second",
		Example: "  weir token list\n  weir token revoke 3f9a…",
		Args:    cli.Arguments("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			tokens, err := openOldTokens(cmd.Context(), dir)
			if err != nil {
				return err
			}
			defer tokens.Close()
			switch err := tokens.Revoke(cmd.Context(), args[0]); {
			case errors.Is(err, sample.ErrNoToken):
				return cli.Fail(fmt.Errorf("no token has the id %q", hideKey(args[0])), "'weir token list' shows the ids")
			case err != nil:
				return cli.Fail(fmt.Errorf("revoke token %q: %w", args[0], err), "")
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "token %s is revoked\n", args[0])
			return nil
		},
	}
	dataFlag(cmd, &dir)
	return cmd
}

func newTokenPlan() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "plan ID NAME",
		Short: "Change the plan of a token; '' ends it",
		Long: `Change the plan of a token, which decides its limits where a limiter has plans by token. An empty NAME ends the plan.

What the token has spent stays spent: another plan changes the limit and not the count.`,
		Example: "  weir token plan 3f9a… gold\n  weir token plan 3f9a… ''",
		Args:    cli.Arguments("ID", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, plan := args[0], args[1]
			if plan != "" && !weir.IsPlanName(plan) {
				return cli.UsageError("for example: weir token plan 3f9a… gold", "plan %q: expected 1 to 64 letters, digits, dots, dashes or underscores, and not the word by", hideKey(plan))
			}
			tokens, err := openOldTokens(cmd.Context(), dir)
			if err != nil {
				return err
			}
			defer tokens.Close()
			switch err := tokens.SetPlan(cmd.Context(), id, plan); {
			case errors.Is(err, sample.ErrNoToken):
				return cli.Fail(fmt.Errorf("no token has the id %q", hideKey(id)), "'weir token list' shows the ids")
			case err != nil:
				return cli.Fail(fmt.Errorf("change the plan of token %q: %w", id, err), "")
			}
			if plan == "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "token %s has no plan any more\n", id)
				return nil
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "token %s has the plan %s\n", id, plan)
			return nil
		},
	}
	dataFlag(cmd, &dir)
	return cmd
}

// redactToken hides a whole token that was given instead of an id: the terminal would keep it.
func redactToken(s string) string {
	const prefix = "wpt_"
	if len(s) > len(prefix) && s[:len(prefix)] == prefix {
		return prefix + "…"
	}
	return s
}
