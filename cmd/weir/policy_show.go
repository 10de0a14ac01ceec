package main

import (
	"cmp"
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
				return cli.WriteJSON(cmd.OutOrStdout(), policyJSON{limitersJSON(file.Policy), messagesJSON(file.Policy), answersJSON(file.Policy)})
			}
			_, err = cmd.OutOrStdout().Write(policyfile.Marshal(file.Policy))
			return err
		},
	}
	cli.SwitchFlag(cmd, &exposed, "exposure", "print how many requests can pass")
	cli.JSONFlag(cmd, &machine)
	return cmd
}

// A policyJSON is a policy with every default filled in.
type policyJSON struct {
	Limiters []limiterJSON         `json:"limiters"`
	Messages map[string]weir.Texts `json:"messages"` // the policy's own
	Answers  answersDocument       `json:"answers"`
}

type answersDocument struct {
	Format          string         `json:"format"`
	Refused         answerDocument `json:"refused"`
	Unauthenticated answerDocument `json:"unauthenticated"`
	Unavailable     answerDocument `json:"unavailable"`
}

type answerDocument struct {
	Status      int               `json:"status"`
	Message     string            `json:"message"` // empty: the built-in text
	Credentials map[string]string `json:"credentials,omitempty"`
	Fields      map[string]string `json:"fields"`
}

// messagesJSON returns the messages of a policy, never nil.
func messagesJSON(p weir.Policy) map[string]weir.Texts {
	if p.Messages == nil {
		return map[string]weir.Texts{}
	}
	return p.Messages
}

func answersJSON(p weir.Policy) answersDocument {
	document := func(a weir.Answer, status int) answerDocument {
		fields := a.Fields
		if fields == nil {
			fields = map[string]string{}
		}
		return answerDocument{cmp.Or(a.Status, status), a.Message, a.Credentials, fields}
	}
	a := &p.Answers
	return answersDocument{a.Format.String(), document(a.Refused, 429), document(a.Unauthenticated, 401), document(a.Unavailable, 503)}
}

// A limiterJSON is a limiter with every default filled in.
type limiterJSON struct {
	Name    string                  `json:"name"`
	Routes  []string                `json:"routes"`
	Windows []explain.SpelledWindow `json:"windows"`
	// what is reserved at most, if Reserve or CostFrom is set
	Cost    int64        `json:"cost"`
	Reserve *reserveJSON `json:"reserve"` // null: Cost is reserved
	// where the response tells the cost; empty: it does not
	CostFrom string     `json:"cost_from"`
	Count    *countJSON `json:"count"` // null: every request
	// as a policy writes it; empty: no limit
	InFlight       string       `json:"in_flight"`
	Requires       string       `json:"requires"` // empty: every caller is let in
	Chosen         bool         `json:"chosen"`
	Message        string       `json:"message"`
	OnStoreFailure string       `json:"on_store_failure"`
	Mode           string       `json:"mode"`
	Align          string       `json:"align"`
	Penalty        *penaltyJSON `json:"penalty"` // null: none
	Exempt         []string     `json:"exempt"`
	Deny           []string     `json:"deny"`
	Overrides      []string     `json:"overrides"`
	Answers        string       `json:"answers"` // empty: the backend
	Notify         []int64      `json:"notify"`
	Plans          *plansJSON   `json:"plans"` // null: none
}

// plansJSON are the plans of a limiter: for each name its rates, as a policy writes them.
type plansJSON struct {
	By    string              `json:"by"`
	Rates map[string][]string `json:"rates"`
}

func newPlansJSON(p *weir.Plans) *plansJSON {
	if len(p.List) == 0 {
		return nil
	}
	out := &plansJSON{p.By, make(map[string][]string, len(p.List))}
	for _, plan := range p.List {
		out.Rates[plan.Name] = texts(plan.Rates)
	}
	return out
}

type reserveJSON struct {
	From  string `json:"from"`
	Times int64  `json:"times"`
	Plus  int64  `json:"plus"`
}

type countJSON struct {
	Not      bool     `json:"not"` // all but these statuses are counted
	Statuses []string `json:"statuses"`
}

// addSettling adds what a limiter learns of a request after it has admitted it.
func (out *limiterJSON) addSettling(l *weir.Limiter) {
	out.CostFrom = l.Actual.String()
	if r := &l.Reserve; r.From != (weir.Reading{}) {
		out.Reserve = &reserveJSON{r.From.String(), max(r.Times, 1), r.Plus}
	}
	if len(l.Count.Statuses) > 0 {
		out.Count = &countJSON{l.Count.Not, texts(l.Count.Statuses)}
	}
	if l.InFlight.Limit > 0 {
		out.InFlight = l.InFlight.String()
	}
}

type penaltyJSON struct {
	After     string `json:"after"`      // as a policy writes it
	RefuseFor string `json:"refuse_for"` // as a policy writes it
}

func limitersJSON(p weir.Policy) []limiterJSON {
	all := make([]limiterJSON, len(p.Limiters))
	for i, l := range p.Limiters {
		all[i] = limiterJSON{
			Name: l.Name, Routes: texts(l.Routes), Cost: max(l.Cost, 1), Requires: l.Requires, Chosen: l.Chosen,
			Message: answer.MessageOf(&p.Responses, &l), OnStoreFailure: l.OnStoreFailure.String(),
			Mode: l.Mode.String(), Align: l.Align.String(), Exempt: texts(l.Exempt), Deny: texts(l.Deny), Overrides: texts(l.Overrides),
			Plans: newPlansJSON(&l.Plans), Answers: l.Answers.String(), Notify: append([]int64{}, l.Notify...),
			Windows: []explain.SpelledWindow{},
		}
		all[i].addSettling(&l)
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
