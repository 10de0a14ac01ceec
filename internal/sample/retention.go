package sample

import (
	"context"
	"time"
)

const (
	retention  = 30 * 24 * time.Hour // of leads, and of sessions with all their rows
	sweepEvery = time.Hour
)

// sweepHourly sweeps at once and then every hour, until ctx ends.
func (b *Backend) sweepHourly(ctx context.Context) {
	hourly := time.NewTicker(sweepEvery)
	defer hourly.Stop()
	for {
		if err := b.sweep(ctx, b.now()); err != nil && ctx.Err() == nil {
			b.log.Error("sample backend: deletion of rows older than 30 days failed; the next attempt is in an hour", "error", err)
		}
		select {
		case <-hourly.C:
		case <-ctx.Done():
			return
		}
	}
}

// sweep deletes what was created 30 days before now or earlier: sessions with their conversations,
// messages, events, ratings and uses of coupons, and leads. A session lives for a day, so none of
// that age is in use. Documents, coupons with their counts, workspaces and tokens are kept.
func (b *Backend) sweep(ctx context.Context, now time.Time) error {
	gone, err := b.db.Sweep(ctx, now.Add(-retention), now)
	if gone.Sessions+gone.Conversations+gone.Messages+gone.Leads > 0 {
		b.log.Info("sample backend: deleted rows older than 30 days",
			"sessions", gone.Sessions, "conversations", gone.Conversations, "messages", gone.Messages, "leads", gone.Leads)
	}
	return err
}
