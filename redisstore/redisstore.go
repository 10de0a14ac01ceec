// Package redisstore counts windows in Redis or Valkey, so that any number of processes share one budget.
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
)

// Options say where the server is and how its counters are kept.
type Options struct {
	// Addresses are HOST:PORT: of the server, of some nodes of a cluster, or of Sentinels where Master is set.
	Addresses []string
	// Master is the name under which Sentinels know the server; empty where there are none.
	Master string

	Username, Password string
	// SentinelUsername and SentinelPassword are for the Sentinels, where they want some.
	SentinelUsername, SentinelPassword string
	DB                                 int
	TLS                                *tls.Config // nil: in clear

	// CAFile, and CertFile with KeyFile, are PEM files that New adds to TLS: a private authority's certificates, and a
	// client's; empty means none.
	CAFile, CertFile, KeyFile string

	// Prefix is what every key begins with; empty means "weir".
	Prefix string

	// Secret keys the hashes that stand for callers; nil means one that is created on the server, once.
	Secret []byte

	// Now is this process's clock, for what it remembers; nil means time.Now. Windows are counted by the server's.
	Now func() time.Time

	// Log hears of what an operator should know. Nil means nobody does.
	Log *slog.Logger
}

// A Store is a weir.Store that counts in Redis. It is safe for concurrent use.
type Store struct{ client rueidis.Client }

// New connects. A server that cannot be reached is no error: the store keeps trying, and Take returns errors meanwhile. What
// waiting does not cure is: a wrong password (ErrDenied), another secret (ErrSecret), a server too old.
func New(ctx context.Context, o Options) (*Store, error) { return nil, errors.New("TODO") }

var (
	ErrDenied = errors.New("the server does not let us in")
	ErrSecret = errors.New("its counters are keyed with another secret")
)

func (s *Store) Close() error { return nil }

func (s *Store) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	return errors.New("TODO")
}

// Check says why the server cannot count a policy: on a cluster the windows of a limiter must share their first key source.
func (s *Store) Check(p weir.Policy) error { return nil }

// State is what is known of the server.
type State struct {
	Mode  string // "server", "cluster" or "sentinel"; empty before it was reached for the first time
	Ready bool   // it answered the last time it was asked
	Err   error  // what it or the connection said last; nil where Ready
}

func (s *Store) State() State { return State{} }

// Stats are totals since New.
type Stats struct {
	Asked      int64 // takes that went to the server
	Remembered int64 // takes refused from memory, without a round trip
}

func (s *Store) Stats() Stats { return Stats{} }
