// Package redisstore counts windows in Redis or Valkey, so that any number of processes share one
// budget exactly.
//
// A take is one script and one round trip, on the server's clock. The rueidis client sends
// concurrent commands in few packets. The store remembers the server's answers: a caller whose
// window is spent is refused with at most one round trip a second. Put the store in a
// failover.Store: during an outage that counts on from the last known counts (weir.Shared).
//
//	take.go  take.lua  give.lua    a take from charges to receipt; the scripts
//	settle.go  settle….lua         changes what takes have spent, once it is known
//	settlequeue.go order.go        the changes of one settlement, while it is under way
//	hold.go  hold.lua  renew.lua   slots that requests hold while they are under way
//	pending.go ended.go            what settlements under way give back is free for this process
//	epoch.go  slots.go  marks.go   whether the server may have lost a take, and resets
//	key.go                         the names on the server: keyed hashes
//	keeper.go  reset.lua  grant…   an operator's changes: reset windows, grant other limits
//	journal.go promoted.go gate.go what a promoted replica lacks is counted again
//	replicas.go                    takes that wait until replicas have them
//	leases.go  lease….go lend.go   units that are charged before they are given out; lease.lua
//	memory.go                      refusals without a round trip, and the last known counts
//	ask.go                         one command: deadlines, redirections, meaningful errors
//	link.go  dial.go               connecting, checking, reconnecting; whether a Redis answers
//	rights.go  loss.go  secret.go  missing rights; lost counters; the secret that keys the hashes
//	derive.go                      other secrets derived from that one
//	clock.go                       the server's clock, as this process knows it
//	url.go  tls.go                 Options from a URL; certificates from files
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// Options locate the server and set how its counters are kept. Addresses is required.
type Options struct {
	// Addresses are HOST:PORT of the server, of some nodes of a cluster, or, with Master, of
	// Sentinels. One address may be a server or a cluster: New detects which.
	Addresses []string
	// Master is the name under which the Sentinels know the server; empty without Sentinels.
	Master string

	Username, Password string
	// SentinelUsername and SentinelPassword are the credentials for Sentinels that need any.
	SentinelUsername, SentinelPassword string
	// DB is the number of the database; a cluster has only 0.
	DB int
	// TLS is used for the server and its Sentinels; nil means no TLS.
	TLS *tls.Config
	// CAFile, CertFile and KeyFile are PEM files that New adds to TLS: a private authority's
	// certificates, and a client's certificate and key. Empty means none.
	CAFile, CertFile, KeyFile string

	// Dial connects to a server or a Sentinel, whose HOST:PORT is address, such as through a
	// tunnel. TLS comes on top of it. It ends when ctx does, and is called concurrently. Nil means
	// a net.Dialer with a TCP keep-alive of one second.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Prefix begins every key; empty means "weir". It has up to 64 of letters, digits and - _ : .
	Prefix string

	// Secret keys the hashes that identify callers, 32 bytes or more. All processes that share a
	// budget need the same secret. If it is nil, the first process generates one and stores it on
	// the server.
	Secret []byte

	// Timeout is how long a connection with commands in flight may be silent before it is replaced;
	// 0 means 2 s. It should be longer than the deadline of any take.
	Timeout time.Duration

	// Replicas is how many replicas must have an admitted take before it is answered; 0 means that
	// takes do not wait. If fewer have it after 200 ms, or when ctx ends, Take returns an
	// error, and what it has spent stays spent. Neither a cluster nor Leases are allowed with it.
	Replicas int

	// Leases is whether units are charged before they are given out, so that takes of busy windows
	// need no round trip. Processes with and without leases can share a server.
	Leases Leasing

	// Now is this process's clock, used for what it remembers; nil means time.Now, advanced by the
	// monotonic clock. Windows are counted on the server's clock (D6: the store owns the clock).
	// Leases end by it too, so it must not stop while the machine sleeps.
	Now func() time.Time

	// Log receives what an operator should know: a server that may evict counters, a secret that
	// has changed. Nil discards it.
	Log *slog.Logger
}

