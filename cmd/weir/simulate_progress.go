package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
	"github.com/weirlimit/weir/internal/cli"
)

// A simulateProgress shows how far a replay is: by a bar on a terminal, elsewhere by a line every
// LineEvery.
type simulateProgress struct {
	*cli.Progress
	begun time.Time
	shown time.Time // when the bar or a line last changed

	mu    sync.Mutex
	stats accesslog.Stats // the latest
}

// barEvery is how often the bar moves.
const barEvery = 100 * time.Millisecond

func newSimulateProgress(w io.Writer) *simulateProgress {
	p := &simulateProgress{Progress: cli.NewProgress(w), begun: time.Now(), shown: time.Now()}
	p.Start(0, cli.View{Left: func(int) string { return p.position() }, Right: p.speed})
	return p
}

// update takes the latest figures, from the goroutine that reads.
func (p *simulateProgress) update(stats accesslog.Stats) {
	now := time.Now()
	every := cli.LineEvery
	if p.OnTerminal() {
		every = barEvery
	}
	if now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	p.mu.Lock()
	p.stats = stats
	p.mu.Unlock()
	if !p.OnTerminal() {
		p.Print(fmt.Sprintf("%s, %s\n", p.position(), p.speed(80)))
		return
	}
	p.Set(stats.Bytes, max(stats.Total, stats.Bytes+1))
}

// position is the part that is read, in percent; if the size is not known, the amount.
func (p *simulateProgress) position() string {
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
		text += ", " + cli.TimeLeft(time.Duration(float64(took)*float64(left)/float64(p.stats.Bytes))) + " left"
	}
	return text
}
