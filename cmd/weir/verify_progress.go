package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/plaintext"
	"github.com/weirlimit/weir/internal/verify"
)

// A verifyProgress shows how far a verification is: by a bar with what is under way below it on a
// terminal, elsewhere by lines. Its methods may be called from several goroutines.
type verifyProgress struct {
	*cli.Progress

	mu           sync.Mutex // guards what follows
	now          verify.Progress
	wake         time.Time // when the present wait ends
	reportedWake time.Time // the wake that a line last reported
	reportedAt   time.Time // when a line was last printed
	stopping     bool
	ended        bool
}

// maxInLine is how many of the things under way a line names.
const maxInLine = 2

func newVerifyProgress(w io.Writer) *verifyProgress {
	return &verifyProgress{Progress: cli.NewProgress(w)}
}

// begin draws the bar for at most that many requests, if there is a terminal.
func (p *verifyProgress) begin(requests int) {
	p.mu.Lock()
	p.now.Planned, p.reportedAt = requests, time.Now()
	p.mu.Unlock()
	p.Start(int64(requests), cli.View{Left: func(int) string { return p.counts() }, Below: p.below})
}

// update takes the latest figures.
func (p *verifyProgress) update(now verify.Progress) {
	p.mu.Lock()
	p.now, p.wake = now, time.Time{}
	if now.Waiting > 0 {
		p.wake = time.Now().Add(now.Waiting)
	}
	line := ""
	if !p.ended && !p.OnTerminal() {
		line = p.line()
	}
	p.mu.Unlock()
	p.Set(int64(now.Sent), int64(now.Planned))
	if line != "" {
		p.Print(line + "\n")
	}
}

// line is what to print if there is no bar: a new wait, or the position every LineEvery. The caller
// holds mu.
func (p *verifyProgress) line() string {
	now := time.Now()
	waits := p.wake.Sub(p.reportedWake) > time.Second && p.now.Waiting >= 2*time.Second
	if !waits && now.Sub(p.reportedAt) < cli.LineEvery {
		return ""
	}
	p.reportedAt = now
	text := fmt.Sprintf("%d of at most %d", p.now.Sent, p.now.Planned)
	if p.wake.After(now) {
		p.reportedWake = p.wake
		text += ", next window in " + cli.TimeLeft(p.wake.Sub(now))
	}
	for i, doing := range p.now.Doing {
		if i == maxInLine {
			return text + fmt.Sprintf("; and %d more", len(p.now.Doing)-i)
		}
		text += "; " + plaintext.Line(doing, 200)
	}
	return text
}

// interrupted reports that nothing more will be sent.
func (p *verifyProgress) interrupted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping = true; !p.ended && !p.OnTerminal() {
		p.Print("stopping; interrupt again to end at once\n")
	}
}

// end removes the bar. No line is printed after it.
func (p *verifyProgress) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.End()
}

// counts is what the bar shows before it.
func (p *verifyProgress) counts() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%d of at most %d", p.now.Sent, p.now.Planned)
}

// below returns the lines below the bar: what is under way, and when the present wait ends.
func (p *verifyProgress) below() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.status()
	for i, line := range lines {
		lines[i] = plaintext.Line(line, 500)
	}
	return lines
}

// maxUnderWay is how many lines name what is under way.
const maxUnderWay = 8

// status returns the lines below the bar. The caller holds mu.
func (p *verifyProgress) status() (lines []string) {
	if p.stopping {
		return []string{"stopping; interrupt again to end at once"}
	}
	for i, doing := range p.now.Doing {
		if i == maxUnderWay {
			lines = append(lines, fmt.Sprintf("… and %d more", len(p.now.Doing)-i))
			break
		}
		lines = append(lines, doing)
	}
	if now := time.Now(); p.wake.After(now) {
		lines = append(lines, "next window in "+cli.TimeLeft(p.wake.Sub(now)))
	}
	return lines
}
