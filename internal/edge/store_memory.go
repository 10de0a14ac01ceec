package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/handover"
	"github.com/weirlimit/weir/internal/sample"
	"github.com/weirlimit/weir/memstore"
)

// inMemory is the value "memory" of --store.
type inMemory struct{}

func (inMemory) String() string { return "memory" }

func parseMemory(string) (inMemory, error) { return inMemory{}, nil }

// countsFile is the name of the file of counts in the data directory.
const countsFile = "counters"

// openMemory opens the store in this process, with the counts that an earlier process left in the
// data directory, or will hand over (Server.Run). If the system cannot map a file, the counts are
// in memory only.
func openMemory(_ context.Context, at inMemory, o *opening) (*openStore, error) {
	if err := sample.MakeDir(o.Data); err != nil {
		return nil, noData(o.Data, err)
	}
	options := memstore.Options{
		Memory: o.Memory,
		Now:    o.Now,
		File:   filepath.Join(absolute(o.Data), countsFile),
		Name:   "weir serve on " + o.listen,
		Log:    o.Log,
	}
	line := fmt.Sprintf("%v, %v, kept in %s", at, size(o.Memory), options.File)
	counts := handover.New(options)
	var err error
	if o.from == nil {
		err = openCounts(counts, o.giveUp, o.Log)
	}
	if errors.Is(err, memstore.ErrNoMapping) {
		options.File = ""
		line = fmt.Sprintf("%v, %v; a restart begins new windows: %v", at, size(o.Memory), memstore.ErrNoMapping)
		counts = handover.New(options)
		err = counts.Open(nil)
	}
	if err != nil {
		return nil, noCounts(o.Data, err)
	}
	o.own.own(counts.Close)
	return &openStore{counts: counts, here: counts, line: line, table: counts.Stats}, nil
}

// maxCountsWait bounds the wait for the counts of a process that ends: its drain, and what follows
// it.
const maxCountsWait = 40 * time.Second

// openCounts opens the counts. If giveUp is not nil and another process holds them, it waits until
// that process has ended. If giveUp is closed while it waits, it returns ErrStopped.
func openCounts(counts *handover.Counts, giveUp <-chan struct{}, log *slog.Logger) error {
	err := counts.Open(nil)
	var held *memstore.InUseError
	if giveUp == nil || !errors.As(err, &held) {
		return err
	}
	log.Info("waiting for the previous process to release the counts", "held", held.Error(), "max", maxCountsWait)
	timeout := time.NewTimer(maxCountsWait)
	defer timeout.Stop()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		select {
		case <-retry.C:
			if err = counts.Open(nil); !errors.As(err, &held) {
				return err
			}
		case <-timeout.C:
			return err
		case <-giveUp:
			return ErrStopped
		}
	}
}

// noCounts returns the failure of opening the counts of a data directory.
func noCounts(data string, err error) error {
	var held *memstore.InUseError
	var later *memstore.FormatError
	hint := DataHint(err)
	switch {
	case errors.Is(err, ErrStopped):
		return err
	case errors.As(err, &held):
		return cli.Fail(held, "another server uses this data directory; give this one its own --data, or stop the other server, and wait until it has ended")
	case errors.As(err, &later):
		err, hint = later, "" // which says what to do
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = "the disk is full: make room, or give another directory with --data DIR"
	case errors.Is(err, syscall.ENOMEM):
		hint = "the system does not have that much memory; give less with --memory, such as --memory 256MiB"
	}
	return cli.Fail(fmt.Errorf("open the counts in the data directory %q: %w", data, err), hint)
}
