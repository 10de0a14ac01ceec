package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/cli"
)

const tokenHashLong = `Print the line of 'weir serve --token-file' for a key that another service has made.

Standard input is the key alone, 16 to 8192 visible ASCII characters; one line break at its end is dropped. It is not
an argument, since other users of the machine can read those. Only its SHA-256 is printed, and it has no salt: a key
needs at least 128 random bits, such as 22 random letters and digits.`

const hashExample = `for example: printf %s "$KEY" | weir token hash --id acme`

// tokenHashFlags are the flags of weir token hash, as given.
type tokenHashFlags struct{ id, workspace, plan, expires string }

func newTokenHash() *cobra.Command {
	var f tokenHashFlags
	cmd := &cobra.Command{
		Use:   "hash --id ID",
		Short: "Print the line of a token file for a key on standard input",
		Long:  tokenHashLong,
		Example: `  printf %s "$KEY" | weir token hash --id acme --plan gold >> keys
  weir token hash --id acme --expires 2027-01-31 < key
  weir serve --upstream http://127.0.0.1:3000 --policy my-policy.yaml --token-file keys --token-from header:X-Api-Key`,
		Args: noKeys,
		RunE: func(cmd *cobra.Command, _ []string) error {
			line, err := f.line(cmd.InOrStdin())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), line)
			return err
		},
	}
	cmd.Flags().StringVar(&f.id, "id", "", "the public `ID` that the key is counted, logged and named by: 1 to 64 letters, digits, dots, dashes or underscores")
	cmd.Flags().StringVar(&f.workspace, "workspace", "", "`NAME` of the workspace that the key belongs to")
	cmd.Flags().StringVar(&f.plan, "plan", "", "`NAME` of its owner's plan")
	cmd.Flags().StringVar(&f.expires, "expires", "", "`TIME` from which it is refused: a date, 2027-01-31, which begins at midnight UTC, or a time with its zone, 2027-01-31T18:00:00Z")
	cli.NoVariables(cmd, "id", "workspace", "plan", "expires")
	return cmd
}

// noKeys rejects arguments without showing them: each may be a key.
func noKeys(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return cli.UsageError(hashExample, "%s: the key is read from standard input and not from an argument, which other users of the machine can read: if that was a key, replace it", cmd.CommandPath())
}

// line reads a key and returns its line.
func (f *tokenHashFlags) line(stdin io.Reader) (string, error) {
	t := identity.StoredToken{ID: f.id, Workspace: f.workspace, Plan: f.plan}
	if err := identity.CheckTokenID(f.id); err != nil {
		return "", cli.UsageError("for example: weir token hash --id acme", "--id: %w", err)
	}
	var err error
	if f.expires != "" {
		if t.Expires, err = identity.ParseExpires(f.expires); err != nil {
			return "", cli.UsageError("", "--%w", err)
		}
	}
	text, err := io.ReadAll(io.LimitReader(stdin, 64<<10))
	if err != nil {
		return "", cli.Fail(fmt.Errorf("read the key on standard input: %w", err), "")
	}
	key := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if t.Hash, err = identity.HashKey(key); err != nil {
		return "", cli.Fail(fmt.Errorf("hash the key on standard input: %w", err), hashExample)
	}
	line, err := t.Line()
	if err != nil {
		return "", cli.UsageError("", "--%w", err)
	}
	return line, nil
}
