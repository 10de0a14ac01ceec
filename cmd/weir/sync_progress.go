package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/docsync"
	"github.com/weirlimit/weir/internal/plaintext"
	"github.com/weirlimit/weir/pacer"
)

// maxNamed is how many bad files are named individually.
const maxNamed = 20

// A syncProgress shows how far a sync is: by a bar with a line about it below on a terminal,
// elsewhere by lines.
type syncProgress struct {
	*cli.Progress

	mu           sync.Mutex // guards what follows
	lines        string     // to print once it is unlocked
	ended        bool
	stopping     bool
	reading      int // files
	named        int // bad files
	alike        int // links of two documents that were named
	total        int // documents to send and delete; 0: not known yet
	requests     int // that this takes
	done         int
	begun        time.Time
	left         func(requests int) time.Duration // how long their budget makes these take
	wake         time.Time                        // when the present wait ends
	why          pacer.Reason
	trouble      string
	retry        time.Time // when what has failed is sent again
	reportedAt   time.Time // when a line last reported the position
	reportedWake time.Time // the wake that a line last reported
}

func newSyncProgress(w io.Writer) *syncProgress {
	p := &syncProgress{Progress: cli.NewProgress(w)}
	p.Start(0, cli.View{Left: p.counts, Right: p.pace, Below: p.below})
	return p
}

// printf prints a line, above the bar if there is one.
func (p *syncProgress) printf(format string, args ...any) {
	p.update(func() { p.line(format, args...) })
}

// line is printf within update.
func (p *syncProgress) line(format string, args ...any) {
	p.lines += fmt.Sprintf(format, args...) + "\n"
}

// update makes a change and then shows it, with nothing locked: the bar calls what renders it from
// goroutines of its own.
func (p *syncProgress) update(change func()) {
	p.mu.Lock()
	change()
	lines, total, done := p.lines, p.total, p.done
	p.lines = ""
	p.mu.Unlock()
	p.Set(int64(done), int64(total))
	if lines != "" {
		p.Print(lines)
	}
}

// begin takes what there is to do.
func (p *syncProgress) begin(documents, requests int, left func(int) time.Duration) {
	p.update(func() {
		p.total, p.requests, p.left, p.begun = documents, requests, left, time.Now()
		if p.reportedAt = p.begun; !p.OnTerminal() {
			p.line("%s in %s", cli.Count(documents, "document"), cli.Count(requests, "request"))
		}
	})
}

// event takes an event of the sync.
func (p *syncProgress) event(e docsync.Event) {
	p.update(func() {
		switch e := e.(type) {
		case docsync.Read:
			p.reading = e.Files
		case docsync.SameURL:
			if p.alike++; p.alike <= maxNamed {
				p.line("warning: %s and %s have the same link, %s; rename one, or give it a url in front matter",
					plaintext.Line(e.First, 300), plaintext.Line(e.Second, 300), plaintext.Line(e.URL, 300))
			}
		case docsync.Skipped:
			p.skipped(e)
		case docsync.Stored:
			p.advance(e.Documents)
		case docsync.Deleted:
			p.advance(e.Documents)
		case docsync.Retry:
			again := time.Now().Add(e.After)
			// Report it once, and not for each request in flight.
			if !p.OnTerminal() && (e.Reason != p.trouble || again.Sub(p.retry) > time.Second/2) {
				p.line("%s; again in %s", e.Reason, cli.TimeLeft(e.After))
			}
			p.trouble, p.retry = e.Reason, again
		}
	})
}

func (p *syncProgress) skipped(e docsync.Skipped) {
	if p.named++; p.named <= maxNamed {
		p.line("bad file: %s: %s; %s", plaintext.Line(e.Problem.Path, 300), plaintext.Line(e.Problem.Reason, 500), e.Problem.Hint)
	}
	if p.total > 0 {
		p.total-- // it was counted among those to send
	}
}

func (p *syncProgress) advance(documents int) {
	p.done += documents
	p.trouble = ""
	if now := time.Now(); !p.OnTerminal() && (now.Sub(p.reportedAt) >= 2*time.Second || p.done == p.total) {
		p.reportedAt = now
		p.line("%d of %d, %d left, %s", p.done, p.total, p.total-p.done, p.perSecond())
	}
}

// wait takes the wait of a request.
func (p *syncProgress) wait(w pacer.Wait) {
	if w.Reason == pacer.Probing { // takes no longer than a request
		return
	}
	p.update(func() {
		now := time.Now()
		if w.Until.After(p.wake) && w.Until.After(now) {
			p.wake, p.why = w.Until, w.Reason
		}
		if !p.OnTerminal() && w.Until.Sub(p.reportedWake) > time.Second {
			p.reportedWake = w.Until
			p.line("%s, next window in %s", w.Reason, cli.TimeLeft(w.Until.Sub(now)))
		}
	})
}

// interrupted reports that no new request will be sent.
func (p *syncProgress) interrupted() {
	p.update(func() {
		if p.stopping = true; !p.ended {
			p.line("stopping: requests in flight may finish; interrupt again to end at once")
		}
	})
}

// end removes the bar. It may be called more than once.
func (p *syncProgress) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.End()
}

// counts is what the bar shows before it.
func (p *syncProgress) counts(width int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total == 0 {
		return "reading: " + cli.Count(p.reading, "file")
	}
	text := fmt.Sprintf("%d/%d", p.done, p.total)
	if width >= 60 {
		text += fmt.Sprintf(" · %d left", p.total-p.done)
	}
	return text
}

// pace is what the bar shows behind it.
func (p *syncProgress) pace(width int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total == 0 || p.done == 0 || width < 24 {
		return ""
	}
	return p.perSecond()
}

func (p *syncProgress) perSecond() string {
	return fmt.Sprintf("%.0f/s", float64(p.done)/max(time.Since(p.begun).Seconds(), 0.001))
}

// below returns the line below the bar: why it waits, or what it does. The estimate is asked with
// nothing locked: the pacer calls wait with a lock of its own.
func (p *syncProgress) below() []string {
	p.mu.Lock()
	text, estimate, requests := p.status(), p.left, (p.total-p.done)*p.requests/max(p.total, 1)
	stopping := p.stopping
	p.mu.Unlock()
	if estimate != nil && requests > 0 && !stopping {
		if left := estimate(requests); left >= time.Second {
			text += " · done in " + cli.TimeLeft(left) + " or more"
		}
	}
	return []string{text}
}

// status returns what is going on. The caller holds mu.
func (p *syncProgress) status() string {
	now := time.Now()
	switch {
	case p.stopping:
		return "stopping: requests in flight may finish"
	case p.wake.After(now):
		return fmt.Sprintf("%s, next window in %s", p.why, cli.TimeLeft(p.wake.Sub(now)))
	case p.trouble != "" && p.retry.After(now):
		return fmt.Sprintf("again in %s: %s", cli.TimeLeft(p.retry.Sub(now)), p.trouble)
	case p.total == 0:
		return "looking for changes"
	}
	return "sending"
}
