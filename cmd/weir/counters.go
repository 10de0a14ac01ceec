package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/sample"
	"github.com/weirlimit/weir/memstore"
)

// countersFile is where in the data directory the counts are kept.
const countersFile = "counters"

// openEmbedded opens the store in this process, with the counts that an earlier one left in the data directory. Where the system
// cannot keep counts in a file they are in memory only.
func (e *edge) openEmbedded(f *serveFlags, log *slog.Logger, now func() time.Time) (*memstore.Store, error) {
	if err := sample.MakeDir(f.data); err != nil {
		return nil, no(fmt.Errorf("open the data directory %q: %w", f.data, err), dataHint)
	}
	o := memstore.Options{
		Memory: int64(f.memory),
		Now:    now,
		File:   filepath.Join(absolute(f.data), countersFile),
		Name:   fmt.Sprintf("weir serve on %s", &f.listen),
		Log:    log,
	}
	e.storeLine = fmt.Sprintf("%s, %s, kept in %s", &f.store, &f.memory, o.File)
	store, err := memstore.New(o)
	if errors.Is(err, memstore.ErrNoMapping) {
		o.File = ""
		e.storeLine = fmt.Sprintf("%s, %s; a restart begins new windows: %v", &f.store, &f.memory, memstore.ErrNoMapping)
		store, err = memstore.New(o)
	}
	if err != nil {
		return nil, storeFailure(f, err)
	}
	e.closers = append(e.closers, store.Close)
	e.figures.Table = tableOf(store)
	return store, nil
}

// storeFailure says why the counts cannot be kept, and what helps.
func storeFailure(f *serveFlags, err error) error {
	var held *memstore.InUseError
	hint := dataHint
	switch {
	case errors.As(err, &held):
		return no(held, "another server uses this data directory; give this one a --data of its own, or end that one first")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = "the disk is full: make room, or say with --data DIR where there is some"
	case errors.Is(err, syscall.ENOMEM):
		hint = "the system has not so much to give; say less with --memory, such as --memory 256MiB"
	}
	return no(fmt.Errorf("open the counts in the data directory %q: %w", f.data, err), hint)
}
