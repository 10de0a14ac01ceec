package paced

import (
	"errors"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/docsync"
	"github.com/weirlimit/weir/internal/folder"
)

// A Summary is what a Run has done, or a dry run would do.
type Summary struct {
	To          string    `json:"to"`
	Done        bool      `json:"done"`            // all was sent, or would be
	Error       string    `json:"error,omitempty"` // why it ended early
	Interrupted bool      `json:"interrupted"`
	Sent        int       `json:"sent"` // documents acknowledged
	Unchanged   int       `json:"unchanged"`
	Deleted     int       `json:"deleted"`
	Vanished    int       `json:"vanished"`  // known, gone from the folder, and not deleted
	BadFiles    []BadFile `json:"bad_files"` // not sent
	Ignored     int       `json:"ignored"`   // files with other extensions
	Links       int       `json:"links"`     // symbolic links, not followed
	Excluded    int       `json:"excluded"`  // files and folders that were left out
	State       string    `json:"state"`     // the file that records what was acknowledged
	Requests    int64     `json:"requests"`
	Refusals    int64     `json:"refusals"` // answers 429
	Waited      float64   `json:"waited_seconds"`
	Seconds     float64   `json:"seconds"`
	DryRun      *DryRun   `json:"dry_run,omitempty"` // nil: it was none, or there is no plan
}

// A BadFile is a file that was not sent.
type BadFile struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
	Hint   string `json:"hint"`
}

// A DryRun is what a run would do.
type DryRun struct {
	Send     []string `json:"send"` // ids
	Delete   []string `json:"delete"`
	Requests int      `json:"requests"`
	Seconds  float64  `json:"seconds"` // that their budget takes at least
}

// Skipped returns the files that were not sent so far.
func (r *Run) Skipped() []folder.Problem {
	if r.sync == nil {
		return nil
	}
	return r.sync.Skipped()
}

// Found returns how many files should be documents, including bad ones.
func (r *Run) Found() int { return r.plan.Found }

// Summary sums up a Run that has ended with err; nil if all is done.
func (r *Run) Summary(err error) Summary {
	var done docsync.Result
	if r.sync != nil {
		done = r.sync.Result()
	}
	now := time.Now()
	y := Summary{
		To: r.o.To.String(), Done: err == nil, Sent: done.Stored, Unchanged: r.plan.Unchanged, Deleted: done.Deleted,
		Vanished: len(r.plan.Vanished) - done.Deleted, BadFiles: []BadFile{}, Ignored: r.plan.Passed.Ignored, Links: r.plan.Passed.Links,
		Excluded: r.plan.Passed.Excluded, State: strings.ToValidUTF8(r.o.State, "\ufffd"), Refusals: r.refusals.Load(),
		Waited: r.waits.until(now).Round(time.Millisecond).Seconds(), Seconds: now.Sub(r.started).Round(time.Millisecond).Seconds(),
	}
	for _, p := range r.Skipped() {
		y.BadFiles = append(y.BadFiles, BadFile{strings.ToValidUTF8(p.Path, "\ufffd"), p.Reason, p.Hint})
	}
	if err != nil {
		y.Error, y.Interrupted = err.Error(), errors.Is(err, docsync.ErrInterrupted)
	}
	if r.sender != nil {
		y.Requests = r.sender.Sent()
	}
	if r.o.DryRun && r.planned {
		y.DryRun = r.dryRun()
	}
	return y
}

func (r *Run) dryRun() *DryRun {
	work := r.work()
	d := &DryRun{Send: append([]string{}, r.plan.Send...), Delete: []string{}, Requests: work.Requests}
	if r.o.Prune != docsync.Keep {
		d.Delete = append(d.Delete, r.plan.Vanished...)
	}
	d.Seconds = r.duration(d.Requests).Seconds()
	return d
}

// contractPace is how many requests a minute the contract's budget allows a paced caller, which
// leaves four of its 60 unused.
const contractPace = 56

// duration returns how long the budget makes n requests take: as far as is known, else at the
// contract's pace.
func (r *Run) duration(n int) time.Duration {
	if request, err := r.request(); err == nil && r.pacer.Budget(request).Known {
		return r.pacer.Estimate(request, n)
	}
	return time.Duration(max(n-1, 0)/contractPace) * time.Minute
}
