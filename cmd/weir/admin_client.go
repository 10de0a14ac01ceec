package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/admin/client"
	"github.com/weirlimit/weir/internal/cli"
)

// operatorFlags are the flags of a command that asks a running server: which one, and with which
// token.
type operatorFlags struct {
	admin cli.AdminAddr
	token string
	plain cli.OnOff
	data  string
	json  cli.OnOff
}

func (f *operatorFlags) register(cmd *cobra.Command) {
	f.admin = cli.AdminAddr{At: cli.DefaultAdmin}
	cmd.Flags().Var(&f.admin, "admin", "address or URL of the admin listener")
	cmd.Flags().StringVar(&f.token, "admin-token", "", "`TOKEN` of an operator (default the one in --data); use the variable, because ps shows the command line")
	cli.SwitchFlag(cmd, &f.plain, "admin-plain-http", "send the token over plain HTTP to another machine, too; everybody on the network between can read it")
	dataFlag(cmd, &f.data)
	cli.JSONFlag(cmd, &f.json)
}

// base returns the URL of the admin listener, as this machine reaches it.
func (f *operatorFlags) base() (string, error) {
	host, port, _ := net.SplitHostPort(f.admin.At)
	if f.admin.At == "" || strings.Trim(port, "0") == "" {
		return "", cli.UsageError("give the address of the admin listener with --admin HOST:PORT; 'weir serve' prints it in the line admin", "--admin %q has no port to connect to", f.admin.String())
	}
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "127.0.0.1"
	}
	return cmp.Or(f.admin.Scheme, "http") + "://" + net.JoinHostPort(host, port), nil
}

// secret returns the token to authenticate with.
func (f *operatorFlags) secret() (string, error) {
	if f.token != "" {
		return f.token, nil
	}
	token, err := admin.ReadOperator(f.data)
	if errors.Is(err, fs.ErrNotExist) {
		return "", cli.Fail(fmt.Errorf("there is no admin token in the data directory %q", f.data),
			"give the --data DIR of 'weir serve', or a token in WEIR_ADMIN_TOKEN; 'weir admin create NAME --role ROLE' creates one")
	}
	if err != nil {
		return "", cli.Fail(fmt.Errorf("read the admin token: %w", err), "only the owner of the server can read this token; create your own with 'weir admin create NAME --role ROLE'")
	}
	return token, nil
}

// ask asks the admin listener that the flags name (see client.Client.Ask).
func (f *operatorFlags) ask(ctx context.Context, path string, change any) ([]byte, error) {
	base, err := f.base()
	if err != nil {
		return nil, err
	}
	token, err := f.secret()
	if err != nil {
		return nil, err
	}
	return client.Client{URL: base, Token: token, PlainHTTP: bool(f.plain)}.Ask(ctx, path, change)
}

// printAnswer prints an answer as JSON, indented.
func printAnswer(cmd *cobra.Command, b []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(b), "", "  "); err != nil {
		return cli.Fail(fmt.Errorf("the server's answer is not JSON: %w", err), "")
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), out.String())
	return err
}

// clockTime returns a time for people, in their own zone.
func clockTime(unix int64) string {
	return time.Unix(unix, 0).Local().Format("2006-01-02 15:04:05 MST")
}
