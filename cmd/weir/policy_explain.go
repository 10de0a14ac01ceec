package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/explain"
	"github.com/weirlimit/weir/policyfile"
)

func newPolicyExplain() *cobra.Command {
	var file, ip, agent, session, token, host, cert, plan string
	var values []*namedValues
	var machine cli.OnOff
	var who explain.Caller
	paths := cli.Choice{Value: pathsStrict, Of: []string{pathsStrict, pathsAsSent}}
	cmd := &cobra.Command{
		Use:   "explain METHOD [HOST]PATH",
		Short: "Show which limiter applies to a request, what it counts by, and why",
		Long: `Show which limiter applies to a request, which of its routes matches and why that one, and what each of its
windows counts the request by.

Weir first brings the path to its canonical form, as the server does, because all spellings of an endpoint share
one budget. For a server with --paths as-sent, give the same flag. If routes name hosts, write the request's host
before the path, or as --host. Name the caller with --ip, --agent, --session, --token, --host, --cert, --header,
--cookie, --query and --claim, and its plan with --plan; the path may have a query. An address or agent that you
leave out is shown in angle brackets. So is the value of a field, a cookie, a parameter or a claim, since it may be
a secret.

` + sourcesHelp(),
		Example: `  weir policy explain POST /api/v1/widget/leads --ip 203.0.113.7 --session abc
  weir policy explain POST /API//v1/widget/./Leads/
  weir policy explain POST api.example.com/v1/chat --policy my-policy.yaml
  weir policy explain GET /v1/wp/status --policy my-policy.yaml --json`,
		Args: cli.Arguments("METHOD", "PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := who.SetIP(ip); err != nil {
				return cli.UsageError("for example --ip 203.0.113.7", "%s %q: %w", cli.GivenAs(cmd, "ip"), ip, err)
			}
			if !methodToken(args[0]) {
				return cli.UsageError("for example: weir policy explain POST /api/v1/widget/leads", "method %q: expected a name such as POST", args[0])
			}
			host, path, err := hostAndPath(host, args[1])
			if err != nil {
				return err
			}
			policy, err := readPolicy(cmd.InOrStdin(), file)
			if err != nil {
				return printProblems(cmd.ErrOrStderr(), err)
			}
			who.Set(identity.Agent, agent)
			who.Set(identity.Session, sessionID(session))
			who.Set(identity.Token, apiTokenID(token))
			who.SetPlan(redactToken(plan))
			who.Set(identity.Host, host)
			if cert != "" {
				name, err := identity.CertificateName(cert)
				if err != nil {
					return cli.UsageError("for example --cert dns:billing.example.com", "%s: %w", cli.GivenAs(cmd, "cert"), err)
				}
				who.Set(identity.Cert, name)
			}
			for _, v := range values {
				for source, value := range v.values {
					who.Set(source, value)
				}
			}
			e, err := explain.Server{Paths: pathForms[paths.Value]}.Request(policy.Policy, args[0], path, who)
			if err != nil {
				return cli.Fail(err, "")
			}
			if machine {
				return cli.WriteJSON(cmd.OutOrStdout(), e)
			}
			return printExplanation(cmd.OutOrStdout(), e)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&ip, "ip", "", "the caller's IP `ADDRESS`")
	flags.StringVar(&agent, "agent", "", "the `ID` of the agent")
	flags.StringVar(&session, "session", "", "the `ID` of a verified visitor session")
	flags.StringVar(&token, "token", "", "the `ID` of a verified API token")
	flags.StringVar(&host, "host", "", "the `NAME` of the host that the request is for")
	flags.StringVar(&cert, "cert", "", "the `NAME` in its verified client certificate, with its kind: uri:, dns:, email: or subject:")
	// The parameters of a route are in the path that is explained.
	values = sourceFlags(cmd, slices.DeleteFunc(weir.Sources(), func(s weir.Source) bool { return s.Name == identity.Path }))
	flags.StringVar(&plan, "plan", "", "the `NAME` of its plan, for a limiter with plans")
	flags.StringVar(&file, "policy", "", "`FILE` with the policy (default the contract)")
	cli.Must(cmd.MarkFlagFilename("policy"))
	flags.Var(&paths, "paths", "how the path is read: strict or as-sent, as weir serve reads it with the same flag")
	cli.Must(cmd.RegisterFlagCompletionFunc("paths", cobra.FixedCompletions(paths.Of, cobra.ShellCompDirectiveNoFileComp)))
	cli.NoVariables(cmd, "host", "cert")
	cli.JSONFlag(cmd, &machine)
	return cmd
}

