package main

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/accesslog"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/replay"
	reports "github.com/weirlimit/weir/internal/replay/report"
)

const simulateLong = `Replay access logs under a policy: who would have been limited, when, and by what.

The engine of the server decides each line of the logs, with the time of the log as its clock, so the result is
what the server would have done. It reads the usual formats of web servers, plain or compressed with gzip or zstd,
and many files as one in order of time. LOG may be - for standard input.

--against FILE replays the same requests under a second policy too, and shows what changes from the first to the second.
With --paced, callers wait as the contract asks, instead of being refused. The report shows how long they wait.

Most logs have no sessions and no tokens. The report lists what is missing. --key names a field of the log that holds
one: session=request.headers.X-Session.0.

Limiters that count by status, or hold slots in flight, use the status and the duration of each line. --cost names
the field with what a request has cost.

--fail-if makes the command a gate. A condition is '[LIMITER.]METRIC OP NUMBER[%]'. OP is one of > >= < <= ==.
METRIC is one of
  refused, newly-refused, newly-admitted, delayed, gave-up, unlimited    requests; % of all requests (of LIMITER)
  touched, newly-touched, freed                                          callers; % of all callers (of LIMITER)
  malformed                                                              lines; % of all lines
With --against, conditions apply to the second policy. An estimate counts as its worst possible value.

Exit status: 0 success; 1 a gate failed, there was no request, or a log cannot be read; 2 incorrect use.`

const simulateExample = `  weir simulate /var/log/nginx/access.log*
  weir simulate access.log --policy my-policy.yaml --html report.html
  weir simulate access.log --against my-policy.yaml --fail-if 'newly-refused > 0.3%'
  weir simulate access.json --key session=request.headers.X-Session.0 --trusted-proxies 10.0.0.0/8 --key ip=http_x_forwarded_for
  zcat old/*.gz | weir simulate - --format combined --paced --json`

// simulateFlags are the flags of weir simulate.
type simulateFlags struct {
	policy, against string
	format          string
	keys            keyFields
	cost            string
	trustedProxies  cli.Prefixes
	clientIPHeader  string
	ipv6Prefix      cli.Number
	paths           cli.Choice
	memory          cli.Size
	paced           cli.OnOff
	patience        cli.Span
	touch           portion
	worst           cli.Number
	failIf          conditions
	strict          cli.OnOff
	reorder         cli.Span
	since, until    instant
	html            string
	out             cli.OnOff
}

func newSimulate() *cobra.Command {
	f := &simulateFlags{
		format:         "auto",
		clientIPHeader: "X-Forwarded-For",
		ipv6Prefix:     cli.Number{Value: 64, Min: 1, Max: 128},
		paths:          cli.Choice{Value: pathsStrict, Of: []string{pathsStrict, pathsAsSent}},
		memory:         256 << 20,
		patience:       cli.Span{Duration: time.Hour, Min: time.Second, Max: 31 * 24 * time.Hour},
		touch:          portion{Rat: big.NewRat(1, 1000)},
		worst:          cli.Number{Value: 5, Min: 1, Max: 100},
		reorder:        cli.Span{Max: time.Hour}, // none: as the format needs it
	}
	cmd := &cobra.Command{
		Use:     "simulate LOG...",
		Short:   "Replay access logs under a policy: who would have been limited, when, and by what",
		Long:    simulateLong,
		Example: simulateExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError("usage: "+cmd.UseLine()+"; - is standard input", "%s: LOG is missing", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, logs []string) error {
			err := f.check(cmd, logs)
			if err == nil {
				err = runSimulate(cmd, f, logs)
			}
			return fitForTerminal(err)
		},
	}
	f.register(cmd)
	return cmd
}

