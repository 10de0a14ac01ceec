package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/handover"
	"github.com/weirlimit/weir/internal/rls"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// stores is the table of stores; the first row is the default. To add a store, add its row.
var stores = []storeRow{
	{
		begins: []string{"memory"}, form: "memory",
		parse: opensBy(parseMemory, openMemory),
	},
	{
		begins: []string{"redis://", "rediss://", "redis-sentinel://", "rediss-sentinel://"}, shared: true,
		form:  "redis://HOST:PORT, rediss://HOST:PORT (TLS) or redis-sentinel://HOST:PORT/MASTER",
		parse: opensBy(redisstore.Parse, openRedis),
	},
}

// A storeRow is one kind of store.
type storeRow struct {
	// begins are how its values of --store begin. One that does not end in "://" is the whole
	// value.
	begins []string
	form   string // what a value looks like
	shared bool   // whether the nodes of a service count in it together
	parse  func(value string) (target, error)
}

// A target is a parsed value of --store.
type target struct {
	name string // without user and password
	open func(context.Context, *opening) (*openStore, error)
}

// opensBy returns the parse function of a row, from a function that parses a value and one that
// opens what the value means.
func opensBy[T fmt.Stringer](parse func(string) (T, error), open func(context.Context, T, *opening) (*openStore, error)) func(string) (target, error) {
	return func(value string) (target, error) {
		at, err := parse(value)
		if err != nil {
			return target{}, err
		}
		return target{at.String(), func(ctx context.Context, o *opening) (*openStore, error) { return open(ctx, at, o) }}, nil
	}
}

// A Store is where a server counts: a value of --store, which it implements. The zero value is the
// memory of this process.
type Store struct {
	row    *storeRow
	target target
	secret bool
}

// Set sets the store that value means. Errors do not contain the value, which may hold a password.
func (s *Store) Set(value string) error {
	for i := range stores {
		row := &stores[i]
		if !slices.ContainsFunc(row.begins, func(begin string) bool { return beginsWith(value, begin) }) {
			continue
		}
		at, err := row.parse(value)
		if err != nil {
			return err
		}
		s.row, s.target = row, at
		s.secret = strings.Contains(value, "@") || strings.Contains(value, "sentinel_")
		return nil
	}
	forms := make([]string, len(stores))
	for i, row := range stores {
		forms[i] = row.form
	}
	return errors.New("expected " + strings.Join(forms, " or "))
}

// beginsWith reports whether a value of --store is one of those that begin so.
func beginsWith(value, begin string) bool {
	if !strings.HasSuffix(begin, "://") {
		return value == begin
	}
	return len(value) >= len(begin) && strings.EqualFold(value[:len(begin)], begin)
}

// String returns the value, without user and password.
func (s *Store) String() string {
	if s.row == nil {
		return stores[0].form
	}
	return s.target.name
}

// HasSecret reports whether the value may have a user or a password, which String leaves out.
func (s *Store) HasSecret() bool { return s.secret }

// Type implements pflag.Value.
func (s *Store) Type() string { return "STORE" }

// Redact returns what an error may show of a value that Set has rejected: its scheme. The position
// of a password is uncertain there.
func (s *Store) Redact(rejected string) string {
	scheme, _, isURL := strings.Cut(rejected, "://")
	if strings.ContainsFunc(scheme, func(r rune) bool { return r != '-' && !unicode.IsLetter(r) }) {
		return "…"
	}
	if isURL {
		scheme += "://…"
	}
	return scheme
}

// Shared reports whether the nodes of a service count in the store together.
func (s *Store) Shared() bool { return s.row != nil && s.row.shared }

// StoreForms returns how values of --store begin, for completion.
func StoreForms() (all []string) {
	for _, row := range stores {
		all = append(all, row.begins...)
	}
	return all
}

// An opening is what a store may use when it is opened.
type opening struct {
	*Config
	own    *parts
	listen string             // the public address
	giveUp <-chan struct{}    // closed when the server ends; nil unless the sockets are held
	from   *handover.Previous // the process that hands its counts over; nil: none
}