var (
	// ErrDenied is wrapped by New's error if the server rejects the user or password, or forbids a
	// command that is needed.
	ErrDenied = errors.New("the server denies access")
	// ErrSecret is wrapped if the server's counters are keyed with another secret: the two would be
	// two budgets.
	ErrSecret = errors.New("its counters are keyed with another secret")
	// ErrServer is wrapped if the server lacks what is needed: it is too old, or several addresses
	// were given and it is no cluster.
	ErrServer = errors.New("this server cannot keep the counters")
	// ErrReplica is wrapped by the errors of a store whose server is a read-only replica. The store
	// counts once the server is a master.
	ErrReplica = errors.New("it is a read-only replica, and only its master counts")
	// ErrClosed is what Take returns after Close.
	ErrClosed = errors.New("the store is closed")
)

// A Store is a weir.Store that counts in Redis. It is safe for concurrent use.
type Store struct {
	options   Options
	prefix    string
	addresses string       // the addresses, for messages
	local     func() int64 // this process's clock, Unix ns
	start     time.Time    // what local counts from, unless Options has a clock
	log       *slog.Logger

	link     atomic.Pointer[link]   // nil until the server is reached, and while it cannot be used
	hasher   atomic.Pointer[hasher] // the link's, or the last link's
	memory   *memory
	numbers  numberCache
	clock    clock
	inFlight slots
	grants   grants
	losses   losses
	seen     atomic.Pointer[seen]
	epoch    epoch
	leases   *leases // nil: none
	claims   claims
	claimed  atomic.Int64 // windows
	// othersLease: this process leases nothing, and others hold units, or did a minute ago
	othersLease atomic.Bool
	resets      string    // PREFIX:resets:number as it was read last; only maintain uses it
	toReturn    []*leased // windows whose units are still to go back because of it; so does this
	toldLeasing int64     // when this process last told that it holds units; so does this
	settling    settling
	pending     pending
	marks       marks
	promoted    promotions
	replicas    replicas
	held        held

	asked, remembered atomic.Int64
	split             atomic.Bool // whether warnOfSlots has logged
	// until when, by this process's clock, commands run detached; 0: not
	trouble  atomic.Int64
	detached slots

	state   state
	secret  []byte // what the hasher is made of, nil while unknown; only maintain uses it
	mark    string // what was written for it; only maintain uses it
	warned  string // the last eviction policy that was logged; only maintain uses it
	logged  string // the last error that was logged; only maintain uses it
	renew   chan struct{}
	moved   chan struct{} // slots of a cluster may have other owners
	closing context.Context
	close   context.CancelFunc
	done    sync.WaitGroup
}

var _ weir.Shared = (*Store)(nil)

