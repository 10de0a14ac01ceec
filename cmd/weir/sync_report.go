package main

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/docsync"
	"github.com/weirlimit/weir/internal/folder"
	"github.com/weirlimit/weir/internal/plaintext"
)

// A counter counts from several goroutines.
type counter struct{ n atomic.Int64 }

func (c *counter) add()       { c.n.Add(1) }
func (c *counter) get() int64 { return c.n.Load() }

// The contract's pace, where nothing else is known: 60 a minute, of which a caller that paces itself leaves four.
const contractPace = 56

// A syncSummary is what weir sync --json prints.
type syncSummary struct {
	To          string    `json:"to"`
	Done        bool      `json:"done"`            // all was sent, or would be
	Error       string    `json:"error,omitempty"` // why it ended early
	Interrupted bool      `json:"interrupted"`
	Sent        int       `json:"sent"` // documents acknowledged
	Unchanged   int       `json:"unchanged"`
	Deleted     int       `json:"deleted"`
	Vanished    int       `json:"vanished"`  // known, gone from the folder, and not deleted
	BadFiles    []badFile `json:"bad_files"` // not sent
	Ignored     int       `json:"ignored"`   // files with other extensions
	Links       int       `json:"links"`     // symbolic links, not followed
	Excluded    int       `json:"excluded"`  // files and folders that --exclude matches
	State       string    `json:"state"`     // the file that remembers what was acknowledged
	Requests    int64     `json:"requests"`
	Refusals    int64     `json:"refusals"` // answers 429
	Waited      float64   `json:"waited_seconds"`
	Seconds     float64   `json:"seconds"`
	Would       *syncPlan `json:"dry_run,omitempty"`
}

type badFile struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
	Hint   string `json:"hint"`
}

// A syncPlan is what a dry run found.
type syncPlan struct {
	Send     []string `json:"send"`
	Delete   []string `json:"delete"`
	Requests int      `json:"requests"`
	Seconds  float64  `json:"seconds"` // that their budget takes, at least
}

// conclude says what was done, and returns what the command ends with.
func (s *syncing) conclude(cmd *cobra.Command, err error) error {
	if err == nil {
		err = s.leftOut(len(s.skipped()))
	} else {
		err = asFailure(err)
	}
	summary := s.summary(err)
	s.say(summary)
	if s.f.out {
		return errors.Join(cli.WriteSafeJSON(cmd.OutOrStdout(), summary), err)
	}
	if summary.Would != nil {
		for _, id := range summary.Would.Send {
			fmt.Fprintf(cmd.OutOrStdout(), "send    %s\n", plaintext.Line(id, 500))
		}
		for _, id := range summary.Would.Delete {
			fmt.Fprintf(cmd.OutOrStdout(), "delete  %s\n", plaintext.Line(id, 500))
		}
	}
	return err
}

// leftOut is what a sync ends with that has skipped so many files.
func (s *syncing) leftOut(n int) error {
	if n == 0 {
		return nil
	}
	what, hint := "%s could not be sent", "named above, each with what to do"
	if n > mostNamed {
		hint = fmt.Sprintf("the first %d are named above, --json names all", mostNamed)
	}
	switch {
	case bool(s.f.dry):
		what = "%s cannot be sent"
	case s.plan.Found > n:
		hint += "; the others are in step"
	}
	return cli.Fail(fmt.Errorf(what, cli.Count(n, "file")), hint)
}

// skipped are the files that were not sent.
func (s *syncing) skipped() []folder.Problem {
	if s.sync == nil {
		return nil
	}
	return s.sync.Skipped()
}

func (s *syncing) summary(err error) syncSummary {
	var done docsync.Result // and nothing was, where it did not even begin
	if s.sync != nil {
		done = s.sync.Result()
	}
	y := syncSummary{
		To: s.f.to.String(), Done: err == nil, Sent: done.Stored, Unchanged: s.plan.Unchanged, Deleted: done.Deleted,
		Vanished: len(s.plan.Vanished) - done.Deleted, BadFiles: []badFile{}, Ignored: s.plan.Passed.Ignored, Links: s.plan.Passed.Links,
		Excluded: s.plan.Passed.Excluded, State: strings.ToValidUTF8(s.f.state, "\ufffd"),
		Refusals: s.refusals.get(),
		Waited:   s.show.waited().Round(time.Millisecond).Seconds(), Seconds: time.Since(s.started).Round(time.Millisecond).Seconds(),
	}
	for _, p := range s.skipped() {
		y.BadFiles = append(y.BadFiles, badFile{strings.ToValidUTF8(p.Path, "\ufffd"), p.Reason, p.Hint})
	}
	if err != nil {
		y.Error = err.Error()
		y.Interrupted = strings.HasPrefix(y.Error, "interrupted")
	}
	if s.sender != nil {
		y.Requests = s.sender.Sent()
	}
	if bool(s.f.dry) && s.planned {
		y.Would = &syncPlan{Send: append([]string{}, s.plan.Send...), Delete: []string{}, Requests: s.plan.Requests}
		if s.f.prune {
			y.Would.Delete = append(y.Would.Delete, s.plan.Vanished...)
			y.Would.Requests += s.plan.Deletions
		}
		y.Would.Seconds = s.duration(y.Would.Requests).Seconds()
	}
	return y
}

// duration is how long n requests take for want of budget: as is known, else at the contract's pace.
func (s *syncing) duration(n int) time.Duration {
	if r, err := s.request(); err == nil && s.pacer.Budget(r).Known {
		return s.pacer.Estimate(r, n)
	}
	return time.Duration(max(n-1, 0)/contractPace) * time.Minute
}

// say says a summary for people, on standard error.
func (s *syncing) say(y syncSummary) {
	show := s.show
	if n := y.Ignored; n > 0 {
		show.say("passed over %s with other extensions", cli.Count(n, "file"))
	}
	if n := y.Excluded; n > 0 {
		show.say("passed over %s that --exclude matches", cli.Count(n, "path"))
	}
	if n := y.Links; n > 0 {
		show.say("passed over %s: they are not followed", cli.Count(n, "symbolic link"))
	}
	switch would := y.Would; {
	case would != nil:
		show.say("would send %s and delete %d, %d unchanged, in %s: %s", cli.Count(len(would.Send), "document"), len(would.Delete), y.Unchanged,
			cli.Count(would.Requests, "request"), atLeast(would.Seconds))
	case y.Requests == 0 && y.Error == "":
		show.say("nothing to do: %s unchanged", cli.Count(y.Unchanged, "document"))
	case s.plan.Found > 0 || y.Requests > 0:
		show.say("sent %s, deleted %d, %d unchanged; %s, %d refused; %.1f s, %.1f s of them waiting",
			cli.Count(y.Sent, "document"), y.Deleted, y.Unchanged, cli.Count(int(y.Requests), "request"), y.Refusals, y.Seconds, y.Waited)
	}
	if y.Vanished > 0 && !bool(s.f.prune) {
		show.say("%s gone from the folder, or excluded, and still on the server; --prune deletes them", cli.Count(y.Vanished, "document"))
	}
}

func atLeast(seconds float64) string {
	if seconds < 1 {
		return "no waiting"
	}
	return "at least " + (time.Duration(seconds+0.5) * time.Second).String()
}
