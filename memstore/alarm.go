package memstore

import (
	"errors"
	"log/slog"
	"sync/atomic"
)

// An alarm logs that the table is filling up, once each time it does.
type alarm struct {
	log          *slog.Logger
	nearly, full atomic.Bool  // logged already
	failed       atomic.Int64 // the second in which the table last failed to grow
}

const (
	alarmPerMille = 800 // share of the bound in use at which a warning is logged
	clearPerMille = 600 // share below which the next warning may be logged,
	clearSeconds  = 60  // after so long without a failure to grow
)

// checkCapacity updates the alarm after a segment was rewritten, or could not be because of err.
func (s *Store) checkCapacity(err error, now int64) {
	used, _ := s.table.arena.state()
	perMille := used * 1000 / s.table.arena.limit
	if err != nil {
		s.alarm.failed.Store(now)
	}
	switch {
	case err != nil && !errors.Is(err, errBound):
		if !s.alarm.full.Swap(true) {
			s.alarm.log.Error("the table of counts cannot grow: new callers share budgets and may be refused early; no caller gets more than its limit. Make room on the disk of the file; it helps once the shared budgets have ended",
				"bytes", int64(used)*s.table.arena.segmentBytes, "error", err)
		}
	case err != nil:
		if !s.alarm.full.Swap(true) {
			s.alarm.log.Error("the table of counts is full: new callers share budgets and may be refused early; no caller gets more than its limit. Raise --memory; it helps once the shared budgets have ended",
				"memory", s.memory)
		}
	case perMille >= alarmPerMille:
		if !s.alarm.nearly.Swap(true) {
			s.alarm.log.Warn("the table of counts is over 80 % full; once it is full, new callers share budgets and may be refused early",
				"memory", s.memory)
		}
	case perMille < clearPerMille && now >= s.alarm.failed.Load()+clearSeconds:
		s.alarm.nearly.Store(false)
		s.alarm.full.Store(false)
	}
}
