package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/cwriter"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/accesslog"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/replay"
	reports "github.com/weirlimit/weir/internal/replay/report"
)

// mostMalformed is how many malformed lines are shown.
const mostMalformed = 10

// A simulation is one run of weir simulate, with all that it uses.
type simulation struct {
	f         *simulateFlags
	logs      []string
	show      *simulateProgress
	replay    *replay.Replay
	malformed []replay.BadLine // the first of them
	page      *pageFile        // nil: none is written
	found     []bool           // of the fields that --key names, those that a line had
}

func runSimulate(cmd *cobra.Command, f *simulateFlags, logs []string) error {
	ctx, stop := cli.Interruptible(cmd.Context(), nil)
	defer stop()
	s := &simulation{f: f, logs: logs}
	options, err := s.options(cmd)
	if err != nil {
		return err
	}
	if s.replay, err = replay.New(options); err != nil {
		return cli.Fail(err, "")
	}
	if f.html != "" && f.html != "-" {
		if s.page, err = createPage(f.html); err != nil { // before hours are spent on what it is to hold
			return err
		}
		defer s.page.discard()
	}
	if cmd.Flags().Changed("reorder") && f.reorder.Duration == 0 {
		f.reorder.Duration = -1 // lines as they stand
	}
	reader, err := s.open(ctx, cmd.InOrStdin())
	if err != nil {
		return err
	}
	s.show = newSimulateProgress(cmd.ErrOrStderr())
	ended := s.read(ctx, reader)
	s.show.End()
	ended = errors.Join(ended, reader.Close())
	r, err := s.report(reader)
	if err != nil {
		return cli.Fail(err, "")
	}
	return s.conclude(cmd, r, ended)
}

