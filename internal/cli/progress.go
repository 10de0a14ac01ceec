package cli

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
)

// LineEvery is how often a line reports how far a command is, if there is no bar.
const LineEvery = 10 * time.Second

// A Progress shows how far a long command is: by a bar on a terminal, by lines elsewhere. The
// command decides what the bar says and when a line is due. Its methods may be called from several
// goroutines.
type Progress struct {
	out  io.Writer
	file *os.File // nil: no terminal

	mu    sync.Mutex    // guards what follows
	bars  *mpb.Progress // nil: there is no bar
	bar   *mpb.Bar
	ended bool
}

// A View is what a bar shows. Its functions are called from the goroutines that draw, which hold no
// lock; each may be nil. The width is what the terminal has left, in columns.
type View struct {
	Left  func(width int) string // before the bar
	Right func(width int) string // behind the bar
	Below func() []string        // lines below the bar, which are cut to the width
}

// NewProgress returns a Progress that shows nothing yet.
func NewProgress(w io.Writer) *Progress {
	return &Progress{out: w, file: Terminal(w)}
}

// OnTerminal reports whether a bar shows the progress. Otherwise the command prints lines.
func (p *Progress) OnTerminal() bool { return p.file != nil }

// Start draws the bar, if there is a terminal. A total of 0 is not known yet.
func (p *Progress) Start(total int64, v View) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil || p.bars != nil || p.ended {
		return
	}
	p.bars = mpb.New(mpb.WithOutput(p.file), mpb.WithRefreshRate(200*time.Millisecond))
	p.bar = p.bars.New(total, mpb.BarStyle(), v.options()...)
}

// lineStart precedes what is drawn: a terminal has printed ^C there if the user has interrupted.
const lineStart = "\r"

func (v View) options() []mpb.BarOption {
	o := []mpb.BarOption{mpb.BarRemoveOnComplete()}
	if v.Left != nil {
		o = append(o, mpb.PrependDecorators(decor.Any(func(s decor.Statistics) string {
			return lineStart + v.Left(s.AvailableWidth) + " "
		})))
	}
	if v.Right != nil {
		o = append(o, mpb.AppendDecorators(decor.Any(func(s decor.Statistics) string {
			if text := v.Right(s.AvailableWidth); text != "" {
				return " " + text
			}
			return ""
		})))
	}
	if v.Below != nil {
		o = append(o, mpb.BarExtender(mpb.BarFillerFunc(func(w io.Writer, s decor.Statistics) error {
			_, err := io.WriteString(w, cut(v.Below(), s.AvailableWidth))
			return err
		}), false))
	}
	return o
}

// cut returns lines that a terminal of that width does not break: a broken line would stay on the
// screen when the bar is drawn again.
func cut(lines []string, width int) string {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(runewidth.Truncate(line, max(width-1, 1), "…") + "\n")
	}
	return text.String()
}

// drawn returns the bar; nil if there is none.
func (p *Progress) drawn() (*mpb.Progress, *mpb.Bar) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil, nil
	}
	return p.bars, p.bar
}

// Set moves the bar. The caller holds no lock that its View's functions take.
func (p *Progress) Set(done, total int64) {
	if _, bar := p.drawn(); bar != nil {
		bar.SetTotal(total, false)
		bar.SetCurrent(done)
	}
}

// Print prints whole lines, above the bar if there is one. The caller holds no lock that its View's
// functions take.
func (p *Progress) Print(lines string) {
	if bars, _ := p.drawn(); bars != nil {
		if _, err := io.WriteString(bars, lineStart+lines); err == nil {
			return
		}
	}
	fmt.Fprint(p.out, lines)
}

// End removes the bar. It may be called more than once.
func (p *Progress) End() {
	p.mu.Lock()
	ended := p.ended
	p.ended = true
	p.mu.Unlock()
	if ended || p.bars == nil {
		return
	}
	p.bar.Abort(true)
	p.bars.Wait() // it draws once more, so nothing may be locked
	fmt.Fprint(p.out, lineStart)
}