func (f *simulateFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.policy, "policy", "", "`FILE` with the policy (default the contract)")
	flags.StringVar(&f.against, "against", "", "`FILE` with a second policy, or contract: show what would change from the first one")
	flags.StringVar(&f.format, "format", f.format, "the `FORMAT` of the lines: "+strings.Join(accesslog.Formats(), ", ")+", or a log_format of nginx's configuration")
	flags.Var(&f.keys, "key", "field of the log with a key source: agent, session, token, header:NAME, cookie:NAME, query:NAME, host, claim:NAME, cert or plan, such as session=request.headers.X-Session.0; ip: the field that holds --client-ip-header; repeatable")
	flags.StringVar(&f.cost, "cost", "", "field of the log with what a request has cost, in units, for limiters whose answers report that, such as sent_http_x_cost: a whole number (default cost of Weir's own log)")
	flags.Var(&f.trustedProxies, "trusted-proxies", "networks whose peers may name the client (default none)")
	flags.StringVar(&f.clientIPHeader, "client-ip-header", f.clientIPHeader, "the `HEADER` in which these peers name the client, for --key ip=FIELD: X-Forwarded-For, Forwarded or X-Real-IP")
	flags.Var(&f.ipv6Prefix, "ipv6-prefix", "how many bits of an IPv6 address identify a caller")
	flags.Var(&f.paths, "paths", "how paths are read: strict or as-sent, as weir serve reads them with the same flag")
	flags.Var(&f.memory, "memory", "maximum memory for the counts of callers, in B, KiB, MiB or GiB, at least 16MiB")
	cli.SwitchFlag(cmd, &f.paced, "paced", "have callers wait for their window, as the contract asks, and show how long")
	flags.Var(&f.patience, "patience", "how long callers wait before they give up; only with --paced")
	flags.Var(&f.touch, "touch", "recommend the lowest limit that touches at most this share of callers; off: none")
	flags.Var(&f.worst, "worst", "how many of the most refused callers to name for each limiter")
	flags.Var(&f.failIf, "fail-if", "exit with status 1 if this holds, such as 'newly-refused > 0.3%'; repeatable")
	cli.SwitchFlag(cmd, &f.strict, "strict", "end at the first malformed line")
	flags.Var(&f.reorder, "reorder", "how far lines may be out of order; 0s: lines count in the order of the file (default 1s, or 30s if lines are written when requests end)")
	flags.Lookup("reorder").DefValue = ""
	flags.Var(&f.since, "since", "leave out requests before this `TIME`: 2027-01-15, 2027-01-15T08:00:00 (UTC) or with an offset")
	flags.Var(&f.until, "until", "leave out requests at this `TIME` or later")
	flags.StringVar(&f.html, "html", "", "`FILE` for a page with charts, which needs no other file; - is standard output")
	cli.JSONFlag(cmd, &f.out)
	cli.NoVariables(cmd, "against", "since", "until", "fail-if")
	for _, name := range []string{"policy", "against", "html"} {
		cli.Must(cmd.MarkFlagFilename(name))
	}
	words := func(name string, of ...string) {
		cli.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(of, cobra.ShellCompDirectiveNoFileComp)))
	}
	words("format", accesslog.Formats()...)
	words("client-ip-header", clientIPHeaders...)
	words("paths", f.paths.Of...)
	words("paced", "on", "off")
	words("strict", "on", "off")
}

// check rejects flags that contradict one another.
func (f *simulateFlags) check(cmd *cobra.Command, logs []string) error {
	given := func(name string) bool { return cmd.Flags().Changed(name) }
	if f.memory < replay.MinMemory {
		minimum := cli.Size(replay.MinMemory)
		return cli.UsageError("such as --memory 256MiB, the default", "%s %v is too little to count in: expected %v or more", cli.GivenAs(cmd, "memory"), &f.memory, &minimum)
	}
	if err := f.checkFormat(cmd); err != nil {
		return err
	}
	if f.out && f.html == "-" {
		return cli.UsageError("give --html a FILE, or leave one of them out", "--json and --html - both write to standard output")
	}
	stdin := 0
	for _, name := range append([]string{f.policy, f.against}, logs...) {
		if name == "-" {
			stdin++
		}
	}
	if stdin > 1 {
		return cli.UsageError("put one of them into a file", "standard input can be read once, and - is given %d times", stdin)
	}
	if given("patience") && !bool(f.paced) {
		return cli.UsageError("give --paced too, or leave it out", "%s has no effect without --paced", cli.GivenAs(cmd, "patience"))
	}
	if !f.since.IsZero() && !f.until.IsZero() && !f.since.Before(f.until.Time) {
		return cli.UsageError("--until is the first moment that is left out", "between --since %v and --until %v there is nothing", &f.since, &f.until)
	}
	return f.checkAddress(cmd)
}

// checkFormat rejects a format that no line can have, before any is read.
func (f *simulateFlags) checkFormat(cmd *cobra.Command) error {
	r, err := accesslog.Open(accesslog.Options{Stdin: strings.NewReader(""), Format: f.format})
	if err != nil {
		return cli.UsageError("expected one of "+strings.Join(accesslog.Formats(), ", ")+", or a log_format of nginx's configuration, with its $variables",
			"%s %q: %w", cli.GivenAs(cmd, "format"), f.format, err)
	}
	return r.Close()
}

