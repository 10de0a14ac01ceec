package sample

import (
	"context"
	"time"
)

const (
	kept       = 30 * 24 * time.Hour // sessions with everything under them, and leads
	sweepEvery = time.Hour
)

// sweepHourly sweeps at once and then every hour, until ctx ends. Nobody waits for it.
func (b *Backend) sweepHourly(ctx context.Context) {
	hourly := time.NewTicker(sweepEvery)
	defer hourly.Stop()
	for {
		if err := b.sweep(ctx, b.now()); err != nil && ctx.Err() == nil {
			b.log.Error("sample backend: delete what is older than 30 days; the next try is in an hour", "error", err)
		}
		select {
		case <-hourly.C:
		case <-ctx.Done():
			return
		}
	}
}

// sweep deletes what was made 30 days before now or earlier: sessions with their conversations, messages, events, ratings
// and uses of coupons, and leads. A session lives for a day, so none is that old and in use. Documents, coupons with their
// counts, workspaces and tokens stay.
func (b *Backend) sweep(ctx context.Context, now time.Time) error {
	gone, err := b.db.Sweep(ctx, now.Add(-kept), now)
	if gone.Sessions+gone.Conversations+gone.Messages+gone.Leads > 0 {
		b.log.Info("sample backend: deleted what is older than 30 days",
			"sessions", gone.Sessions, "conversations", gone.Conversations, "messages", gone.Messages, "leads", gone.Leads)
	}
	return err
}
