package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/accesslog"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/replay"
	reports "github.com/weirlimit/weir/internal/replay/report"
)

// A simulation is one run of weir simulate.
type simulation struct {
	f       *simulateFlags
	reading *replay.Reading
	page    *reports.PageFile // nil: none is written
}

func runSimulate(cmd *cobra.Command, f *simulateFlags, logs []string) error {
	ctx, stop := cli.Interruptible(cmd.Context(), nil)
	defer stop()
	s := &simulation{f: f}
	options, err := s.options(cmd)
	if err != nil {
		return err
	}
	engine, err := replay.New(options)
	if err != nil {
		return cli.Fail(err, "")
	}
	if f.html != "" && f.html != "-" {
		// The page is created first: a bad path must not show after hours of simulation.
		if s.page, err = reports.CreatePage(f.html); err != nil {
			return err
		}
		defer s.page.Discard()
	}
	if cmd.Flags().Changed("reorder") && f.reorder.Duration == 0 {
		f.reorder.Duration = -1 // lines in the order of the file
	}
	var show *simulateProgress
	s.reading, err = engine.Read(ctx, f.reading(logs, cmd.InOrStdin(), func(stats accesslog.Stats) { show.update(stats) }))
	if err != nil {
		return openFailure(err)
	}
	show = newSimulateProgress(cmd.ErrOrStderr())
	ended := s.reading.Run(ctx)
	show.End()
	ended = errors.Join(ended, s.reading.Close())
	r, err := s.reading.Report()
	if err != nil {
		return cli.Fail(err, "")
	}
	return s.conclude(cmd, r, ended)
}

// reading returns which lines of the logs are read.
func (f *simulateFlags) reading(logs []string, stdin io.Reader, progress func(accesslog.Stats)) replay.ReadOptions {
	o := replay.ReadOptions{
		Log:   accesslog.Options{Files: logs, Stdin: stdin, Format: f.format, Reorder: f.reorder.Duration},
		Since: f.since.Time, Until: f.until.Time, Strict: bool(f.strict), Progress: progress,
	}
	for _, key := range f.keys {
		o.Log.Fields = append(o.Log.Fields, key.field)
	}
	if f.cost != "" {
		o.Log.Fields = append(o.Log.Fields, f.cost)
	}
	return o
}

// options reads the policies and checks the conditions against them.
func (s *simulation) options(cmd *cobra.Command) (replay.Options, error) {
	f := s.f
	o := replay.Options{
		TrustedProxies: f.trustedProxies, ClientIPHeader: f.clientIPHeader, IPv6Prefix: f.ipv6Prefix.Value,
		Keys: map[string]int{}, Forwarded: -1, Memory: int64(f.memory), Paced: bool(f.paced), Patience: f.patience.Duration,
		Worst: f.worst.Value, Paths: pathForms[f.paths.Value],
	}
	for i, key := range f.keys {
		if key.source == identity.IP {
			o.Forwarded = i
		} else {
			o.Keys[key.source] = i
		}
	}
	if f.cost != "" {
		o.Cost = func(l *accesslog.Line) []byte { return l.Field(len(f.keys)) }
	}
	if f.touch.Rat != nil {
		o.Touch, _ = f.touch.Float64()
		o.Touch = max(o.Touch, math.SmallestNonzeroFloat64) // 0 % is a share, and 0 means none
	}
	first, err := readPolicy(cmd.InOrStdin(), f.policy)
	if err != nil {
		return o, printProblems(cmd.ErrOrStderr(), err)
	}
	o.Policy, o.Name = first.Policy, policyName(f.policy)
	if f.against != "" {
		name := f.against
		if name == "contract" {
			name = ""
		}
		second, err := readPolicy(cmd.InOrStdin(), name)
		if err != nil {
			return o, printProblems(cmd.ErrOrStderr(), err)
		}
		o.Against, o.AgainstName = &second.Policy, policyName(name)
	}
	return o, f.checkConditions(&o)
}

// policyName returns the name of a policy in a report, fit for terminals and the title of a page.
func policyName(file string) string {
	switch file {
	case "", builtInPolicy:
		return "the contract"
	case "-":
		return "standard input"
	}
	return reports.Shown(file, 200)
}

// checkConditions rejects conditions about something that the report will not have.
func (f *simulateFlags) checkConditions(o *replay.Options) error {
	judged, name := &o.Policy, o.Name
	if o.Against != nil {
		judged, name = o.Against, o.AgainstName
	}
	for _, c := range f.failIf {
		if c.NeedsAgainst() && o.Against == nil {
			return cli.UsageError("give --against FILE too", "--fail-if %q: there is no second policy to compare with", c)
		}
		if c.NeedsPaced() && !o.Paced {
			return cli.UsageError("give --paced too", "--fail-if %q: callers wait only with --paced", c)
		}
		if c.Limiter() != "" && !slices.ContainsFunc(judged.Limiters, func(l weir.Limiter) bool { return l.Name == c.Limiter() }) {
			var all []string
			for _, l := range judged.Limiters {
				all = append(all, l.Name)
			}
			return cli.UsageError(fmt.Sprintf("%s has %s", name, reports.Names(all)), "--fail-if %q: %s has no limiter %q", c, name, c.Limiter())
		}
	}
	return nil
}