// checkAddress rejects flags that name the client in part.
func (f *simulateFlags) checkAddress(cmd *cobra.Command) error {
	if !slices.Contains(clientIPHeaders, f.clientIPHeader) {
		return cli.UsageError("see 'weir simulate --help'", "%s %q: expected X-Forwarded-For, Forwarded or X-Real-IP", cli.GivenAs(cmd, "client-ip-header"), f.clientIPHeader)
	}
	field := f.keys.field(identity.IP)
	if field != "" && len(f.trustedProxies) == 0 {
		return cli.UsageError("give --trusted-proxies too: no peer is trusted by default", "--key ip=%s has no effect without --trusted-proxies", field)
	}
	if cli.GivenItself(cmd, "trusted-proxies") && field == "" {
		return cli.UsageError("such as --key ip=http_x_forwarded_for; if the log already has the client's own address, leave --trusted-proxies out",
			"--trusted-proxies has no effect without --key ip=FIELD, which names the field of the log with %s", f.clientIPHeader)
	}
	if cli.GivenItself(cmd, "client-ip-header") && field == "" {
		return cli.UsageError("such as --key ip=http_x_forwarded_for, and --trusted-proxies", "--client-ip-header has no effect without --key ip=FIELD")
	}
	return nil
}

// A keyField is a key source and the field of a log that holds it.
type keyField struct{ source, field string }

// keyFields is a repeatable flag, at most one for each source.
type keyFields []keyField

func (k *keyFields) Set(value string) error {
	source, field, ok := strings.Cut(value, "=")
	key, err := weir.ParseKey(source)
	if err == nil && len(key) == 1 && len(key[0]) == 1 {
		source = key[0][0] // a policy has the field's name in canonical form
	}
	sources := slices.DeleteFunc(weir.Sources(), func(s weir.Source) bool { return s.Kind == weir.Common || s.Name == identity.Path })
	if _, known := weir.FindSource(sources, source); err != nil || !ok || field == "" || !known && source != replay.PlanKey {
		return fmt.Errorf("expected SOURCE=FIELD, such as session=request.headers.X-Session.0; SOURCE is one of %s, or plan", weir.SourceNames(sources))
	}
	if k.field(source) != "" {
		return fmt.Errorf("%s is %s already: expected one field for each source", source, k.field(source))
	}
	*k = append(*k, keyField{source, field})
	return nil
}

// field returns the field of a source; empty if none was given.
func (k keyFields) field(source string) string {
	for _, one := range k {
		if one.source == source {
			return one.field
		}
	}
	return ""
}

func (k *keyFields) String() string {
	all := make([]string, len(*k))
	for i, one := range *k {
		all[i] = one.source + "=" + one.field
	}
	return strings.Join(all, ",")
}

func (k *keyFields) Type() string { return "SOURCE=FIELD" }
func (k *keyFields) Repeatable()  {}

// conditions is a repeatable flag: what must not be the result.
type conditions []*reports.Condition

func (c *conditions) Set(value string) error {
	one, err := reports.ParseCondition(value)
	if err == nil {
		*c = append(*c, one)
	}
	return err
}

func (c *conditions) String() string { return "" }
func (c *conditions) Type() string   { return "CONDITION" }

// A portion is an exact share from 0 to 1. Nil means off.
type portion struct{ *big.Rat }

func (p *portion) Set(value string) error {
	if value == "off" {
		p.Rat = nil
		return nil
	}
	digits, ok := strings.CutSuffix(value, "%")
	r, number := new(big.Rat).SetString(digits)
	if !ok || !number || strings.ContainsAny(digits, "eEpPxX/_+-") || len(digits) > 20 || r.Cmp(big.NewRat(100, 1)) > 0 {
		return errors.New("expected a percentage from 0% to 100%, such as 0.1%, or off")
	}
	p.Rat = r.Quo(r, big.NewRat(100, 1))
	return nil
}

func (p *portion) String() string {
	if p.Rat == nil {
		return "off"
	}
	digits := new(big.Rat).Mul(p.Rat, big.NewRat(100, 1)).FloatString(18)
	return strings.TrimRight(strings.TrimRight(digits, "0"), ".") + "%"
}

func (p *portion) Type() string { return "SHARE%" }

// An instant is a time that a log can have. The zero value means none.
type instant struct{ time.Time }

// The times of logs are between these: they are counted in nanoseconds since 1970.
const (
	firstInstant = 0             // Unix seconds: 1970-01-01
	lastInstant  = 9_214_646_400 // 2262-01-01
)

func (i *instant) Set(value string) error {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateTime, time.DateOnly} {
		if at, err := time.ParseInLocation(layout, value, time.UTC); err == nil {
			if s := at.Unix(); s < firstInstant || s > lastInstant { // UnixNano would overflow
				return errors.New("no line of a log has such a time: expected one from 1970-01-01 to 2262-01-01, or leave the flag out")
			}
			i.Time = at
			return nil
		}
	}
	return errors.New("expected a time such as 2027-01-15, 2027-01-15T08:00:00 (both UTC) or 2027-01-15T08:00:00+01:00")
}

func (i *instant) String() string {
	if i.IsZero() {
		return ""
	}
	return i.Format(time.RFC3339)
}

func (i *instant) Type() string { return "TIME" }
