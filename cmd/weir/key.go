package main

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/admin/client"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/plaintext"
)

const keyLong = `Show and change the budget of one caller on a running server.

Name the caller with --ip, --agent, --session, --token, --host, --cert, --header, --path, --cookie, --query and
--claim, whichever the limiters count by, or with --denial and the id in the X-Weir-Denial field of a 429. The id of a
session is the sid of its token, or the jti if it has no sid. The id of a token is its part between the two underscores,
or the first word of its line in --token-file. A certificate has the first of these names: uri:, dns:, email: and
subject:, such as dns:billing.example.com.

A change reaches all nodes that share a store within two seconds. --data/audit.log records it, with its author and the
reason.`

func newKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Show, reset and raise the budget of one caller",
		Long:  keyLong,
		Example: `  weir key show --ip 192.0.2.7
  weir key reset --session 7f3a --limiter widget-leads --why 'a form that sent everything twice'
  weir key grant --token 3fk2mq7a4c --limiter wp-plugin --times 2 --until 18:00 --why 'moving house'`,
		Args: cobra.ArbitraryArgs,
		RunE: cli.Group,
	}
	cmd.AddCommand(newKeyShow(), newKeyReset(), newKeyGrant())
	return cmd
}

// keyFlags are the flags that name a caller.
type keyFlags struct {
	operatorFlags
	ip, agent, session, issuer, id, host, cert, denial, limiter string
	values                                                      []*namedValues
}

// named returns them by the names that the server uses.
func (f *keyFlags) named() map[string]*string {
	return map[string]*string{
		"ip": &f.ip, "agent": &f.agent, "session": &f.session, "issuer": &f.issuer, "token": &f.id, "host": &f.host, "cert": &f.cert, "denial": &f.denial, "limiter": &f.limiter,
	}
}

func (f *keyFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.ip, "ip", "", "the caller's `ADDRESS`; an IPv6 address is counted by its network")
	flags.StringVar(&f.agent, "agent", "", "the `AGENT` of its widget")
	flags.StringVar(&f.session, "session", "", "the `ID` of its session")
	flags.StringVar(&f.issuer, "issuer", "", "the `ISS` of its session or claim, if the server accepts any issuer")
	flags.StringVar(&f.id, "token", "", "the public `ID` of its API token")
	flags.StringVar(&f.host, "host", "", "the `NAME` of the host that its requests are for")
	flags.StringVar(&f.cert, "cert", "", "the `NAME` in its client certificate, with its kind: uri:, dns:, email: or subject:")
	f.values = sourceFlags(cmd, weir.Sources())
	flags.StringVar(&f.denial, "denial", "", "the `ID` in the X-Weir-Denial field of one of its 429s")
	flags.StringVar(&f.limiter, "limiter", "", "only this `LIMITER` of the policy")
	cli.NoVariables(cmd, "ip", "agent", "session", "issuer", "token", "host", "cert", "denial", "limiter")
	f.operatorFlags.register(cmd)
}

func (f *keyFlags) check(cmd *cobra.Command) error {
	direct := f.ip+f.agent+f.session+f.id+f.host+f.cert != "" ||
		slices.ContainsFunc(f.values, func(v *namedValues) bool { return len(v.values) > 0 })
	if !direct && f.denial == "" {
		return cli.UsageError("for example: "+cmd.CommandPath()+" --ip 192.0.2.7", "no caller is named: give --ip, --agent, --session, --token, --host, --cert, --header, --path, --cookie, --query, --claim or --denial")
	}
	if f.denial != "" && direct {
		return cli.UsageError("see '"+cmd.CommandPath()+" --help'", "--denial already names a caller: leave the others out")
	}
	return nil
}

// body returns the caller in the form that the server reads.
func (f *keyFlags) body() map[string]any {
	b := map[string]any{}
	for name, value := range f.named() {
		if *value != "" {
			b[name] = *value
		}
	}
	for _, v := range f.values {
		if len(v.values) > 0 {
			b[v.row.Name] = v.list()
		}
	}
	return b
}

