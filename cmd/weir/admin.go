package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/owned"
	"github.com/weirlimit/weir/internal/plaintext"
)

const adminLong = `Manage the tokens with which operators use the admin listener (weir serve --admin).

Each token has a role, which includes the ones before it:

  metrics   scrape metrics, and ask for the health
  read      see everything
  operate   reset and grant the budgets of callers
  admin     replace the policy

The data directory holds their hashes, so whoever may write there manages tokens. A running server accepts a new token,
and rejects a revoked one, within a second. The first start creates a token named operator with the role admin, and
stores it in --data/admin.token for commands on the same machine. If that token is revoked, the next start creates another.`

func newAdmin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Create, list and revoke operators' tokens",
		Long:  adminLong,
		Example: `  weir admin create ada@example.com --role operate
  weir admin list
  weir admin revoke ada@example.com`,
		Args: cobra.ArbitraryArgs,
		RunE: cli.Group,
	}
	cmd.AddCommand(newAdminCreate(), newAdminList(), newAdminRevoke())
	return cmd
}

// openAdminTokens opens the tokens of a data directory that is there, with the audit log beside
// them.
func openAdminTokens(cmd *cobra.Command, dir string) (*admin.Tokens, error) {
	audit, err := admin.OpenAudit(cmd.Context(), dir, nil)
	if err != nil {
		return nil, cli.Fail(err, edge.DataHintOr(err, "give the directory of 'weir serve' with --data DIR; you need permission to write there"))
	}
	return admin.OpenTokens(dir, admin.TokensOptions{Audit: audit}), nil
}

// noDataDir returns an error if dir is missing or no directory.
func noDataDir(dir string) error {
	const hint = "give the directory of 'weir serve' with --data DIR"
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return cli.Fail(fmt.Errorf("there is no data directory %q", dir), hint)
	}
	if err == nil && !info.IsDir() {
		return cli.Fail(fmt.Errorf("%q is not a directory", dir), hint)
	}
	return nil
}

func newAdminCreate() *cobra.Command {
	var dir, why string
	var machine cli.OnOff
	role := cli.Choice{Of: admin.RoleNames()}
	cmd := &cobra.Command{
		Use:     "create NAME --role ROLE",
		Short:   "Create a token for an operator and print it once",
		Long:    createLong,
		Example: "  weir admin create ada@example.com --role operate\n  weir admin create prometheus --role metrics > weir.token\n  WEIR_ADMIN_TOKEN=$(weir admin create deploy --role admin --why 'releases replace the policy')",
		Args:    cli.Arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := admin.ValidName(args[0]); err != nil {
				return cli.UsageError("for example: weir admin create ada@example.com --role operate", "%w", err)
			}
			as, err := admin.ParseRole(role.Value)
			if err != nil {
				return cli.UsageError("for example: --role operate; see 'weir admin --help' for what each may do", "--role is missing: expected %s", strings.Join(admin.RoleNames(), ", "))
			}
			if err := checkWhy(why); err != nil {
				return err
			}
			if err := makeDataDir(cmd, dir); err != nil {
				return err
			}
			tokens, err := openAdminTokens(cmd, dir)
			if err != nil {
				return err
			}
			token, err := tokens.Create(cmd.Context(), args[0], as, why)
			if errors.Is(err, admin.ErrNameTaken) {
				return cli.Fail(err, "choose another name, or revoke that one first: weir admin revoke "+args[0])
			}
			if err != nil {
				return cli.Fail(err, owned.HintOf(err, ""))
			}
			return freshToken{
				token: token, notice: fmt.Sprintf("the admin token of %s, with the role %s; it is shown this once", args[0], as),
				fields: map[string]string{"name": args[0], "role": as.String(), "token": token},
				revoke: func() error { return tokens.Revoke(cmd.Context(), args[0], "") }, command: "weir admin revoke --data " + dir + " " + args[0],
			}.show(cmd, bool(machine))
		},
	}
	cmd.Flags().Var(&role, "role", "what the token may do; required")
	whyFlag(cmd, &why)
	cli.NoVariables(cmd, "role")
	cli.Must(cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(role.Of, cobra.ShellCompDirectiveNoFileComp)))
	dataFlag(cmd, &dir)
	cli.JSONFlag(cmd, &machine)
	return cmd
}

const createLong = `Create a token for an operator, with a role (see 'weir admin --help').

Standard output is the token alone. It cannot be printed again, because only its hash is kept.`

// whyFlag adds --why to a command that changes a token.
func whyFlag(cmd *cobra.Command, why *string) {
	cmd.Flags().StringVar(why, "why", "", "`TEXT` for the audit log")
	cli.NoVariables(cmd, "why")
}

// checkWhy returns an error for a --why that the audit log does not take.
func checkWhy(why string) error {
	if err := admin.CheckWhy(why); err != nil {
		return cli.UsageError("give a shorter one, such as --why 'moving house'", "--why: %w", err)
	}
	return nil
}

// An adminRow is a token as --json lists it.
type adminRow struct {
	Name    string    `json:"name"`
	Role    string    `json:"role"`
	Created time.Time `json:"created"`
}

func newAdminList() *cobra.Command {
	var dir string
	var machine cli.OnOff
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the tokens, without their secrets",
		Example: "  weir admin list\n  weir admin list --json",
		Args:    cli.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := noDataDir(dir); err != nil {
				return err
			}
			all, err := admin.OpenTokens(dir, admin.TokensOptions{}).List()
			if err != nil {
				return cli.Fail(err, owned.HintOf(err, ""))
			}
			rows := make([]adminRow, len(all))
			for i, t := range all {
				rows[i] = adminRow{t.Name, t.Role.String(), t.Created.UTC()}
			}
			if machine {
				return cli.WriteJSON(cmd.OutOrStdout(), rows)
			}
			if len(rows) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no admin tokens yet; the first 'weir serve' creates one")
				return nil
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tROLE\tCREATED")
			for _, row := range rows {
				fmt.Fprintf(w, "%s\t%s\t%s\n", row.Name, row.Role, row.Created.Format(time.RFC3339))
			}
			return w.Flush()
		},
	}
	dataFlag(cmd, &dir)
	cli.JSONFlag(cmd, &machine)
	return cmd
}

func newAdminRevoke() *cobra.Command {
	var dir, why string
	cmd := &cobra.Command{
		Use:     "revoke NAME",
		Short:   "Revoke a token; servers reject it within a second",
		Example: "  weir admin list\n  weir admin revoke ada@example.com",
		Args:    cli.Arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkWhy(why); err != nil {
				return err
			}
			if err := noDataDir(dir); err != nil {
				return err
			}
			tokens, err := openAdminTokens(cmd, dir)
			if err != nil {
				return err
			}
			if err := tokens.Revoke(cmd.Context(), args[0], why); errors.Is(err, admin.ErrNoToken) {
				return cli.Fail(fmt.Errorf("no admin token has the name %q", plaintext.Line(redactAdmin(args[0]), 80)), "'weir admin list' shows the names")
			} else if err != nil {
				return cli.Fail(err, owned.HintOf(err, ""))
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "the admin token of %s is revoked\n", args[0])
			return nil
		},
	}
	whyFlag(cmd, &why)
	dataFlag(cmd, &dir)
	return cmd
}

// redactAdmin keeps a token, given where a name was meant, out of the terminal's scrollback.
func redactAdmin(s string) string {
	const prefix = "wadm_"
	if len(s) > len(prefix) && s[:len(prefix)] == prefix {
		return prefix + "…"
	}
	return s
}
