package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/plaintext"
	"github.com/weirlimit/weir/internal/verify"
	reports "github.com/weirlimit/weir/internal/verify/report"
)

const verifyLong = `Drive the API at URL to its limits from outside, as its callers would, and report clause by clause whether it keeps
its policy and the contract. A clause is kept, broken (with the exchange that shows it), or not testable (with the
reason).

The command prints a plan first, and never sends more than that. By default it sends bodies that validation rejects;
--real sends valid ones, which the API stores. It uses up whole budgets: those of the credentials that it is given or
gets at init, and of its own address. Other callers that share these are refused meanwhile, so any API that is not on
this machine needs --yes.

It needs what a caller has: the id of an agent, or sessions, and API tokens for the bulk-sync surface. Give credentials
in the variables WEIR_SESSION and WEIR_TOKEN, several separated by spaces: on the command line, every user who may run
ps can read them. With two of a kind it also tests that their budgets are separate. --token-from says where the API reads
its tokens, as for 'weir serve'.

Any server that sends X-RateLimit-* can be verified: --policy gives the limits that it should enforce.

A clause that is not testable has one of four reasons: needs-input (a credential, a second one, permission to send valid
bodies), needs-more (time or requests), unobservable (the answers do not show it), shared (others may spend the same
budget).

The exit status is 0 if nothing is broken. It is 1 if a clause is broken, if nothing could be tested, if a credential
does not verify or if the API was not reached; with --fail-untested also if a clause that applies to its limiter could
not be tested. It is 2 if the command was used wrongly.`

const verifyExample = `  weir verify http://127.0.0.1:8080
  WEIR_TOKEN=$(weir token create --workspace demo) weir verify http://127.0.0.1:8080
  weir verify https://api.example.com --yes --quick --limiter widget-leads
  WEIR_TOKEN="$KEY" weir verify http://127.0.0.1:8080 --policy policy.yaml --token-from header:X-Api-Key
  weir verify https://api.example.com --yes --policy their-policy.yaml --json > verify.json`

// verifyFlags are the flags of weir verify.
type verifyFlags struct {
	policy       string
	limiters     limiterNames
	agent        string
	sessions     secrets
	sessionAt    string
	tokens       secrets
	tokenFrom    tokenPlaces
	header       fields
	ca           string
	cert         string // empty: none is shown
	certKey      string
	budget       cli.Number
	workers      cli.Number
	maxWait      cli.Span
	real, quick  cli.OnOff
	yes, machine cli.OnOff
	failUntested cli.OnOff
}