func newKeyShow() *cobra.Command {
	f := new(keyFlags)
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show how much one caller has spent of each window",
		Example: "  weir key show --ip 192.0.2.7\n  weir key show --session 7f3a --limiter widget-leads --json",
		Args:    cli.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			q := url.Values{}
			for name, value := range f.named() {
				if *value != "" {
					q.Set(name, *value)
				}
			}
			for _, v := range f.values {
				q[v.row.Name] = v.list()
			}
			return f.askAndPrint(cmd, "/keys?"+q.Encode(), nil)
		},
	}
	f.register(cmd)
	return cmd
}

func newKeyReset() *cobra.Command {
	f := new(keyFlags)
	var why string
	cmd := &cobra.Command{
		Use:     "reset",
		Short:   "Reset the windows of a caller",
		Long:    "Reset the windows of a caller, as if it had sent no request. That also ends its penalties. Without --limiter, it resets\nthe windows of every limiter that counts by what names the caller.",
		Example: "  weir key reset --ip 192.0.2.7 --limiter widget-leads --why 'a test that ran wild'\n  weir key reset --denial AVs8RGzh… --why 'our own crawler'",
		Args:    cli.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			if strings.TrimSpace(why) == "" {
				return noWhy()
			}
			body := f.body()
			body["why"] = why
			return f.askAndPrint(cmd, "/keys/reset", body)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&why, "why", "", "`TEXT` for the audit log; required")
	cli.NoVariables(cmd, "why")
	return cmd
}

// noWhy returns the failure of a change without a reason.
func noWhy() error {
	return cli.UsageError("such as --why 'moving house'", "--why is missing: the audit log records the reason for every change")
}

const grantLong = `Give a caller other limits than the policy's, for a time.

--times 2 doubles the limit of each window. --limit 500,3000 sets the limit of each window, in the policy's order; 0
leaves a window as it is. --limit none ends the caller's grants.

--for is how long the grant lasts, such as 90m, 2h or 720h; --until is when it ends, a time of today (18:00) or a date and
time (2006-01-02T15:04:05Z). A grant lasts at most a year. If it ends before a window resets, what the caller has spent
beyond the policy's limit still counts until the reset. The command warns of that.`

func newKeyGrant() *cobra.Command {
	f := new(keyFlags)
	var times cli.Number
	times.Min, times.Max = 1, 1<<31-1
	var limits limitList
	var end grantEnd
	var why string
	cmd := &cobra.Command{
		Use:   "grant",
		Short: "Give a caller other limits for a while",
		Long:  grantLong,
		Example: `  weir key grant --ip 192.0.2.7 --limiter widget-leads --times 2 --until 18:00 --why 'a launch'
  weir key grant --token 3fk2mq7a4c --limiter wp-plugin --limit 600 --for 2h --why 'moving house'
  weir key grant --token 3fk2mq7a4c --limiter wp-plugin --limit none --why 'moved'`,
		Args: cli.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			body := f.body()
			body["why"] = why
			hint := "see 'weir key grant --help'"
			switch given := cmd.Flags().Changed; {
			case f.limiter == "" && f.denial == "":
				return cli.UsageError(hint, "--limiter is missing: a grant is for one limiter")
			case strings.TrimSpace(why) == "":
				return noWhy()
			case len(limits) > 0 && !slices.ContainsFunc(limits, func(n int64) bool { return n != 0 }):
				return cli.UsageError("--limit none ends the caller's grants", "--limit %v changes nothing", &limits)
			case given("times") == given("limit"):
				return cli.UsageError(hint, "give either --times or --limit")
			case given("times"):
				body["times"] = times.Value
			default:
				body["limits"] = []int64(limits)
			}
			ends := cmd.Flags().Changed("times") || len(limits) > 0
			if err := end.add(body, ends, time.Now()); err != nil {
				return err
			}
			b, err := f.ask(cmd.Context(), "/keys/grant", body)
			if err != nil {
				return err
			}
			if ends {
				warnOfEarlyEnd(cmd, b)
			}
			return f.print(cmd, b)
		},
	}
	f.register(cmd)
	cmd.Flags().Var(&times, "times", "the factor for the policy's limits")
	cmd.Flags().Var(&limits, "limit", "the limit of each window, or none")
	cmd.Flags().StringVar(&end.lasts, "for", "", "`DURATION` of the grant, such as 90m or 2h")
	cmd.Flags().StringVar(&end.until, "until", "", "`WHEN` it ends: 18:00 or 2006-01-02T15:04:05Z")
	cmd.Flags().StringVar(&why, "why", "", "`TEXT` for the audit log; required")
	cli.NoVariables(cmd, "times", "limit", "for", "until", "why")
	return cmd
}

