package weircaddy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/telemetry"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// pool has what outlives a reload: Caddy makes the handlers of a new configuration before it cleans
// up the old ones.
var pool = caddy.NewUsagePool()

// A storeKey is the name of a store in the pool.
type storeKey struct{ at string }

// A store counts, for all handlers that use it.
type store struct {
	name   string // without user and password
	counts weir.Store
	check  func(weir.Policy) error
	// secret derives a secret that all that count in the store have in common; nil: there is none.
	secret func(label string) func() []byte
	closes []func() error // in this order
}

// Destruct implements caddy.Destructor.
func (s *store) Destruct() error {
	var errs []error
	for _, end := range s.closes {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// openStore returns the store of h, which other handlers may use already.
func (h *Handler) openStore(ctx context.Context, log *slog.Logger) (*store, error) {
	key, construct := storeKey{"memory " + h.Policy}, func() (caddy.Destructor, error) { return openMemory(h.Counts, log) }
	if h.Store != "" && h.Store != "memory" {
		if h.Counts != "" {
			return nil, errors.New("counts: a file is for the store memory: leave out counts or store")
		}
		at, err := redisstore.Parse(h.Store)
		if err != nil {
			return nil, fmt.Errorf("store: expected memory, redis://HOST:PORT, rediss://HOST:PORT (TLS) or redis-sentinel://HOST:PORT/MASTER: %w", err)
		}
		figures, err := h.metrics()
		if err != nil {
			return nil, err
		}
		key.at = h.Store
		construct = func() (caddy.Destructor, error) { return openRedis(ctx, at, figures.Metrics, log) }
	}
	value, _, err := pool.LoadOrNew(key, construct)
	if err != nil {
		return nil, err
	}
	h.pooled = append(h.pooled, key)
	return value.(*store), nil
}

func openMemory(file string, log *slog.Logger) (*store, error) {
	if file != "" {
		path, err := filepath.Abs(file)
		if err != nil {
			return nil, fmt.Errorf("counts: %w", err)
		}
		file = path
	}
	counts, err := memstore.New(memstore.Options{File: file, Name: "caddy", Log: log})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return &store{name: "memory", counts: counts, check: func(weir.Policy) error { return nil }, closes: []func() error{counts.Close}}, nil
}

// maxGiveBack bounds the time in which a store that is closed gives its local counts to the server.
const maxGiveBack = 2 * time.Second

// openRedis opens a store that other processes count in too. While it does not answer, requests are
// counted in this process.
func openRedis(ctx context.Context, at redisstore.Options, figures *telemetry.Metrics, log *slog.Logger) (*store, error) {
	at.Log = log
	shared, err := redisstore.New(context.WithoutCancel(ctx), at)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	name := "redis " + strings.Join(at.Addresses, ",")
	if state := shared.State(); !state.Ready {
		log.Error("the store cannot be reached; requests are counted here until it answers", "store", name, "error", state.Err)
	}
	local, err := memstore.New(memstore.Options{Now: shared.Now, Log: log})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store: %w", err), shared.Close())
	}
	over, err := failover.New(shared, local, failover.Options{OnTake: figures.StoreTake, OnEvent: func(e failover.Event) {
		figures.StoreEvent(e)
		if e.Failing {
			log.Error("the store does not answer; each limiter follows its on_store_failure", "store", name, "error", e.Err)
			return
		}
		log.Info("the store answers again", "store", name, "after", e.For.Round(time.Millisecond), "units lost", e.Lost)
	}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store: %w", err), local.Close(), shared.Close())
	}
	return &store{
		name: name, counts: over, check: shared.Check, secret: shared.Secret,
		closes: []func() error{probe(over), func() error {
			ctx, cancel := context.WithTimeout(context.Background(), maxGiveBack)
			defer cancel()
			return over.Close(ctx)
		}, local.Close, shared.Close},
	}, nil
}

// probe probes a store that does not answer, until stop is called.
func probe(over *failover.Store) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var probing sync.WaitGroup
	probing.Go(func() { over.KeepProbing(ctx) })
	return func() error {
		cancel()
		probing.Wait()
		return nil
	}
}

// denialIDs returns what gives refusals their ids. Every server with the store's secret can open
// them, such as weir serve. It is nil if there is no secret, because then none could.
func (s *store) denialIDs(version func() string) (func(*weir.Decision, weir.Keys, *weir.Scratch) string, error) {
	if s.secret == nil {
		return nil, nil
	}
	sealer, err := denial.New(s.secret(denial.Label), version, rand.Reader, nil)
	if err != nil {
		return nil, fmt.Errorf("denial ids: %w", err)
	}
	return sealer.ID, nil
}
