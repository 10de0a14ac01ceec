package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/weirlimit/weir/internal/docsync"
	"github.com/weirlimit/weir/internal/plaintext"
	"github.com/weirlimit/weir/pacer"
)

// mostNamed is how many bad files are named one by one.
const mostNamed = 20

// A syncProgress shows how a sync goes: on a terminal a bar with a line about it below, elsewhere lines.
type syncProgress struct {
	out io.Writer

	bars *mpb.Progress // nil: no terminal
	bar  *mpb.Bar

	mu       sync.Mutex // guards what follows
	lines    string     // to print when it is unlocked
	ended    bool
	stopping bool
	reading  int // files
	named    int // bad files
	alike    int // links of two documents that were told of
	total    int // documents to send and delete; 0: it is not known yet
	requests int // that this takes
	done     int
	begun    time.Time
	left     func(requests int) time.Duration // what these take for want of budget
	wake     time.Time                        // when the present wait ends
	why      pacer.Reason
	trouble  string
	retry    time.Time // when what is in trouble is sent again
	idle     time.Duration
	said     time.Time // when a line last said how far it is
	told     time.Time // the wake that a line last told
}

func newSyncProgress(w io.Writer) *syncProgress {
	p := &syncProgress{out: w}
	if f := terminal(w); f != nil {
		p.bars = newBars(f)
		p.bar = p.bars.New(0, mpb.BarStyle(), mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Any(p.counts)), mpb.AppendDecorators(decor.Any(p.pace)),
			mpb.BarExtender(mpb.BarFillerFunc(p.below), false))
	}
	return p
}

// say prints a line, above the bar where there is one.
func (p *syncProgress) say(format string, args ...any) {
	p.update(func() { p.line(format, args...) })
}

// line is say within update.
func (p *syncProgress) line(format string, args ...any) {
	p.lines += fmt.Sprintf(format, args...) + "\n"
}

// update makes a change, and shows it. The bar asks for what it shows from goroutines of its own, so it is told when nothing
// is locked.
func (p *syncProgress) update(change func()) {
	p.mu.Lock()
	change()
	lines, total, done, barred := p.lines, p.total, p.done, p.bars != nil && !p.ended
	p.lines = ""
	p.mu.Unlock()
	if barred {
		p.bar.SetTotal(int64(total), false)
		p.bar.SetCurrent(int64(done))
	}
	if lines == "" {
		return
	}
	if barred {
		if _, err := io.WriteString(p.bars, home+lines); err == nil {
			return
		}
	}
	fmt.Fprint(p.out, lines)
}

// begin is told what there is to do.
func (p *syncProgress) begin(documents, requests int, left func(int) time.Duration) {
	p.update(func() {
		p.total, p.requests, p.left, p.begun = documents, requests, left, time.Now()
		if p.said = p.begun; p.bars == nil {
			p.line("%s in %s", count(documents, "document"), count(requests, "request"))
		}
	})
}

