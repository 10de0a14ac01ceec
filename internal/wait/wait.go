// Package wait waits for a time.
package wait

import (
	"context"
	"time"
)

// For waits for d. If ctx ends first, it returns the cause of that.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
