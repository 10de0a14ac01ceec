package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Interruptible returns a context that ends when the user interrupts the process, or it is to
// terminate. interrupted is called then; it may be nil. A second signal ends the process at once.
// The caller calls stop when the command has ended.
func Interruptible(parent context.Context, interrupted func()) (ctx context.Context, stop func()) {
	ctx, release := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	forget := context.AfterFunc(ctx, func() {
		release() // the next signal meets the default, which is to end at once
		if interrupted != nil {
			interrupted()
		}
	})
	return ctx, func() {
		forget()
		release()
	}
}
