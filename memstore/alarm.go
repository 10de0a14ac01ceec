package memstore

import (
	"errors"
	"log/slog"
	"sync/atomic"
)

// An alarm tells the operator of a table that fills up, once each time.
type alarm struct {
	log          *slog.Logger
	nearly, full atomic.Bool  // told
	failed       atomic.Int64 // the second in which the table last could not grow
}

const (
	alarmPerMille = 800 // of the bound at which it is told,
	calmPerMille  = 600 // and below which it may be told again,
	calmSeconds   = 60  // when it has not failed to grow for as long
)

// watch looks at how full the table is after a segment was rewritten, or could not be for err.
func (s *Store) watch(err error, now int64) {
	used, _ := s.table.arena.state()
	perMille := used * 1000 / s.table.arena.most
	if err != nil {
		s.alarm.failed.Store(now)
	}
	switch {
	case err != nil && !errors.Is(err, errBound):
		if !s.alarm.full.Swap(true) {
			s.alarm.log.Error("the table of counts cannot grow: new callers share budgets and may be refused early, nobody gets more than the limit",
				"bytes", int64(used)*s.table.arena.segmentBytes, "error", err)
		}
	case err != nil:
		if !s.alarm.full.Swap(true) {
			s.alarm.log.Error("the table of counts is full: new callers share budgets and may be refused early, nobody gets more than the limit; more memory helps once the shared budgets have ended",
				"memory", s.memory)
		}
	case perMille >= alarmPerMille:
		if !s.alarm.nearly.Swap(true) {
			s.alarm.log.Warn("the table of counts is over 80 % full; when it is full, new callers share budgets and may be refused early",
				"memory", s.memory)
		}
	case perMille < calmPerMille && now >= s.alarm.failed.Load()+calmSeconds:
		s.alarm.nearly.Store(false)
		s.alarm.full.Store(false)
	}
}