// openFailure returns the failure of logs that cannot be opened.
func openFailure(err error) error {
	var path *fs.PathError
	switch {
	case errors.Is(err, accesslog.ErrStopped):
		return cli.Fail(errors.New("interrupted before a line was read"), "")
	case errors.Is(err, os.ErrNotExist):
		return cli.Fail(plainly(err), "name log files that exist; - is standard input")
	case errors.As(err, &path):
		return cli.Fail(plainly(err), "")
	case !strings.Contains(err.Error(), "format"):
		return cli.Fail(plainly(err), "see 'weir simulate --help'")
	}
	return cli.Fail(plainly(err), "--format gives the format of its lines, and --key the fields to use")
}

// plainly returns an error whose text may repeat a log or the name of a file, fit for a terminal.
func plainly(err error) error {
	return errors.New(reports.Shown(strings.ReplaceAll(err.Error(), "\n", "; "), 1000))
}

// fitForTerminal returns a failure of which the names of files and policies are part, fit for a
// terminal.
func fitForTerminal(err error) error {
	var f *cli.Failure
	if err == nil || !errors.As(err, &f) {
		return err
	}
	return &cli.Failure{Err: plainly(f.Err), Hint: reports.Shown(f.Hint, 1000), Exit: f.Exit}
}

// A simulationJSON is what weir simulate --json prints.
type simulationJSON struct {
	*replay.Report
	Verdict string            `json:"verdict"` // in a sentence
	Gates   []reports.Verdict `json:"gates"`
}

// conclude prints the report and returns the failure to end with. ended is the reason that only a
// part was read, or nil.
func (s *simulation) conclude(cmd *cobra.Command, r *replay.Report, ended error) error {
	if strict, ok := errors.AsType[*replay.MalformedError](ended); ok {
		return cli.Fail(fmt.Errorf("%s:%d: %s: \"%s\"", reports.Shown(reports.FileName(strict.File), 200), strict.Line, reports.Shown(strict.Reason, 200), reports.Shown(strict.Text, 200)),
			"correct or remove it; without --strict such lines are counted and skipped")
	}
	if ended == nil && r.Log.Requests == 0 {
		return s.nothing(r)
	}
	if errors.Is(ended, accesslog.ErrNewestFirst) {
		return cli.Fail(ended, "reverse it first, such as: tac LOG | weir simulate - (zcat LOG | tac, if it is compressed)")
	}
	var unseen []string
	for _, i := range s.reading.Unseen() {
		if i == len(s.f.keys) {
			unseen = append(unseen, s.f.cost)
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: no line has the field of --cost %s, so no request has a cost: is it spelled as in the log?\n", reports.Shown(s.f.cost, 200))
			continue
		}
		key := s.f.keys[i].source + "=" + s.f.keys[i].field
		unseen = append(unseen, key)
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: no line has the field of --key %s, so nothing was counted by it: is it spelled as in the log?\n", reports.Shown(key, 200))
	}
	verdicts := []reports.Verdict{}
	if ended != nil {
		ended = plainly(ended)
		r.Partial = ended.Error()
	} else {
		verdicts = reports.Judge(r, s.f.failIf, unseen)
	}
	if err := s.print(cmd.OutOrStdout(), r, verdicts, ended); err != nil {
		return cli.Fail(err, "")
	}
	if ended != nil {
		hint := "the report above covers what was read"
		if s.f.html != "" {
			hint += "; no page was written"
		}
		return cli.Fail(fmt.Errorf("the log was read in part: %w", ended), hint)
	}
	printGates(cmd.ErrOrStderr(), r, verdicts)
	return reports.GateFailure(r, verdicts, unseen)
}

// nothing returns the failure of a run without a request: it shows nothing, so no gate passes.
func (s *simulation) nothing(r *replay.Report) error {
	hint := "is it the right log?"
	switch {
	case len(r.Log.Examples) > 0:
		bad := r.Log.Examples[0]
		hint = fmt.Sprintf("--format gives the format of its lines; %s:%d: %s", reports.Shown(reports.FileName(bad.File), 200), bad.Line, reports.Shown(bad.Reason, 300))
	case r.Log.Own > 0:
		hint = "the server got no request while it was written"
	case r.Log.Without > 0:
		hint = "its lines are about connections without a request, such as failed handshakes and timeouts"
	case r.Log.Lines > 0 && !(s.f.since.IsZero() && s.f.until.IsZero()):
		hint = "--since and --until leave all of them out"
	}
	return cli.Fail(fmt.Errorf("there is no request in %s", cli.Count(int(r.Log.Lines), "line")), hint)
}

// print prints the report and, if all was read, writes the page.
func (s *simulation) print(out io.Writer, r *replay.Report, verdicts []reports.Verdict, ended error) error {
	if s.page != nil && ended == nil {
		if err := s.page.Write(func(w io.Writer) error { return reports.HTML(w, r, verdicts) }); err != nil {
			return err
		}
	}
	switch {
	case bool(s.f.out):
		y := simulationJSON{Report: r, Verdict: reports.Sentence(r), Gates: verdicts}
		return cli.WriteSafeJSON(out, y)
	case s.f.html == "-" && ended == nil:
		return reports.HTML(out, r, verdicts)
	}
	return reports.Table(out, r, cmp.Or(cli.Columns(out), 100))
}

// printGates prints how each gate came out.
func printGates(stderr io.Writer, r *replay.Report, verdicts []reports.Verdict) {
	if last := reports.Last(r); !reports.Covers(last) {
		fmt.Fprintf(stderr, "warning: no limiter of %s covers any of these requests\n", reports.Shown(last.Name, 200))
	}
	for _, v := range verdicts {
		how := "passed"
		if v.Holds {
			how = "failed"
		}
		fmt.Fprintf(stderr, "gate %s: %s: %s\n", how, reports.Shown(v.Condition, 200), reports.Shown(v.Measured, 500))
	}
}