// An openStore is a store, and what a server asks of it.
type openStore struct {
	counts weir.Store
	line   string                // for Server.Rows
	table  func() memstore.Stats // of the counts in this process
	here   *handover.Counts      // counts, if they are in this process; nil: they are not

	// Of a store outside this process; the others leave these nil.

	// fallback counts while the store does not answer.
	fallback weir.Store
	// outage logs the beginning and the end of an outage under a policy.
	outage func(p weir.Policy, e failover.Event)
	// check returns why the store cannot count a policy.
	check func(weir.Policy) error
	// ready reports whether the store can count.
	ready func() bool
	// secret derives a secret that all nodes have in common. It has no bytes while it is not known.
	secret func(label string) func() []byte
	// figures are the totals for metrics.
	figures func() redisstore.Stats
}

// open opens the store.
func (s *Store) open(ctx context.Context, o *opening) (*openStore, error) {
	if s.row == nil {
		var fallback Store
		if err := fallback.Set(stores[0].begins[0]); err != nil {
			return nil, err
		}
		s = &fallback
	}
	return s.target.open(ctx, o)
}

// A counter decides requests, and counts them in a store.
type counter struct {
	*weir.Decider
	store  *openStore
	counts weir.Store      // where it counts: over, or that of store
	over   *failover.Store // around a store outside this process; nil around one inside
}

// openCounter makes the Decider of a store. Around a store outside this process it puts a
// failover.Store, which counts in the fallback while the store does not answer.
func openCounter(c *Config, s *openStore, h *hooks, own *parts) (*counter, error) {
	k := &counter{store: s}
	counts := s.counts
	if s.fallback != nil {
		events := h.storeEvents
		if s.outage != nil {
			logged := func(e failover.Event) { s.outage(k.Policy(), e) }
			events = append([]func(failover.Event){logged}, events...)
		}
		var err error
		k.over, err = failover.New(s.counts, s.fallback, failover.Options{Deadline: c.StoreDeadline, OnEvent: each(events), OnTake: eachOf(h.takes)})
		if err != nil {
			return nil, cli.Fail(err, "")
		}
		counts = k.over
	}
	k.counts = counts
	var err error
	k.Decider, err = weir.New(c.Policy.Policy, counts, weir.Options{
		Sources: slices.Concat(weir.Sources(), rls.Sources()), OnShadow: each(h.shadows), OnCandidate: each(h.candidates), OnCrossed: each(h.crossings),
		OnSettled: each(h.settled), OnHeld: eachOf(h.held),
	})
	if err != nil {
		return nil, cli.Fail(err, "see 'weir policy check FILE'")
	}
	if k.over != nil {
		own.own(func() error { return k.giveBack(c.Log) })
		own.own(inBackground(context.Background(), k.over.KeepProbing))
	}
	return k, nil
}

// health returns the health of the store. A store in this process always answers.
func (k *counter) health() failover.Health {
	if k.over == nil {
		return failover.Health{}
	}
	return k.over.Health()
}

// errStoreSilent is the reason on /readyz. It is public, so it has no details; the log has them.
var errStoreSilent = errors.New("the store does not answer; each limiter follows its on_store_failure")

// degraded returns an error while the store does not count what this server admits.
func (k *counter) degraded() error {
	if k.store.ready != nil && (k.health().Failing || !k.store.ready()) {
		return errStoreSilent
	}
	return nil
}

// works returns an error if counting in this process does not work; counting never waits if it
// does. A store outside this process is not asked.
func (k *counter) works(ctx context.Context) error {
	if k.store.fallback != nil {
		return nil
	}
	key := []byte("watchdog")
	return k.store.counts.Take(ctx, []weir.Charge{{Key: key, Scope: len(key), Subject: len(key), Limit: 1, Per: 1}}, new(weir.Receipt))
}

// maxGiveBack bounds the time in which a server that ends gives its local counts to the store.
const maxGiveBack = 2 * time.Second

// giveBack closes the Decider, which gives the store what was counted here during an outage. Units
// that the store cannot take are lost, so its windows have more left than they should. That is
// logged, and is no failure of the server.
func (k *counter) giveBack(log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), maxGiveBack)
	defer cancel()
	k.Close(ctx)
	if err := k.over.Close(ctx); err != nil {
		log.Warn("units that were counted here cannot be reported to the store", "error", err)
	}
	return nil
}
