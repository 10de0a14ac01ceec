package cli

import (
	"io"
	"os"

	"github.com/mattn/go-isatty"
	"github.com/vbauerster/mpb/v8/cwriter"
)

// Terminal returns w if it is a terminal, and nil if it is not.
func Terminal(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return f
	}
	return nil
}

// Columns returns the width of the terminal that w is; 0 if it is none.
func Columns(w io.Writer) int {
	f := Terminal(w)
	if f == nil {
		return 0
	}
	width, _, err := cwriter.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
