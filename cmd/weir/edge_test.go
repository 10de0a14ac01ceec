package main

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/live"
)

// openEdge opens a server in this process until the test ends, with the flags, under a policy and
// by a clock. It has a free port, a data directory of its own, and neither an admin listener nor an
// access log.
func openEdge(t *testing.T, f *serveFlags, document *live.Document, log *slog.Logger, now func() time.Time) *edge.Server {
	t.Helper()
	f.listen, f.admin, f.data, f.accessLog = "127.0.0.1:0", cli.AdminAddr{}, t.TempDir(), false
	c := f.config(document, log, io.Discard)
	c.Now = now
	s, err := edge.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// runEdge serves until the test ends.
func runEdge(t *testing.T, s *edge.Server) (url string) {
	t.Helper()
	running, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s.URL()
}
