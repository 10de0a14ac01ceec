package weir

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/policyfile"
)

// inProcess returns a server in this process with default settings, a policy and a
// clock. It has a free port, its own data directory, no admin listener and no logs.
func inProcess(t *testing.T, policy *live.Document, now func() time.Time) edge.Config {
	return edge.Config{
		Listen: "127.0.0.1:0", Policy: policy, Reader: policyReader(), StoreDeadline: 100 * time.Millisecond,
		Data: t.TempDir(), MaxData: 1 << 30, Memory: 256 << 20,
		Callers: edge.Callers{ClientIPHeader: "X-Forwarded-For", IPv6Prefix: 64},
		MinRate: 500, MinRateGrace: 20 * time.Second, CORSOrigins: []string{"*"},
		Now: now, Log: slog.New(slog.DiscardHandler),
	}
}

func policyReader() policyfile.Reader {
	return policyfile.Reader{Sources: identity.Sources(), Messages: answer.Messages()}
}

// contract returns the built-in policy.
func contract(t *testing.T) *live.Document {
	t.Helper()
	return parsed(t, string(policyfile.ContractSource()))
}

// parsed returns the policy in a text.
func parsed(t *testing.T, text string) *live.Document {
	t.Helper()
	d, err := live.Parse(policyReader(), live.Contract, "a policy of the test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// openEdge opens a server in this process until the test ends.
func openEdge(t *testing.T, c edge.Config) *edge.Server {
	t.Helper()
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