// askAndPrint asks the server and prints its answer.
func (f *keyFlags) askAndPrint(cmd *cobra.Command, path string, body any) error {
	b, err := f.ask(cmd.Context(), path, body)
	if err != nil {
		return err
	}
	return f.print(cmd, b)
}

// print prints the windows of a caller.
func (f *keyFlags) print(cmd *cobra.Command, b []byte) error {
	if f.json {
		return printAnswer(cmd, b)
	}
	var k admin.CallerWindows
	if err := client.Decode(b, &k); err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LIMITER\tWINDOW\tSPENT\tLIMIT\tLEFT\tRESETS\tNOTE")
	for _, x := range k.Windows {
		name, window := plaintext.Line(x.Limiter, 80), plaintext.Line(x.Window, 200)
		if x.Lacks != "" {
			fmt.Fprintf(w, "%s\t%s\t?\t?\t?\t\tnot known without its %s\n", name, window, plaintext.Line(x.Lacks, 200))
			continue
		}
		note, resets := "", "not open"
		switch {
		case x.Denied:
			note = "denied: answered 403, and not counted"
		case x.Penalty > k.Now:
			note = fmt.Sprintf("under a penalty until %s: refused everything of the limiter", clockTime(x.Penalty))
		case x.InFlight && !x.Exempt:
			note = "requests under way: only their end gives it back"
		case x.Everyone:
			note = "shared by all callers: it cannot be reset or raised for one"
		case x.Exempt:
			note = "exempt: never refused"
		case x.Grant != nil:
			note = fmt.Sprintf("granted until %s, else %d", clockTime(x.Grant.Until), x.Declared)
			if x.PlanUnknown {
				note += " or what its plan has"
			}
		case x.Override:
			note = "an override of the policy"
		case x.Plan != "":
			note = "plan " + plaintext.Line(x.Plan, 64)
		case x.Unlisted != "":
			note = "its plan " + plaintext.Line(x.Unlisted, 64) + " is not one of the limiter's: this is the limit without one"
		case x.PlanUnknown:
			note = "its plan is not known: this is the limit without one"
		}
		if len(x.Without) > 0 {
			note = strings.TrimSuffix("of requests without "+plaintext.Line(strings.Join(x.Without, " and "), 200)+"; "+note, "; ")
		}
		if x.InFlight {
			resets = ""
		} else if x.Reset > k.Now {
			resets = "in " + (time.Duration(x.Reset-k.Now) * time.Second).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n", name, window, x.Count, x.Limit, x.Remain, resets, note)
	}
	return w.Flush()
}

// A limitList is one limit for each window. An empty one ends grants.
type limitList []int64

func (l *limitList) Set(value string) error {
	if value == "none" {
		*l = limitList{}
		return nil
	}
	var all limitList
	for _, text := range strings.Split(value, ",") {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return fmt.Errorf("expected a limit from 1 to %d for each window, or 0 to leave it as it is, such as 600 or 600,0; or none", 1<<31-1)
		}
		all = append(all, n)
	}
	*l = all
	return nil
}

func (l *limitList) String() string {
	all := make([]string, len(*l))
	for i, n := range *l {
		all[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(all, ",")
}

func (l *limitList) Type() string { return "N,..." }
