// Package redisstore counts windows in Redis or Valkey, so that any number of processes share one budget, exactly.
//
// A take is one script and one round trip, judged by the server's clock; rueidis sends what many goroutines ask at once in
// few packets. What the server answered is remembered: a caller whose window is spent is refused without asking it again, but
// once a second, and an outage is bridged from where the busy windows stood (weir.Shared).
//
//	take.go  take.lua  give.lua    a take from charges to receipt; the scripts
//	key.go                         the names that the server sees: keyed hashes
//	keeper.go  reset.lua  grant…   what an operator changes: windows begun anew, other limits for a while
//	memory.go                      what is refused without asking, and how busy windows stood
//	ask.go                         one question: deadlines, redirections, errors that mean something
//	link.go  dial.go               connecting, checking, connecting anew; whether it is a Redis that answers
//	rights.go  loss.go  secret.go  what its user may not do; whether it has lost the counters; the secret that all nodes hash with
//	derive.go                      what else may be made of that secret
//	clock.go                       the server's clock, as this process knows it
//	url.go  tls.go                 Options from a URL, and files with certificates
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// Options say where the server is and how its counters are kept. Addresses is required.
type Options struct {
	// Addresses are HOST:PORT: of the server, of some nodes of a cluster, or of Sentinels where Master is set. One address
	// may be a server or a cluster: it is asked.
	Addresses []string
	// Master is the name under which the Sentinels know the server; empty where there are none.
	Master string

	Username, Password string
	// SentinelUsername and SentinelPassword are for the Sentinels, where they want some.
	SentinelUsername, SentinelPassword string
	// DB is the number of the database; a cluster has only 0.
	DB int
	// TLS is for the server and its Sentinels; nil means in clear.
	TLS *tls.Config
	// CAFile, and CertFile with KeyFile, are PEM files that New adds to TLS: a private authority's certificates, and a
	// client's; empty means none.
	CAFile, CertFile, KeyFile string

	// Prefix is what every key begins with; empty means "weir". Letters, digits and - _ : . are allowed, 64 at most.
	Prefix string

	// Secret keys the hashes that stand for callers, 32 bytes or more; all processes that share a budget need the same. Nil
	// means one that is created on the server by the first of them.
	Secret []byte

	// Timeout is how long a connection may say nothing while it is asked, before it is given up for another; 0 means 2 s. It
	// should be longer than anybody waits for an answer.
	Timeout time.Duration

	// Now is this process's clock, for what it remembers; nil means time.Now, advanced by the monotonic clock. Windows are
	// counted by the server's clock (D6).
	Now func() time.Time

	// Log hears of what an operator should know: a server that may drop counters, a secret that changed. Nil means nobody
	// does.
	Log *slog.Logger
}

var (
	// ErrDenied is wrapped by New's error where the server wants another user or password, or does not allow the commands
	// that are needed.
	ErrDenied = errors.New("the server does not let us in")
	// ErrSecret is wrapped where the server's counters are keyed with another secret: they would be two budgets.
	ErrSecret = errors.New("its counters are keyed with another secret")
	// ErrServer is wrapped where the server cannot do what is needed: it is too old, or it is no cluster and has several
	// addresses.
	ErrServer = errors.New("this server cannot keep the counters")
	// ErrReplica is wrapped by the errors of a store whose server is a read-only replica. It counts
	// once it is a master.
	ErrReplica = errors.New("it is a read-only replica, and only its master counts")
	// ErrClosed is what Take returns after Close.
	ErrClosed = errors.New("the store is closed")
)

// A Store is a weir.Store that counts in Redis. It is safe for concurrent use.
type Store struct {
	options Options
	prefix  string
	where   string       // the addresses, for messages
	local   func() int64 // this process's clock, Unix ns
	start   time.Time    // what local counts from, unless Options have a clock
	log     *slog.Logger

	link      atomic.Pointer[link]   // nil while the server was not reached, or cannot be used
	hasher    atomic.Pointer[hasher] // the link's, or the last one's
	memory    *memory
	spellings spellings
	clock     clock
	room      room
	grants    grants
	losses    losses

	asked, remembered atomic.Int64
	split             atomic.Bool  // it was said that windows cannot be counted together
	trouble           atomic.Int64 // until when, by this process's clock, questions are asked aside
	aside             room

	state   state
	secret  []byte // what the hasher is made of; nil until one was found. The keeper's
	mark    string // what was written for it; the keeper's
	warned  string // what was last said of evictions; the keeper's
	said    string // the last error that an operator was told of; the keeper's
	renew   chan struct{}
	closing context.Context
	close   context.CancelFunc
	done    sync.WaitGroup
}

var _ weir.Shared = (*Store)(nil)