// hostAndPath returns the host and the path of a request. given is the value of --host, and written
// a path that may have a host before it, as in api.example.com/v1/chat, or a URL.
func hostAndPath(given, written string) (host, path string, err error) {
	_, rest, isURL := strings.Cut(written, "://")
	if !isURL || strings.HasPrefix(written, "/") {
		rest, isURL = written, false
	}
	before, path, hasPath := strings.Cut(rest, "/")
	path = "/" + path
	if !isURL && (!hasPath || before != "" && before != "localhost" && !strings.ContainsAny(before, ".:")) {
		return "", "", cli.UsageError("for example: weir policy explain POST /api/v1/widget/leads, or POST api.example.com/v1/chat",
			"path %q: expected one that begins with a slash, or with a host", written)
	}
	if host, err = hostOf("path "+strconv.Quote(written), before); err != nil || given == "" {
		return host, path, err
	}
	named, err := hostOf("--host "+strconv.Quote(given), given)
	if err == nil && host != "" && host != named {
		return "", "", cli.UsageError("give one of them", "--host %q and path %q name two hosts", given, written)
	}
	return named, path, err
}

// hostOf returns the form in which the host of an authority is compared; empty if authority is. of
// is what has it, for the error.
func hostOf(of, authority string) (string, error) {
	if authority == "" {
		return "", nil
	}
	if ascii, err := policyfile.ASCIIHost(authority); err == nil {
		authority = ascii
	}
	host, ok := weir.AppendHost(nil, authority)
	if !ok {
		return "", cli.UsageError("for example shop.example.com", "%s: expected the name of a host", of)
	}
	return string(host), nil
}

// sourcesHelp lists the key sources, a line each.
func sourcesHelp() string {
	var b strings.Builder
	b.WriteString("A window counts by one of these key sources, or by several:\n")
	for _, s := range weir.Sources() {
		fmt.Fprintf(&b, "\n  %-12s %s", s, s.Counts)
		if s.Kind == weir.Chosen {
			fmt.Fprintf(&b, "; it is %s", s.Kind)
		}
	}
	return b.String()
}

// methodToken reports whether s has the form of a method (RFC 9110, section 9.1).
func methodToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// sessionID returns the id that --session names. A whole token is replaced by a hash: WEIR_SESSION
// also holds the token of weir verify.
func sessionID(session string) string {
	if strings.Count(session, ".") == 2 && strings.HasPrefix(session, "eyJ") {
		return cli.TokenID(session)
	}
	return session
}

// apiTokenID returns the id that --token names. A whole token is replaced by its id: WEIR_TOKEN
// also holds the token of weir sync.
func apiTokenID(token string) string {
	if cli.IsAPIToken(token) {
		return cli.TokenID(token)
	}
	return token
}

// printCost prints what a request costs, and where that is told.
func printCost(w io.Writer, e *explain.Explanation) {
	switch {
	case e.Reserve != "":
		fmt.Fprintf(w, "cost\treserves %s\n", e.Reserve)
	case e.CostFrom != "":
		fmt.Fprintf(w, "cost\treserves %d\n", e.Cost)
	default:
		fmt.Fprintf(w, "cost\t%d\n", e.Cost)
	}
	if e.CostFrom != "" {
		fmt.Fprintf(w, "\t  then %s of the response\n", e.CostFrom)
	}
	if e.Counts != "" {
		fmt.Fprintf(w, "counts\t%s\n", e.Counts)
	}
}

// printExplanation prints an explanation for people.
func printExplanation(out io.Writer, e *explain.Explanation) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "request\t%s %s\n", e.Method, e.Path)
	if e.Host != "" {
		fmt.Fprintf(w, "host\t%s\n", e.Host)
	}
	fmt.Fprintf(w, "canonical\t%s\n", cmp.Or(e.Canonical, "none: the path can be read in more than one way, so it is answered 400"))
	fmt.Fprintf(w, "limiter\t%s\n", cmp.Or(e.Limiter, "none: the request is not limited, and its answer has no rate-limit fields"))
	if e.Limiter != "" {
		fmt.Fprintf(w, "route\t%s\n", e.Route)
		printCost(w, e)
		for _, window := range e.Windows {
			head := "window"
			if window.InFlight {
				head = "slots"
			}
			fmt.Fprintf(w, "%s\t%s\n", head, window.Window)
			if window.CallerLimit > 0 {
				fmt.Fprintf(w, "\t  limit %d by %s\n", window.CallerLimit, window.LimitBy)
			}
			for _, kv := range window.Counted {
				note := ""
				if kv.Note != "" {
					note = " (" + kv.Note + ")"
				}
				fmt.Fprintf(w, "\t  %s %s%s\n", kv.Source, kv.Value, note)
			}
		}
		if e.Requires != "" {
			fmt.Fprintf(w, "requires\t%s\n", e.Requires)
		}
		fmt.Fprintf(w, "message\t%s: %s\n", e.Message.Name, e.Message.Text)
	}
	for _, why := range e.Why {
		fmt.Fprintf(w, "why\t%s\n", why)
	}
	return w.Flush()
}
