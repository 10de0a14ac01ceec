package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/weirlimit/weir/internal/plaintext"
	"github.com/weirlimit/weir/internal/verify"
)

// A verifyProgress shows how a verification goes: on a terminal a bar with what is under way below, elsewhere a line now and then.
// Its methods may be called at the same time.
type verifyProgress struct {
	out  io.Writer
	file *os.File // nil: no terminal

	bars *mpb.Progress // nil: no terminal, or it has not begun
	bar  *mpb.Bar

	mu       sync.Mutex // guards what follows
	now      verify.Progress
	wake     time.Time // when the present wait ends
	told     time.Time // the wake that a line last told
	said     time.Time // when a line was last printed
	stopping bool
	ended    bool
}

// mostInLine is how much of what is under way a line says.
const mostInLine = 2

func newVerifyProgress(w io.Writer) *verifyProgress {
	return &verifyProgress{out: w, file: terminal(w)}
}

// begin draws the bar, where there is a terminal.
func (p *verifyProgress) begin(most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Planned, p.said = most, time.Now()
	if p.file == nil {
		return
	}
	p.bars = newBars(p.file)
	p.bar = p.bars.New(int64(most), mpb.BarStyle(), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Any(p.counts)), mpb.BarExtender(mpb.BarFillerFunc(p.below), false))
}

// update is told how it goes. The bar asks for what it shows from goroutines of its own, so it is told when nothing is locked.
func (p *verifyProgress) update(now verify.Progress) {
	p.mu.Lock()
	p.now, p.wake = now, time.Time{}
	if now.Waiting > 0 {
		p.wake = time.Now().Add(now.Waiting)
	}
	bar, line := p.bar, p.line()
	if p.ended {
		bar, line = nil, ""
	}
	p.mu.Unlock()
	if bar != nil {
		bar.SetCurrent(int64(now.Sent))
		return
	}
	if line != "" {
		fmt.Fprintln(p.out, line)
	}
}

// line is what to print where there is no bar: a new wait, or how far it is every now and then. It is called with mu held.
func (p *verifyProgress) line() string {
	now := time.Now()
	waits := p.wake.Sub(p.told) > time.Second && p.now.Waiting >= 2*time.Second
	if !waits && now.Sub(p.said) < sayEvery {
		return ""
	}
	p.said = now
	text := fmt.Sprintf("%d of at most %d", p.now.Sent, p.now.Planned)
	if p.wake.After(now) {
		p.told = p.wake
		text += ", next window in " + timeLeft(p.wake.Sub(now))
	}
	for i, doing := range p.now.Doing {
		if i == mostInLine {
			return text + fmt.Sprintf("; and %d more", len(p.now.Doing)-i)
		}
		text += "; " + plaintext.Line(doing, 200)
	}
	return text
}

// interrupted is told that nothing more will be sent.
func (p *verifyProgress) interrupted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping = true; !p.ended && p.bars == nil {
		fmt.Fprintln(p.out, "stopping; interrupt again to end at once")
	}
}

// end takes the bar away.
func (p *verifyProgress) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	if p.bars != nil {
		wipe(p.out, p.bars, p.bar)
	}
}

// counts is what stands before the bar.
func (p *verifyProgress) counts(decor.Statistics) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return home + fmt.Sprintf("%d of at most %d ", p.now.Sent, p.now.Planned)
}

// below are the lines below the bar: what is under way, and what it waits for.
func (p *verifyProgress) below(w io.Writer, s decor.Statistics) error {
	p.mu.Lock()
	lines := p.status()
	p.mu.Unlock()
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(runewidth.Truncate(plaintext.Line(line, 500), max(s.AvailableWidth-1, 1), "…") + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// mostUnderWay is how many lines say what is under way.
const mostUnderWay = 8

// status is called with mu held.
func (p *verifyProgress) status() (lines []string) {
	if p.stopping {
		return []string{"stopping; interrupt again to end at once"}
	}
	for i, doing := range p.now.Doing {
		if i == mostUnderWay {
			lines = append(lines, fmt.Sprintf("… and %d more", len(p.now.Doing)-i))
			break
		}
		lines = append(lines, doing)
	}
	if now := time.Now(); p.wake.After(now) {
		lines = append(lines, "next window in "+timeLeft(p.wake.Sub(now)))
	}
	return lines
}
