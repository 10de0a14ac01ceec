package edge

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/handover"
	"github.com/weirlimit/weir/memstore"
)

// The next process waits for the counts that the last one still holds, until its
// own context ends.
func TestTheNextProcessWaitsForTheCounts(t *testing.T) {
	o := memstore.Options{Memory: memstore.MinMemory, File: filepath.Join(t.TempDir(), "counters"), Log: slog.New(slog.DiscardHandler)}
	last, err := memstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var held *memstore.InUseError
	if err := openCounts(handover.New(o), nil, o.Log); !errors.As(err, &held) {
		t.Errorf("without a hand-over: %v", err)
	}
	giveUp := make(chan struct{})
	close(giveUp)
	if err := openCounts(handover.New(o), giveUp, o.Log); !errors.Is(err, ErrStopped) {
		t.Errorf("to be ended: %v", err)
	}
	from, to := io.Pipe()
	defer to.Close()
	go func() {
		for lines := bufio.NewScanner(from); lines.Scan(); {
			if strings.Contains(lines.Text(), "waiting for the previous process") {
				_ = last.Close()
			}
		}
	}()
	next := handover.New(o)
	if err := openCounts(next, make(chan struct{}), slog.New(slog.NewTextHandler(to, nil))); err != nil {
		t.Fatal(err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}
