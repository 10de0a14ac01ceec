package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/explain"
	"github.com/weirlimit/weir/policyfile"
)

func newPolicyShow() *cobra.Command {
	var machine, exposed cli.OnOff
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print a policy: the contract, or FILE as Weir reads it",
		Long: `Print a policy.

Without FILE it prints the contract, exactly as it is built in. You can use it as a start for your own policy.
With FILE it prints what Weir reads there, in a uniform spelling. --json also prints every default.

` + exposureLong,
		Example: `  weir policy show
  weir policy show > my-policy.yaml
  weir policy show my-policy.yaml --json
  weir policy show my-policy.yaml --exposure`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return cli.Arguments("FILE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !bool(machine) && !bool(exposed) {
				_, err := cmd.OutOrStdout().Write(policyfile.ContractSource())
				return err
			}
			name := ""
			if len(args) > 0 {
				if name = args[0]; name == "" {
					return emptyName(cmd)
				}
			}
			file, err := readPolicy(cmd.InOrStdin(), name)
			if err != nil {
				return printProblems(cmd.ErrOrStderr(), err)
			}
			switch {
			case bool(exposed) && bool(machine):
				return cli.WriteJSON(cmd.OutOrStdout(), exposuresJSON(file.Policy))
			case bool(exposed):
				return printExposure(cmd.OutOrStdout(), file.Policy)
			case bool(machine):
				return cli.WriteJSON(cmd.OutOrStdout(), map[string]any{"limiters": limitersJSON(file.Policy)})
			}
			_, err = cmd.OutOrStdout().Write(policyfile.Marshal(file.Policy))
			return err
		},
	}
	cli.SwitchFlag(cmd, &exposed, "exposure", "print how many requests can pass")
	cli.JSONFlag(cmd, &machine)
	return cmd
}

// A limiterJSON is a limiter with every default filled in.
type limiterJSON struct {
	Name           string                  `json:"name"`
	Routes         []string                `json:"routes"`
	Windows        []explain.SpelledWindow `json:"windows"`
	Cost           int64                   `json:"cost"`
	Requires       string                  `json:"requires"` // empty: every caller is let in
	Message        string                  `json:"message"`
	OnStoreFailure string                  `json:"on_store_failure"`
	Mode           string                  `json:"mode"`
	Align          string                  `json:"align"`
	Penalty        *penaltyJSON            `json:"penalty"` // null: none
	Exempt         []string                `json:"exempt"`
	Overrides      []string                `json:"overrides"`
}

type penaltyJSON struct {
	After     string `json:"after"`      // as a policy writes it
	RefuseFor string `json:"refuse_for"` // as a policy writes it
}

func limitersJSON(p weir.Policy) []limiterJSON {
	all := make([]limiterJSON, len(p.Limiters))
	for i, l := range p.Limiters {
		all[i] = limiterJSON{
			Name: l.Name, Routes: texts(l.Routes), Cost: max(l.Cost, 1), Requires: l.Requires, Message: answer.MessageOf(&l), OnStoreFailure: l.OnStoreFailure.String(),
			Mode: l.Mode.String(), Align: l.Align.String(), Exempt: texts(l.Exempt), Overrides: texts(l.Overrides),
		}
		if l.Penalty != (weir.Penalty{}) {
			all[i].Penalty = &penaltyJSON{l.Penalty.Refusals(), l.Penalty.RefuseFor()}
		}
		for _, w := range l.Windows {
			all[i].Windows = append(all[i].Windows, explain.SpellOut(w))
		}
	}
	return all
}

// texts writes each item as a policy does. It is never nil, which JSON would write as null.
func texts[T fmt.Stringer](items []T) []string {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = item.String()
	}
	return all
}