// New connects and checks the server. An unreachable server is not an error: the store keeps
// trying, and Take returns errors meanwhile. New fails only if waiting does not help: ErrDenied,
// ErrSecret, ErrServer, or invalid Options.
func New(ctx context.Context, o Options) (*Store, error) {
	s, err := newStore(o)
	if err != nil {
		return nil, fmt.Errorf("new redis store: %w", err)
	}
	err = s.connect(ctx)
	s.state.failed(err)
	if lasting(err) {
		s.Close()
		return nil, fmt.Errorf("new redis store at %s: %w", s.addresses, err)
	}
	s.done.Go(s.maintain)
	s.done.Go(s.renewHeld)
	s.done.Go(s.watchReplicas)
	if s.replicas.wake != nil {
		s.done.Go(s.waitForReplicas)
	}
	if s.leases != nil {
		s.done.Go(func() { s.leases.keepReturning(s.closing) })
		s.done.Go(func() { s.leases.keepDoing(s.closing) })
	}
	s.done.Go(s.sendClaims)
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
	if o.Secret != nil && len(o.Secret) < minSecret {
		return nil, fmt.Errorf("the secret has %d bytes: at least %d are needed", len(o.Secret), minSecret)
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("timeout %v: a positive duration is allowed, or 0 for %v", o.Timeout, stuckTimeout)
	}
	if o.Timeout == 0 {
		o.Timeout = stuckTimeout
	}
	if o.Replicas < 0 || o.Replicas > maxReplicas {
		return nil, fmt.Errorf("%d replicas: 0 to %d are allowed", o.Replicas, maxReplicas)
	}
	if o.Replicas > 0 && o.Leases != LeasesOff {
		return nil, errors.New("takes that wait for replicas cannot be served from leases: one of the two must be off")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	if o.TLS, err = o.tlsConfig(); err != nil {
		return nil, err
	}
	s := &Store{
		options:   o,
		prefix:    o.Prefix,
		addresses: strings.Join(o.Addresses, ","),
		log:       o.Log,
		memory:    new(memory),
		inFlight:  newSlots(maxInFlight),
		detached:  newSlots(maxDetached),
		grants:    grants{reading: newSlots(1)},
		renew:     make(chan struct{}, 1),
		moved:     make(chan struct{}, 1),
		held:      newHeld(),
		settling:  settling{queues: make(map[settlesAt]*settleQueue)},
		pending:   pending{all: make(map[id]*pendingWindow)},
		promoted:  newPromotions(),
	}
	if o.Now != nil {
		s.local = func() int64 { return o.Now().UnixNano() }
	} else {
		s.start = time.Now()
		wall := s.start.UnixNano()
		s.local = func() int64 { return wall + int64(time.Since(s.start)) }
	}
	s.memory.local = s.local
	if o.Replicas > 0 {
		s.replicas.wake = make(chan struct{}, 1)
	}
	if o.Leases != LeasesOff {
		s.leases = newLeases(s, s.leaseClock(), o.Leases)
	}
	s.claims = make(claims, maxClaiming)
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Close gives leased units back, closes the connection and waits for the store's goroutines; later
// takes return ErrClosed. A second call does nothing.
func (s *Store) Close() error {
	if s.leases != nil && s.closing.Err() == nil {
		s.leases.end(context.Background())
	}
	s.close()
	s.settling.close()
	s.done.Wait()
	if l := s.link.Swap(nil); l != nil {
		l.client.Close()
	}
	s.detached.waitEmpty()
	return nil
}

// Now implements weir.Shared: the server's clock, estimated from its last replies. Before the first
// reply it is this process's.
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

// Check returns the reasons why the server cannot count a policy. On a cluster the windows of one
// limiter must share their first key source, or one script could not charge them together. Whether
// it is a cluster is known after the first reply.
func (s *Store) Check(p weir.Policy) error {
	if l := s.link.Load(); l == nil || !l.cluster {
		return nil
	}
	var all []error
	for _, l := range p.Limiters {
		rows := l.Rows()
		for i := 1; i < len(rows); i++ {
			a, b := rows[0].Key[:1].String(), rows[i].Key[:1].String()
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
	Mode  string // "server", "cluster" or "sentinel"; empty until it is reached
	Ready bool   // whether it answered the last command
	Err   error  // the error of that command; nil when Ready
}

// State returns the result of the last exchange with the server.
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
	Emptied    int64 // times that the server was found to have lost its counters
	// slots that had expired while their requests were under way, and were taken again
	Lapsed int64
	// units that a promoted replica had not received, and that were counted there again
	CountedAgain int64
	Leases       LeaseStats
}

// LeaseStats are totals of units since New.
type LeaseStats struct {
	Takes    int64 // takes that were served from leased units
	Granted  int64 // that the server charged for later takes
	Returned int64 // that went back in time
	Returns  int64 // how often units were sent back, in time or not: round trips, not units
	HeldBack int64 // that went back to a window that was spent: others may have been refused
	Stranded int64 // that stay spent until the reset, although no take has got them
	// windows of which this process has refused a take while others may have held units, and asked
	// for these: once a second for each
	Claimed int64
}

// Stats returns the totals so far.
func (s *Store) Stats() Stats {
	all := Stats{Asked: s.asked.Load(), Remembered: s.remembered.Load(), Emptied: s.losses.count.Load(), Lapsed: s.held.lapsed.Load(), CountedAgain: s.promoted.again.Load()}
	if a := s.leases; a != nil {
		all.Leases = LeaseStats{Takes: a.served.Load(), Granted: a.granted.Load(), Returned: a.returned.Load(), Returns: a.returns.Load(), HeldBack: a.heldBack.Load(), Stranded: a.stranded.Load()}
	}
	all.Leases.Claimed = s.claimed.Load()
	return all
}
