package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/weirlimit/weir/internal/accesslog"
)

// A simulateProgress shows how far a replay is: on a terminal a bar, elsewhere a line now and then, once it has taken a while.
type simulateProgress struct {
	out   io.Writer
	begun time.Time
	said  time.Time // when a line last said how far it is, or the bar was last told

	bars *mpb.Progress // nil: no terminal
	bar  *mpb.Bar

	mu    sync.Mutex
	stats accesslog.Stats // the latest
}

// tellEvery is how often the bar is told how far it is.
const tellEvery = 100 * time.Millisecond

func newSimulateProgress(w io.Writer) *simulateProgress {
	p := &simulateProgress{out: w, begun: time.Now(), said: time.Now()}
	if f := terminal(w); f != nil {
		p.bars = newBars(f)
		p.bar = p.bars.New(0, mpb.BarStyle(), mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return home + p.far() + " " })),
			mpb.AppendDecorators(decor.Any(func(s decor.Statistics) string { return " " + p.speed(s.AvailableWidth) })))
	}
	return p
}

// update is told how far it is, from the goroutine that reads.
func (p *simulateProgress) update(stats accesslog.Stats) {
	now := time.Now()
	every := sayEvery
	if p.bars != nil {
		every = tellEvery
	}
	if now.Sub(p.said) < every {
		return
	}
	p.said = now
	p.mu.Lock()
	p.stats = stats
	p.mu.Unlock()
	if p.bars == nil {
		fmt.Fprintf(p.out, "%s, %s\n", p.far(), p.speed(80))
		return
	}
	p.bar.SetTotal(max(stats.Total, stats.Bytes+1), false)
	p.bar.SetCurrent(stats.Bytes)
}

// end takes the bar away.
func (p *simulateProgress) end() {
	if p.bars != nil {
		wipe(p.out, p.bars, p.bar)
	}
}

// far is how far it is, where that is known, else how much was read.
func (p *simulateProgress) far() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stats.Total > 0 {
		return fmt.Sprintf("%d %%", min(100*p.stats.Bytes/p.stats.Total, 100))
	}
	return fmt.Sprintf("%.1f MB", float64(p.stats.Bytes)/1e6)
}

// speed is how many lines were read, how fast, and how long the rest takes at that pace.
func (p *simulateProgress) speed(width int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := time.Since(p.begun)
	if width < 30 || p.stats.Lines == 0 || took <= 0 {
		return ""
	}
	text := fmt.Sprintf("%.1f M lines, %.2f M/s", float64(p.stats.Lines)/1e6, float64(p.stats.Lines)/1e6/took.Seconds())
	if left := p.stats.Total - p.stats.Bytes; p.stats.Total > 0 && p.stats.Bytes > 0 && left > 0 {
		text += ", " + timeLeft(time.Duration(float64(took)*float64(left)/float64(p.stats.Bytes))) + " left"
	}
	return text
}
