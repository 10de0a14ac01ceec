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
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

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

// A storeKey is the name of a store in the pool: where it is, and its file if it has one.
type storeKey struct{ at, file string }

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

// A fileKey is the name in the pool of the choice of a file for the counts of a policy, in one
// configuration.
type fileKey struct {
	configuration *prometheus.Registry // each has its own
	policy        string
}

// A fileChoice is the file for the counts of a policy; empty: none.
type fileChoice struct{ file string }

// Destruct implements caddy.Destructor.
func (fileChoice) Destruct() error { return nil }

// chooseFile reports an error if another handler of this configuration counts by the same policy,
// and has another file: they share their counts.
func (h *Handler) chooseFile(ctx caddy.Context) error {
	if h.Counts != "" {
		path, err := filepath.Abs(h.Counts)
		if err != nil {
			return fmt.Errorf("counts: %w", err)
		}
		h.Counts = path
	}
	key := fileKey{ctx.GetMetricsRegistry(), h.Policy}
	value, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return fileChoice{h.Counts}, nil })
	if err != nil {
		return err
	}
	h.pooled = append(h.pooled, key)
	if other := value.(fileChoice).file; other != h.Counts {
		return fmt.Errorf("counts: all handlers of one policy share their counts, and those of %s have two files, %q and %q: give all the same one", h.Policy, other, h.Counts)
	}
	return nil
}

// openStore returns the store of h, which other handlers may use already.
func (h *Handler) openStore(ctx caddy.Context, log *slog.Logger) (*store, error) {
	var key storeKey
	var construct func() (caddy.Destructor, error)
	if h.Store != "" && h.Store != "memory" {
		if h.Counts != "" {
			return nil, errors.New("counts: a file is for the store memory: leave out counts or store")
		}
		at, err := redisstore.Parse(h.Store)
		if err != nil {
			return nil, fmt.Errorf("store %q is neither memory nor the URL of a Redis server: %w", storeName(h.Store), err)
		}
		figures, err := h.metrics()
		if err != nil {
			return nil, err
		}
		key.at = h.Store
		construct = func() (caddy.Destructor, error) { return openRedis(ctx, at, figures.Metrics, log) }
	} else {
		if err := h.chooseFile(ctx); err != nil {
			return nil, err
		}
		// A reload that changes the file takes another store; the one before keeps its own.
		key = storeKey{"memory " + h.Policy, h.Counts}
		construct = func() (caddy.Destructor, error) { return openMemory(h.Counts, log) }
	}
	value, _, err := pool.LoadOrNew(key, construct)
	if err != nil {
		return nil, err
	}
	h.pooled = append(h.pooled, key)
	return value.(*store), nil
}

// storeName returns what an error may show of a store that is not valid: its scheme, or its word.
// A password is possible there, and its position uncertain.
func storeName(text string) string {
	scheme, _, isURL := strings.Cut(text, "://")
	if strings.ContainsFunc(scheme, func(r rune) bool { return r != '-' && !unicode.IsLetter(r) }) {
		return "…"
	}
	if isURL {
		scheme += "://…"
	}
	return scheme
}

func openMemory(file string, log *slog.Logger) (*store, error) {
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