// event is told how it goes.
func (p *syncProgress) event(e docsync.Event) {
	p.update(func() {
		switch e := e.(type) {
		case docsync.Read:
			p.reading = e.Files
		case docsync.SameURL:
			if p.alike++; p.alike <= mostNamed {
				p.line("warning: %s and %s have one link, %s; rename one, or give it a url in front matter",
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
			if p.bars == nil && (e.Reason != p.trouble || again.Sub(p.retry) > time.Second/2) { // not once for each of those in flight
				p.line("%s; again in %s", e.Reason, timeLeft(e.After))
			}
			p.trouble, p.retry = e.Reason, again
		}
	})
}

func (p *syncProgress) skipped(e docsync.Skipped) {
	if p.named++; p.named <= mostNamed {
		p.line("bad file: %s: %s; %s", plaintext.Line(e.Problem.Path, 300), plaintext.Line(e.Problem.Reason, 500), e.Problem.Hint)
	}
	if p.total > 0 {
		p.total-- // it was counted among those to send
	}
}

func (p *syncProgress) advance(documents int) {
	p.done += documents
	p.trouble = ""
	if now := time.Now(); p.bars == nil && (now.Sub(p.said) >= 2*time.Second || p.done == p.total) {
		p.said = now
		p.line("%d of %d, %d left, %s", p.done, p.total, p.total-p.done, p.perSecond())
	}
}

// wait is told that a request waits.
func (p *syncProgress) wait(w pacer.Wait) {
	if w.Reason == pacer.Probing { // as short as a request
		return
	}
	p.update(func() {
		now := time.Now()
		begin := now
		if p.wake.After(begin) {
			begin = p.wake
		}
		if w.Until.After(begin) {
			p.idle += w.Until.Sub(begin)
			p.wake, p.why = w.Until, w.Reason
		}
		if p.bars == nil && w.Until.Sub(p.told) > time.Second {
			p.told = w.Until
			p.line("%s, next window in %s", w.Reason, timeLeft(w.Until.Sub(now)))
		}
	})
}

// waited is how long nothing was sent for want of budget.
func (p *syncProgress) waited() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.idle-max(time.Until(p.wake), 0), 0) // an interruption ends a wait early
}

// interrupted is told that no new request will be sent.
func (p *syncProgress) interrupted() {
	p.update(func() {
		if p.stopping = true; !p.ended {
			p.line("stopping: what is in flight may finish; interrupt again to end at once")
		}
	})
}

// end takes the bar away. It may be called more than once.
func (p *syncProgress) end() {
	p.mu.Lock()
	ended := p.ended
	p.ended = true
	p.mu.Unlock()
	if p.bars != nil && !ended {
		wipe(p.out, p.bars, p.bar)
	}
}

// counts is what stands before the bar.
func (p *syncProgress) counts(s decor.Statistics) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total == 0 {
		return home + fmt.Sprintf("reading: %s ", count(p.reading, "file"))
	}
	text := home + fmt.Sprintf("%d/%d ", p.done, p.total)
	if s.AvailableWidth >= 60 {
		text += fmt.Sprintf("· %d left ", p.total-p.done)
	}
	return text
}

// pace is what stands behind the bar.
func (p *syncProgress) pace(s decor.Statistics) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total == 0 || p.done == 0 || s.AvailableWidth < 24 {
		return ""
	}
	return " " + p.perSecond()
}

func (p *syncProgress) perSecond() string {
	return fmt.Sprintf("%.0f/s", float64(p.done)/max(time.Since(p.begun).Seconds(), 0.001))
}

// below is the line below the bar: why it waits, or what it does.
func (p *syncProgress) below(w io.Writer, s decor.Statistics) error {
	p.mu.Lock()
	text, estimate, requests := p.status(), p.left, (p.total-p.done)*p.requests/max(p.total, 1)
	stopping := p.stopping
	p.mu.Unlock()
	if estimate != nil && requests > 0 && !stopping {
		if left := estimate(requests); left >= time.Second {
			text += " · done in " + timeLeft(left) + " or more"
		}
	}
	_, err := io.WriteString(w, runewidth.Truncate(text, max(s.AvailableWidth-1, 1), "…")+"\n")
	return err
}

// status is called with mu held.
func (p *syncProgress) status() string {
	now := time.Now()
	switch {
	case p.stopping:
		return "stopping: what is in flight may finish"
	case p.wake.After(now):
		return fmt.Sprintf("%s, next window in %s", p.why, timeLeft(p.wake.Sub(now)))
	case p.trouble != "" && p.retry.After(now):
		return fmt.Sprintf("again in %s: %s", timeLeft(p.retry.Sub(now)), p.trouble)
	case p.total == 0:
		return "looking for what has changed"
	}
	return "sending"
}

// timeLeft is a duration for people: 42 s, 3 min 5 s, 2 h 3 min.
func timeLeft(d time.Duration) string {
	s := int64((max(d, 0) + time.Second - 1) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	}
	return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
}