func newVerify(env cli.Environment) *cobra.Command {
	f := &verifyFlags{
		budget:  cli.Number{Value: verify.DefaultBudget, Min: 1, Max: 10_000_000},
		workers: cli.Number{Value: verify.DefaultWorkers, Min: 2, Max: 256},
		maxWait: cli.Span{Duration: verify.DefaultMaxWait, Min: time.Second, Max: 31 * 24 * time.Hour},
	}
	cmd := &cobra.Command{
		Use:     "verify URL",
		Short:   "Verify from outside that an API keeps its limits, clause by clause",
		Long:    verifyLong,
		Example: verifyExample,
		Args:    cli.Arguments("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var to cli.Endpoint
			if err := to.Set(args[0]); err != nil {
				return cli.UsageError("for example: weir verify http://127.0.0.1:8080", "URL %q: %w", cli.RedactURL(args[0]), err)
			}
			if to.RawQuery != "" || to.ForceQuery {
				return cli.UsageError("leave out what begins with the question mark", "URL %q: expected one without a query", to.String())
			}
			return runVerify(cmd, f, to.URL, env)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.policy, "policy", "", "`FILE` with the policy that the API is to enforce (default the contract)")
	flags.Var(&f.limiters, "limiter", "test only this limiter of the policy; repeatable")
	flags.StringVar(&f.agent, "agent", "demo", "`ID` of the agent for new sessions, and for windows that count by agent")
	flags.Var(&f.sessions, "session", "session token of a visitor, instead of two new ones from init; repeatable; use the variable")
	flags.StringVar(&f.sessionAt, "session-at", "token", "JSON `PATH` of the session token in the answer of init, such as data.token")
	flags.Var(&f.tokens, "token", "API token or key; a second one shows that budgets are separate; repeatable; use the variable")
	flags.Var(&f.tokenFrom, "token-from", "where requests have it, as in 'weir serve': bearer (default), basic (the user name), header:NAME or query:NAME; the first is used, and the others must be as good; repeatable")
	flags.Var(&f.header, "header", "field to send with every request; repeatable")
	flags.StringVar(&f.ca, "ca", "", "`FILE` with the certificates to trust instead of the system's, PEM")
	flags.StringVar(&f.cert, "cert", "", "`FILE` with the certificate to show to a server that asks for one, PEM; limiters that count by cert or require it are not tested")
	flags.StringVar(&f.certKey, "cert-key", "", "`FILE` with its private key, PEM")
	cli.SwitchFlag(cmd, &f.real, "real", "send valid bodies, which the API stores, instead of bodies that validation rejects")
	cli.SwitchFlag(cmd, &f.quick, "quick", "do not wait for windows: it takes seconds and tests less")
	flags.Var(&f.budget, "budget", "maximum number of requests")
	flags.Var(&f.maxWait, "max-wait", "maximum time to wait for one window; what needs longer ones is not tested")
	flags.Var(&f.workers, "workers", "number of connections at a time")
	cli.SwitchFlag(cmd, &f.yes, "yes", "verify an API that is not on this machine: its owner agrees, and its callers may be refused meanwhile")
	cli.NoVariables(cmd, "real", "yes")
	cli.SwitchFlag(cmd, &f.failUntested, "fail-untested", "also exit with status 1 if a clause that applies to its limiter could not be tested")
	cli.SwitchFlag(cmd, &f.machine, "json", "print the report as JSON")
	cli.Must(cmd.MarkFlagFilename("policy"))
	for _, name := range []string{"ca", "cert", "cert-key"} {
		cli.Must(cmd.MarkFlagFilename(name))
	}
	cli.Must(cmd.RegisterFlagCompletionFunc("token-from", cobra.FixedCompletions(identity.PlaceForms(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// options returns what to verify, from flags and files.
func (f *verifyFlags) options(cmd *cobra.Command, to *url.URL) (verify.Options, error) {
	file, err := readPolicy(cmd.InOrStdin(), f.policy)
	if err != nil {
		return verify.Options{}, printProblems(cmd.ErrOrStderr(), err)
	}
	if err := f.checkLimiters(file.Policy, cli.GivenAs(cmd, "limiter")); err != nil {
		return verify.Options{}, err
	}
	const tokenFrom = "token-from"
	if given := cli.GivenAs(cmd, tokenFrom); cmd.Flags().Changed(tokenFrom) && len(f.tokens) == 0 && given == "--"+tokenFrom {
		return verify.Options{}, cli.UsageError("give a key in WEIR_TOKEN too, or leave it out", "%s has no effect without a token to send", given)
	}
	secure, err := f.tls(cmd)
	if err != nil {
		return verify.Options{}, err
	}
	return verify.Options{
		URL: to, Policy: file.Policy, Limiters: f.limiters, Agent: f.agent, Sessions: f.sessions, SessionAt: f.sessionAt,
		Tokens: f.tokens, TokenPlaces: f.tokenFrom, Real: bool(f.real), Quick: bool(f.quick), Budget: f.budget.Value, MaxWait: f.maxWait.Duration,
		Workers: f.workers.Value, Header: http.Header(f.header), TLS: secure,
	}, nil
}

// checkLimiters returns an error for a name that no limiter of the policy has.
func (f *verifyFlags) checkLimiters(p weir.Policy, flag string) error {
	var all []string
	for _, l := range p.Limiters {
		all = append(all, l.Name)
	}
	for _, name := range f.limiters {
		if !slices.Contains(all, name) {
			return cli.UsageError("it has "+strings.Join(all, ", "), "%s %q: %s has no such limiter", flag, name, cmp.Or(f.policy, contractName))
		}
	}
	return nil
}

// tls returns which certificates are trusted, and which one is shown; nil: the system's, and none.
func (f *verifyFlags) tls(cmd *cobra.Command) (*tls.Config, error) {
	if (f.cert == "") != (f.certKey == "") {
		return nil, cli.UsageError("give both or neither", "--cert and --cert-key go together%s", cli.GivenIn(cmd, "cert", "cert-key"))
	}
	if f.ca == "" && f.cert == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		roots, err := readRoots(f.ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = roots
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.certKey)
		if err != nil {
			return nil, cli.Fail(fmt.Errorf("read the certificate %q with the key %q: %w", f.cert, f.certKey, err), "--cert and --cert-key must be PEM files that belong together")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// readRoots reads the certificates to trust.
func readRoots(name string) (*x509.CertPool, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("read the certificates to trust: %w", err), "give a file with --ca that exists and that you may read")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, cli.Fail(fmt.Errorf("read the certificates to trust: %s holds none in PEM", name), "it should have a line -----BEGIN CERTIFICATE-----")
	}
	return roots, nil
}

func runVerify(cmd *cobra.Command, f *verifyFlags, to *url.URL, env cli.Environment) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := f.options(cmd, to)
	if err != nil {
		return err
	}
	host, err := resolve(ctx, to)
	if err != nil {
		return err
	}
	show := newVerifyProgress(cmd.ErrOrStderr())
	o.Dial, o.Progress = host.dial, show.update
	plan, err := verify.NewPlan(o)
	if err != nil {
		return cli.UsageError("see 'weir verify --help'", "plan what to send to %s: %s", to, plaintext.Line(err.Error(), 1000))
	}
	if err := announce(cmd.ErrOrStderr(), to, host, plan); err != nil {
		return cli.Fail(fmt.Errorf("print the plan: %w", err), "")
	}
	if plan.Requests == 0 {
		return cli.UsageError("the reasons are above; see 'weir verify --help'", "no request to %s could test anything", to)
	}
	if !bool(f.yes) && !host.loopback() {
		return cli.UsageError("add --yes if its owner agrees, and if its other callers may be refused meanwhile",
			"%s is not a loopback address, and nothing was sent", host.name)
	}
	show.begin(plan.Requests)
	defer context.AfterFunc(ctx, func() {
		stop() // a second signal ends the process at once, by default
		show.interrupted()
	})()
	report, err := plan.Run(ctx)
	show.end()
	return f.conclude(cmd, report, ctx.Err(), err, env)
}

// conclude prints the report and returns the command's error. interrupted is nil unless the command
// was interrupted.
func (f *verifyFlags) conclude(cmd *cobra.Command, report *verify.Report, interrupted, err error, env cli.Environment) error {
	if report == nil {
		report = &verify.Report{}
	}
	outcome := verifyOutcome(report, interrupted, err)
	if outcome == nil && bool(f.failUntested) {
		outcome = untestedOutcome(report)
	}
	if f.machine {
		return errors.Join(cli.WriteSafeJSON(cmd.OutOrStdout(), reports.NewDocument(report, outcome)), outcome)
	}
	if len(report.Results) > 0 {
		if err := reports.Print(cmd.OutOrStdout(), report, wantsColour(cmd.OutOrStdout(), env)); err != nil {
			return cli.Fail(fmt.Errorf("print the report: %w", err), "")
		}
	}
	return outcome
}

// verifyOutcome returns the command's error: nil if a clause is kept and none is broken.
func verifyOutcome(report *verify.Report, interrupted, err error) error {
	tally := reports.TallyOf(report)
	switch {
	case interrupted != nil:
		return cli.Fail(fmt.Errorf("interrupted after %s; %s", cli.Count(report.Sent, "request"), tally), "")
	case isCredential(err):
		return cli.Fail(errors.New(plaintext.Line(err.Error(), 1000)), "give a valid one in WEIR_SESSION or WEIR_TOKEN, or none: then the budget of the address is verified")
	case err != nil:
		return cli.Fail(errors.New(plaintext.Line(err.Error(), 1000)), "is the API running, and is URL the part before the paths of the policy's routes?")
	case tally.Broken > 0:
		return cli.Fail(fmt.Errorf("some clauses are broken: %s", tally), "")
	case tally.Kept == 0:
		return cli.Fail(errors.New("nothing could be tested"), "the reasons are above; 'weir verify --help' lists what it needs")
	}
	return nil
}

// isCredential reports whether an error is a *verify.CredentialError.
func isCredential(err error) bool {
	_, ok := errors.AsType[*verify.CredentialError](err)
	return ok
}

// untestedOutcome returns the error of --fail-untested: nil if every clause that applies to its
// limiter was tested.
func untestedOutcome(report *verify.Report) error {
	missed := reports.Missed(report)
	if missed == "" {
		return nil
	}
	return cli.Fail(fmt.Errorf("some clauses could not be tested: %s", missed), "leave out --fail-untested if the reasons above are acceptable")
}

// wantsColour reports whether w is a terminal whose user wants colours.
func wantsColour(w io.Writer, env cli.Environment) bool {
	return cli.Terminal(w) != nil && env["NO_COLOR"] == "" && env["TERM"] != "dumb"
}
