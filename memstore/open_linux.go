package memstore

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// openFile opens or creates the file, and locks it for this process.
func (s *Store) openFile(o Options, segmentBytes int64) (err error) {
	name := o.Name
	if name == "" {
		name = filepath.Base(os.Args[0])
	}
	_, noLock := os.Stat(o.File + ".lock") // an error before the first start here
	var lock *os.File
	if o.Continue != nil {
		lock = o.Continue.Lock
	}
	passed := lock != nil
	if passed {
		signLock(lock, name)
	} else if lock, err = lockFile(o.File+".lock", name); err != nil {
		var held *InUseError
		if errors.As(err, &held) {
			held.File = o.File
		}
		return err
	}
	if _, err := os.Stat(o.File); noLock == nil && errors.Is(err, os.ErrNotExist) {
		o.Log.Warn("there is no file of counts in a directory that was used before: all counts start at 0", "file", o.File)
	}
	m, err := openMapping(o.File, segmentBytes, o.Memory)
	var corrupt *corruptError
	if errors.As(err, &corrupt) {
		if err = setAside(o.File, corrupt, o.Log, "the file of counts is damaged: it was set aside, and all counts start at 0"); err == nil {
			m, err = openMapping(o.File, segmentBytes, o.Memory)
		}
	}
	if err != nil {
		if !passed {
			lock.Close()
		}
		return err
	}
	m.lock = lock
	s.own(m)
	s.file, s.seed, s.sharedUntil = o.File, m.seed, m.word(atSharedUntil)
	s.slots.seed = s.seed
	s.resume(o.Continue, o.Now)
	a := &arena{backing: m, segmentBytes: m.segmentBytes, limit: m.limit}
	a.adopt(m.chunks, m.found)
	s.table = newTable(a, s.clock)
	if len(m.found) == 0 {
		if err := s.table.start(); err != nil {
			return errors.Join(err, m.close())
		}
	} else {
		if err := s.table.adopt(m.found, m.gaps); err != nil {
			return errors.Join(err, m.close())
		}
	}
	if err := s.openGrants(o.File+".grants", o.Log); err != nil {
		return errors.Join(err, m.close())
	}
	if latest := uint64(s.clock.now() + longest); s.sharedUntil.Load() > latest {
		s.sharedUntil.Store(latest)
	}
	if until := int64(s.sharedUntil.Load()); until > s.clock.now() {
		o.Log.Warn("the table of counts was full: callers without an entry share budgets until these end, because they could otherwise spend twice",
			"until", time.Unix(until, 0).UTC().Format(time.RFC3339))
	}
	m.markOpen(o.Log)
	if s.table.unchecked.Load() {
		s.done.Go(func() { s.table.checkAll(s.stop) })
	}
	return nil
}