// New connects and looks at what it finds. A server that cannot be reached is no error: the store keeps trying, and Take
// returns errors meanwhile. An error is what waiting does not cure: ErrDenied, ErrSecret, ErrServer, or Options that are
// wrong.
func New(ctx context.Context, o Options) (*Store, error) {
	s, err := newStore(o)
	if err != nil {
		return nil, fmt.Errorf("new redis store: %w", err)
	}
	err = s.connect(ctx)
	s.state.failed(err)
	if lasting(err) {
		s.Close()
		return nil, fmt.Errorf("new redis store at %s: %w", s.where, err)
	}
	s.done.Go(s.keep)
	return s, nil
}

func newStore(o Options) (*Store, error) {
	if len(o.Addresses) == 0 {
		return nil, errors.New("no address: give HOST:PORT of the server")
	}
	if o.Prefix == "" {
		o.Prefix = "weir"
	}
	if !prefixForm.MatchString(o.Prefix) {
		return nil, fmt.Errorf("prefix %q: letters, digits and - _ : . are allowed, 64 at most", o.Prefix)
	}
	if o.Secret != nil && len(o.Secret) < leastSecret {
		return nil, fmt.Errorf("the secret has %d bytes: %d are the least that is safe", len(o.Secret), leastSecret)
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("timeout %v: a positive duration is allowed, or 0 for %v", o.Timeout, stuckTimeout)
	}
	if o.Timeout == 0 {
		o.Timeout = stuckTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	if o.TLS, err = o.tlsConfig(); err != nil {
		return nil, err
	}
	s := &Store{
		options: o,
		prefix:  o.Prefix,
		where:   strings.Join(o.Addresses, ","),
		log:     o.Log,
		memory:  new(memory),
		room:    newRoom(mostAsked),
		aside:   newRoom(mostAside),
		grants:  grants{reading: newRoom(1)},
		renew:   make(chan struct{}, 1),
	}
	if o.Now != nil {
		s.local = func() int64 { return o.Now().UnixNano() }
	} else {
		s.start = time.Now()
		wall := s.start.UnixNano()
		s.local = func() int64 { return wall + int64(time.Since(s.start)) }
	}
	s.memory.local = s.local
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Close lets the server go; later takes return ErrClosed. Closing again does nothing.
func (s *Store) Close() error {
	s.close()
	s.done.Wait()
	if l := s.link.Swap(nil); l != nil {
		l.client.Close()
	}
	s.aside.empty()
	return nil
}

// Now implements weir.Shared: the server's clock, as its last answers told it. Before there was one it is this process's.
func (s *Store) Now() time.Time { return time.Unix(0, s.clock.at(s.local())) }

// Recall implements weir.Shared.
func (s *Store) Recall(charges []weir.Charge, used []weir.Used) {
	h := s.hasher.Load()
	now := s.Now().Unix()
	for i := range charges {
		used[i] = weir.Used{}
		if h == nil {
			continue
		}
		if u := s.memory.standing(h.hash(&charges[i]).id()); u.Reset > now {
			used[i] = u
		}
	}
}

// Check says why the server cannot count a policy: on a cluster the windows of one limiter must share their first key source,
// or one script could not charge them together. It knows that there is a cluster once there was an answer.
func (s *Store) Check(p weir.Policy) error {
	if l := s.link.Load(); l == nil || !l.cluster {
		return nil
	}
	var all []error
	for _, l := range p.Limiters {
		for i := 1; i < len(l.Windows); i++ {
			a, b := l.Windows[0].Key[:1].String(), l.Windows[i].Key[:1].String()
			if a != b {
				all = append(all, fmt.Errorf("limiter %q: one window counts by %q first, another by %q: on a Redis cluster they must begin with the same key source, so that one machine keeps both", l.Name, a, b))
				break
			}
		}
	}
	return errors.Join(all...)
}

// State is what is known of the server.
type State struct {
	Mode  string // "server", "cluster" or "sentinel"; empty before it was reached
	Ready bool   // whether it answered when it was last asked
	Err   error  // what was wrong then; nil where Ready
}

// State returns what was last found of the server.
func (s *Store) State() State {
	st := State{Ready: true}
	if l := s.link.Load(); l != nil {
		st.Mode = l.mode()
	}
	if err := s.state.why(); err != nil {
		st.Ready, st.Err = false, err
	}
	return st
}

// Stats are totals since New.
type Stats struct {
	Asked      int64 // takes that were sent to the server
	Remembered int64 // takes that were refused from memory
	Emptied    int64 // how often the server was found to have lost its counters
}

// Stats returns the present totals.
func (s *Store) Stats() Stats {
	return Stats{Asked: s.asked.Load(), Remembered: s.remembered.Load(), Emptied: s.losses.count.Load()}
}