// options reads the policies, and judges the conditions by them.
func (s *simulation) options(cmd *cobra.Command) (replay.Options, error) {
	f := s.f
	o := replay.Options{
		TrustedProxies: f.trustedProxies, ClientIPHeader: f.clientIPHeader, IPv6Prefix: f.ipv6Prefix.Value,
		Keys: map[string]int{}, Forwarded: -1, Memory: int64(f.memory), Paced: bool(f.paced), Patience: f.patience.Duration,
		Worst: f.worst.Value,
	}
	for i, key := range f.keys {
		if key.source == identity.IP {
			o.Forwarded = i
		} else {
			o.Keys[key.source] = i
		}
	}
	if f.touch.Rat != nil {
		o.Touch, _ = f.touch.Float64()
		o.Touch = max(o.Touch, math.SmallestNonzeroFloat64) // nobody is no share, and yet a wish
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

// policyName is what a policy is called in a report, which is shown on terminals and in the title of a page.
func policyName(file string) string {
	switch file {
	case "":
		return "the contract"
	case "-":
		return "standard input"
	}
	return reports.Shown(file, 200)
}

// checkConditions wants what each condition is about to be there, before the log is read.
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

// open opens the logs.
func (s *simulation) open(ctx context.Context, stdin io.Reader) (*accesslog.Reader, error) {
	o := accesslog.Options{Files: s.logs, Stdin: stdin, Format: s.f.format, Reorder: s.f.reorder.Duration, Malformed: s.bad, Stop: ctx.Done()}
	for _, key := range s.f.keys {
		o.Fields = append(o.Fields, key.field)
	}
	reader, err := accesslog.Open(o)
	if errors.Is(err, accesslog.ErrStopped) {
		return nil, cli.Fail(errors.New("interrupted before a line was read"), "")
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, cli.Fail(plainly(err), "name log files that are there; - is standard input")
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return nil, cli.Fail(plainly(err), "")
	}
	if err != nil && !strings.Contains(err.Error(), "format") {
		return nil, cli.Fail(plainly(err), "see 'weir simulate --help'")
	}
	if err != nil {
		return nil, cli.Fail(plainly(err), "--format says how its lines look, and --key which of their fields are wanted")
	}
	return reader, nil
}

// plainly is an error whose text may hold what a log or a file's name says, fit for a terminal.
func plainly(err error) error {
	return errors.New(reports.Shown(strings.ReplaceAll(err.Error(), "\n", "; "), 1000))
}

// harmless is what the command ends with, of which file and policy names are part, plainly.
func harmless(err error) error {
	var f *cli.Failure
	if err == nil || !errors.As(err, &f) {
		return err
	}
	return &cli.Failure{Err: plainly(f.Err), Hint: reports.Shown(f.Hint, 1000), Exit: f.Exit}
}

// bad is told of a malformed line.
func (s *simulation) bad(m accesslog.Malformed) {
	if len(s.malformed) < mostMalformed {
		s.malformed = append(s.malformed, replay.BadLine{File: m.File, Line: m.Line, Text: string(m.Text), Reason: m.Reason})
	}
}

// errMalformed ends a strict run.
var errMalformed = errors.New("malformed")

// read puts every line through the engine. The error says why not all were.
func (s *simulation) read(ctx context.Context, reader *accesslog.Reader) error {
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if !s.f.since.IsZero() {
		since = s.f.since.UnixNano()
	}
	if !s.f.until.IsZero() {
		until = s.f.until.UnixNano()
	}
	s.found = make([]bool, len(s.f.keys))
	var line accesslog.Line
	for n := 0; ; n++ {
		if n%1024 == 0 {
			s.show.update(reader.Stats())
		}
		err := reader.Next(&line)
		if (n%1024 == 0 || err != nil) && ctx.Err() != nil { // who writes to a pipe may have ended by the same Ctrl-C
			return errors.New("interrupted")
		}
		if bool(s.f.strict) && len(s.malformed) > 0 {
			return errMalformed
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, accesslog.ErrNewestFirst) {
			return err
		}
		if err != nil {
			return plainly(err)
		}
		if line.Time < since || line.Time >= until {
			continue
		}
		for i := range s.found {
			s.found[i] = s.found[i] || line.Field(i) != nil
		}
		if err := s.replay.Add(&line); err != nil {
			return plainly(err)
		}
	}
}

// report is what came out, with what the reader alone knows.
func (s *simulation) report(reader *accesslog.Reader) (*replay.Report, error) {
	r, err := s.replay.Report()
	if err != nil {
		return nil, err
	}
	stats := reader.Stats()
	r.Log.Files, r.Log.Formats = s.logs, stats.Formats
	r.Log.Lines, r.Log.Malformed, r.Log.Own, r.Log.Dropped = stats.Lines, stats.Malformed, stats.Own, stats.Dropped
	r.Log.Examples = append([]replay.BadLine{}, s.malformed...)
	return r, nil
}

// tableWidth is how wide the terminal is that w is; 100 where it is none.
func tableWidth(w io.Writer) int {
	if f := cli.Terminal(w); f != nil {
		if width, _, err := cwriter.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 100
}

// A simulationJSON is what weir simulate --json prints.
type simulationJSON struct {
	*replay.Report
	Verdict string            `json:"verdict"` // in a sentence
	Gates   []reports.Verdict `json:"gates"`
}

// conclude prints what came out, and returns what the command ends with. ended says why not all was read; nil: it was.
func (s *simulation) conclude(cmd *cobra.Command, r *replay.Report, ended error) error {
	if errors.Is(ended, errMalformed) {
		bad := s.malformed[0]
		return cli.Fail(fmt.Errorf("%s:%d: %s: \"%s\"", reports.Shown(reports.FileName(bad.File), 200), bad.Line, reports.Shown(bad.Reason, 200), reports.Shown(bad.Text, 200)),
			"correct it or cut it out; without --strict it would be counted, and passed over")
	}
	if ended == nil && r.Log.Requests == 0 {
		return s.nothing(r)
	}
	if errors.Is(ended, accesslog.ErrNewestFirst) {
		return cli.Fail(ended, "reverse it first, such as: tac LOG | weir simulate - (zcat LOG | tac, if it is compressed)")
	}
	if ended != nil {
		r.Partial = ended.Error()
	}
	missing := s.missing()
	for _, key := range missing {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: no line has the field of --key %s=%s, so nothing was counted by it: is it spelled as in the log?\n",
			key.source, reports.Shown(key.field, 200))
	}
	verdicts := []reports.Verdict{}
	for _, c := range s.f.failIf {
		if ended == nil { // of a part of the log there is no verdict
			verdicts = append(verdicts, c.Judge(r))
		}
	}
	if len(missing) > 0 {
		failAll(verdicts, "no line has a field that --key names")
	}
	if r.Log.Dropped > 0 {
		failAll(verdicts, "requests are missing in the log, as it says itself")
	}
	if reports.Disordered(r) {
		failAll(verdicts, "more than 0.1 % of the requests came out of order, and were counted at a wrong time")
	}
	if err := s.print(cmd.OutOrStdout(), r, verdicts, ended); err != nil {
		return cli.Fail(err, "")
	}
	if ended != nil {
		hint := "what was read until then is above"
		if s.f.html != "" {
			hint += "; no page was written"
		}
		return cli.Fail(fmt.Errorf("the log was read in part: %w", ended), hint)
	}
	return judgeGates(cmd.ErrOrStderr(), r, verdicts, missing)
}

// failAll lets no gate pass, whatever was measured.
func failAll(verdicts []reports.Verdict, why string) {
	for i := range verdicts {
		verdicts[i].Holds = true
		verdicts[i].Measured += "; but " + why
	}
}

// missing are the fields that no line has had.
func (s *simulation) missing() (all []keyField) {
	for i, found := range s.found {
		if !found {
			all = append(all, s.f.keys[i])
		}
	}
	return all
}

// nothing is what a run without a request ends with: nothing was shown, so no gate may pass.
func (s *simulation) nothing(r *replay.Report) error {
	hint := "is it the right log?"
	switch {
	case len(s.malformed) > 0:
		bad := s.malformed[0]
		hint = fmt.Sprintf("--format says how its lines look; %s:%d: %s", reports.Shown(reports.FileName(bad.File), 200), bad.Line, reports.Shown(bad.Reason, 300))
	case r.Log.Own > 0:
		hint = "the server was asked nothing while it was written"
	case r.Log.Without > 0:
		hint = "its lines tell of connections without a request: handshakes, time-outs"
	case r.Log.Lines > 0 && !(s.f.since.IsZero() && s.f.until.IsZero()):
		hint = "--since and --until leave all of them out"
	}
	return cli.Fail(fmt.Errorf("there is no request in %s", cli.Count(int(r.Log.Lines), "line")), hint)
}

// print prints the report, and writes the page where all was read.
func (s *simulation) print(out io.Writer, r *replay.Report, verdicts []reports.Verdict, ended error) error {
	if s.page != nil && ended == nil {
		if err := s.page.write(func(w io.Writer) error { return reports.HTML(w, r, verdicts) }); err != nil {
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
	return reports.Table(out, r, tableWidth(out))
}

// judgeGates says how each condition came out, and returns an error where one holds, or cannot be judged: because a field of --key is
// missing, say.
func judgeGates(stderr io.Writer, r *replay.Report, verdicts []reports.Verdict, missing []keyField) error {
	last := &r.Policy
	if r.Against != nil {
		last = r.Against
	}
	covered := reports.Covers(last)
	if !covered {
		fmt.Fprintf(stderr, "warning: no limiter of %s covers any of these requests\n", reports.Shown(last.Name, 200))
	}
	failed := 0
	for _, v := range verdicts {
		how := "passed"
		if v.Holds {
			how = "failed"
			failed++
		}
		fmt.Fprintf(stderr, "gate %s: %s: %s\n", how, reports.Shown(v.Condition, 200), reports.Shown(v.Measured, 500))
	}
	switch {
	case len(verdicts) > 0 && !covered:
		return cli.Fail(errors.New("no gate passes where no limiter covers any request"), "are its routes those of the log's paths? 'weir policy explain METHOD PATH' tells")
	case len(verdicts) > 0 && reports.Crowded(r):
		return cli.Fail(errors.New("no gate passes where there was too little memory for exact figures"), "give more --memory")
	case len(verdicts) > 0 && reports.Disordered(r):
		return cli.Fail(fmt.Errorf("no gate passes where more than 0.1 %% of the requests came out of order: %d of %s did, by %d s at most",
			r.Log.OutOfOrder, cli.Count(int(r.Log.Requests), "request"), r.Log.Disorder), "give more --reorder, and the logs of several servers as a file each")
	case len(verdicts) > 0 && r.Log.Dropped > 0:
		return cli.Fail(fmt.Errorf("no gate passes where requests are missing in the log: %d are, as it says itself", r.Log.Dropped), "replay a log that is whole: one that a faster disk took, or of another time")
	case len(verdicts) > 0 && len(missing) > 0:
		return cli.Fail(fmt.Errorf("no gate passes where no line has the field of --key %s=%s", missing[0].source, missing[0].field), "name a field that the log has, or leave it out")
	case failed > 0:
		return cli.Fail(fmt.Errorf("%d of %s failed", failed, cli.Count(len(verdicts), "gate")), "")
	}
	return nil
}
