package cli

import (
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// Terminal returns w if it is a terminal, and nil if it is not.
func Terminal(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return f
	}
	return nil
}
