package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/sample"
	"github.com/weirlimit/weir/memstore"
)

// countersFile is where in the data directory the counts are kept.
const countersFile = "counters"

// openEmbedded opens the store in this process, with the counts that an earlier one left in the data directory. Where the system
// cannot keep counts in a file they are in memory only.
func (e *edge) openEmbedded(f *serveFlags, log *slog.Logger, now func() time.Time) (*memstore.Store, error) {
	if err := sample.MakeDir(f.data); err != nil {
		return nil, cli.Fail(fmt.Errorf("open the data directory %q: %w", f.data, err), dataHint)
	}
	o := memstore.Options{
		Memory: int64(f.memory),
		Now:    now,
		File:   filepath.Join(absolute(f.data), countersFile),
		Name:   fmt.Sprintf("weir serve on %s", &f.listen),
		Log:    log,
	}
	e.storeLine = fmt.Sprintf("%s, %s, kept in %s", &f.store, &f.memory, o.File)
	store, err := openCounts(o, f.handOver, log)
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
	e.embedded = store
	return store, nil
}

// holding is how long a process that ends may go on holding the counts, while the next one waits: a drain, and what comes after.
const holding = 40 * time.Second

// errToldToEnd says that a server was told to end before it could begin.
var errToldToEnd = errors.New("told to end while the counts are held by the process before this one")

// openCounts opens the counts. Where the sockets are handed over it waits for the process before this one to let go of them, until
// giveUp is closed: then the error is errToldToEnd.
func openCounts(o memstore.Options, giveUp <-chan struct{}, log *slog.Logger) (*memstore.Store, error) {
	store, err := memstore.New(o)
	var held *memstore.InUseError
	if giveUp == nil || !errors.As(err, &held) {
		return store, err
	}
	log.Info("waiting for the process before this one to let go of the counts", "held", held.Error(), "most", holding)
	patience := time.NewTimer(holding)
	defer patience.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			if store, err = memstore.New(o); !errors.As(err, &held) {
				return store, err
			}
		case <-patience.C:
			return nil, err
		case <-giveUp:
			return nil, errToldToEnd
		}
	}
}

// storeFailure says why the counts cannot be kept, and what helps.
func storeFailure(f *serveFlags, err error) error {
	var held *memstore.InUseError
	hint := dataHint
	switch {
	case errors.As(err, &held):
		return cli.Fail(held, "another server uses this data directory; give this one a --data of its own, or end that one first")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = "the disk is full: make room, or say with --data DIR where there is some"
	case errors.Is(err, syscall.ENOMEM):
		hint = "the system has not so much to give; say less with --memory, such as --memory 256MiB"
	}
	return cli.Fail(fmt.Errorf("open the counts in the data directory %q: %w", f.data, err), hint)
}
