package main

import (
	"fmt"
	"net/url"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/admin/client"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/plaintext"
)

func newDenial() *cobra.Command {
	f := new(operatorFlags)
	cmd := &cobra.Command{
		Use:   "denial ID",
		Short: "Explain one refusal by the id in its 429 or 403",
		Long: `Explain one refusal. ID is the value of the X-Weir-Denial field of a 429, or of the 403 of a denied caller. It is
encrypted, so it reveals nothing to callers. Every node that shares the store, or the data directory, can decrypt it.`,
		Example: "  weir denial AVs8RGzh…\n  weir key show --denial AVs8RGzh…",
		Args:    cli.Arguments("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			const maxID = 8 << 10
			if args[0] == "" || len(args[0]) > maxID {
				return cli.UsageError("copy the whole value of the X-Weir-Denial field", "an id of %d characters: expected 1 to %d", len(args[0]), maxID)
			}
			b, err := f.ask(cmd.Context(), "/denials/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			if f.json {
				return printAnswer(cmd, b)
			}
			return printDenial(cmd, b)
		},
	}
	f.register(cmd)
	return cmd
}

func printDenial(cmd *cobra.Command, b []byte) error {
	var x admin.Denial
	if err := client.Decode(b, &x); err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, plaintext.Line(value, 1000))
		}
	}
	row("refused", clockTime(x.At))
	row("limiter", x.Limiter)
	row("window", x.Window)
	row("counted by", x.Kinds)
	row("API token", x.Token)
	row("plan", x.Plan)
	switch {
	case x.Denied:
		row("denied", "the limiter's deny names the caller; nothing was counted")
		row("deny", x.DeniedBy)
	case x.InFlight:
		row("in flight", fmt.Sprintf("%d of %d requests", x.Count, x.Limit))
	default:
		row("spent", fmt.Sprintf("%d of %d", x.Count, x.Limit))
	}
	if x.Penalty {
		row("penalty", "the caller was refused everything of the limiter, because it had been refused often")
	}
	switch {
	case x.Denied:
	case x.InFlight:
		row("budget back", "when one of the caller's requests in flight has ended")
	default:
		row("budget back", clockTime(x.Reset))
	}
	row("policy", x.Policy)
	row("at", x.Line)
	row("since", x.Changed)
	row("now reads", x.Reads)
	return w.Flush()
}
