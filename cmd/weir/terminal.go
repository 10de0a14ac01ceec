package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/vbauerster/mpb/v8"
)

// home begins what is drawn: a terminal has written ^C before it, when the user interrupts.
const home = "\r"

// sayEvery is how often a line says how far it is, where no bar shows it.
const sayEvery = 10 * time.Second

// terminal returns w where it is one; nil elsewhere.
func terminal(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return f
	}
	return nil
}

// newBars returns what draws bars on a terminal.
func newBars(f *os.File) *mpb.Progress {
	return mpb.New(mpb.WithOutput(f), mpb.WithRefreshRate(200*time.Millisecond))
}

// wipe takes a bar away.
func wipe(w io.Writer, bars *mpb.Progress, bar *mpb.Bar) {
	bar.Abort(true)
	bars.Wait()
	fmt.Fprint(w, home)
}
