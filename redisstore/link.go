package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis identifies scripts by SHA-1
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	dialTimeout = 2 * time.Second // to connect and greet
	// for a silent connection with commands in flight, if Options.Timeout is 0
	stuckTimeout  = 2 * time.Second
	checkEvery    = time.Second            // between two checks of the server
	checkTimeout  = time.Second            // for one check
	lookEvery     = 100 * time.Millisecond // at the owners of a cluster's slots, at most
	refreshEvery  = 5 * time.Second        // the machines of a cluster that the client knows
	maxFailures   = 2                      // in a row, before it reconnects
	lingerTimeout = 3 * time.Second        // for commands in flight on an old connection
)

// A link is a connection and what is needed to use it. It is immutable.
type link struct {
	client     rueidis.Client
	hasher     *hasher
	take, give script
	cluster    bool
	sentinel   bool

	reset, grant, granted script
	hold, renew           script
	lease, claim          script
	settle, settleMarked  script
}

func newLink(client rueidis.Client, h *hasher, sentinel bool) *link {
	return &link{
		client: client, hasher: h, cluster: client.Mode() == rueidis.ClientModeCluster, sentinel: sentinel,
		take: newScript(takeText), give: newScript(giveText),
		reset: newScript(resetText), grant: newScript(grantText), granted: newScript(grantedText),
		hold: newScript(holdText), renew: newScript(renewText), lease: newScript(leaseText), claim: newScript(claimText),
		settle: newScript(changeText + settleText), settleMarked: newScript(changeText + markedText),
	}
}

func newScript(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text, hex.EncodeToString(sum[:])}
}

func (l *link) mode() string {
	switch {
	case l.sentinel:
		return "sentinel"
	case l.cluster:
		return "cluster"
	}
	return "server"
}

// A state is the error of the last exchange with the server; the zero value means none.
type state struct {
	bad atomic.Bool
	mu  sync.Mutex
	err error
}

func (st *state) answered() {
	if st.bad.Load() {
		st.failed(nil)
	}
}

func (st *state) failed(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.err = err
	st.bad.Store(err != nil)
}

func (st *state) why() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.err
}

// notConnected returns the reason why there is no link.
func (s *Store) notConnected() error {
	if s.closing.Err() != nil {
		return ErrClosed
	}
	if err := s.state.why(); err != nil {
		return fmt.Errorf("redis %s: %w", s.addresses, err)
	}
	return fmt.Errorf("redis %s: not connected yet", s.addresses)
}

// reconnect asks maintain for a new connection. It does not block.
func (s *Store) reconnect() {
	select {
	case s.renew <- struct{}{}:
	default:
	}
}

// lookAtSlots asks maintain who owns the slots of a cluster now. It does not block.
func (s *Store) lookAtSlots() {
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// maintain owns the connection until the store is closed: it connects, checks the server once a
// second, and replaces a connection that is of no use.
func (s *Store) maintain() {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	failures, looked := 0, int64(0)
	for {
		anew := false
		select {
		case <-s.closing.Done():
			return
		case <-ticker.C:
		case <-s.moved:
			if l := s.link.Load(); l != nil && s.local()-looked > int64(lookEvery) {
				ctx, cancel := context.WithTimeout(s.closing, checkTimeout)
				s.readSlots(ctx, l.client)
				cancel()
				looked = s.local()
			}
			continue
		case <-s.renew:
			anew = true
			select { // at most once a second
			case <-s.closing.Done():
				return
			case <-ticker.C:
			}
		}
		l := s.link.Load()
		if l != nil && !anew {
			ctx, cancel := context.WithTimeout(s.closing, checkTimeout)
			err := s.check(ctx, l.client)
			cancel()
			if failures++; err == nil {
				failures = 0
			}
			_ = s.record(err)
			s.refreshGrants(s.closing) // the grants may be on a machine that answers
			s.lookAtResets(s.closing, l)
			s.lookAtClaims(s.closing, l)
		}
		// a cluster's client finds its machines by itself
		if l == nil || anew || failures >= maxFailures && !l.cluster {
			if s.record(s.connect(s.closing)) == nil {
				failures = 0
			}
		}
	}
}

// record keeps the result of a check, and logs an error that lasts once.
func (s *Store) record(err error) error {
	if s.closing.Err() != nil {
		return err
	}
	s.state.failed(err)
	if err == nil {
		s.logged = ""
	}
	if !lasting(err) {
		return err
	}
	if s.logged != err.Error() {
		s.logged = err.Error()
		s.log.Error("the store cannot be used until an operator acts", "store", s.addresses, "error", err)
	}
	// no second budget, and no use of a server that denies access
	if l := s.link.Swap(nil); l != nil {
		s.closeLater(l)
	}
	return err
}

// lasting reports whether err needs an operator: waiting does not cure it.
func lasting(err error) bool {
	return errors.Is(err, ErrDenied) || errors.Is(err, ErrSecret) || errors.Is(err, ErrServer)
}

// connect makes a connection, checks the server, and puts the connection in force.
func (s *Store) connect(ctx context.Context) error {
	client, err := rueidis.NewClient(s.clientOptions())
	if err != nil {
		return classified(err)
	}
	bounded, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	for _, step := range []func(context.Context, rueidis.Client) error{s.inspect, s.readClock, s.tryScripts, s.tryReplicas, s.agree} {
		if err := step(bounded, client); err != nil {
			client.Close()
			return err
		}
	}
	s.readSlots(bounded, client)
	s.checkLoss(bounded, client)
	s.refreshGrants(bounded)
	return nil
}

// adopt puts a client in force, with the server's secret.
func (s *Store) adopt(client rueidis.Client) {
	l := newLink(client, newHasher(s.prefix, s.secret), s.options.Master != "")
	s.promoted.lookSoon() // a take that begins later waits for it
	s.hasher.Store(l.hasher)
	old := s.link.Swap(l)
	s.epoch.replace() // a take that sees the new epoch is sent on the new link
	s.promoted.lookSoon()
	if old != nil && old.client != client {
		s.closeLater(old)
	}
	s.held.renewSoon()
	s.trouble.Store(0) // the server has just answered
}

// closeLater closes a connection that has been replaced, after its commands in flight had time to
// finish.
func (s *Store) closeLater(l *link) {
	s.done.Go(func() {
		timer := time.NewTimer(lingerTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.closing.Done():
		}
		l.client.Close()
	})
}

func (s *Store) clientOptions() rueidis.ClientOption {
	o := s.options
	return rueidis.ClientOption{
		InitAddress: o.Addresses,
		Username:    o.Username,
		Password:    o.Password,
		SelectDB:    o.DB,
		TLSConfig:   o.TLS,
		Sentinel: rueidis.SentinelOption{
			MasterSet: o.Master,
			Username:  o.SentinelUsername,
			Password:  o.SentinelPassword,
			TLSConfig: o.TLS,
		},
		ClientName:          "weir",
		PipelineMultiplex:   -1, // one connection, so that concurrent commands share packets
		DialCtxFn:           s.dial,
		ClusterOption:       rueidis.ClusterOption{ShardsRefreshInterval: refreshEvery},
		Dialer:              net.Dialer{Timeout: dialTimeout, KeepAlive: time.Second},
		ConnWriteTimeout:    o.Timeout,
		AlwaysPipelining:    true,
		DisableCache:        true,
		DisableRetry:        true, // a take that may have been counted is never repeated
		RingScaleEachConn:   ringScale,
		ReadBufferEachConn:  bufferSize,
		WriteBufferEachConn: bufferSize,
	}
}

const bufferSize = 128 << 10

// classified wraps the errors that need an operator, and drops what was sent: a server repeats an
// unknown command with its arguments, which may be passwords.
func classified(err error) error {
	if err == nil {
		return nil
	}
	text, _, repeats := strings.Cut(err.Error(), ", with args beginning with")
	hasPrefix := func(some ...string) bool {
		return slices.ContainsFunc(some, func(s string) bool { return strings.HasPrefix(text, s) })
	}
	contains := func(some ...string) bool {
		return slices.ContainsFunc(some, func(s string) bool { return strings.Contains(text, s) })
	}
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, ErrServer), errors.Is(err, ErrDenied):
		return err
	case hasPrefix("READONLY"):
		return fmt.Errorf("%w: give the master's address, or Sentinels (%s)", ErrReplica, text)
	case errors.As(err, &untrusted), contains("Unknown Redis command", "unknown message type", "unexpected number byte", "unexpected simple string message", "No such master with that name", "DB index is out of range", "SELECT is not allowed"),
		hasPrefix("unknown command", "ERR unknown command"):
		return fmt.Errorf("%w: %s", ErrServer, text)
	case hasPrefix("WRONGPASS", "NOAUTH", "NOPERM", "DENIED"), contains(scriptsDenied...),
		contains("invalid password", "without any password configured", "Client sent AUTH"):
		return fmt.Errorf("%w: %s", ErrDenied, text)
	case contains("cluster support disabled"):
		return fmt.Errorf("%w: several addresses mean a cluster, and this server is not one: give the address of one server, or Sentinels", ErrServer)
	case repeats:
		return errors.New(text)
	}
	return err
}

// minVersion is the first version whose SET has EXAT.
var minVersion = [2]int{6, 2}

// inspect checks what does not change while the server runs: its version, and whether it may evict
// counters.
func (s *Store) inspect(ctx context.Context, client rueidis.Client) error {
	info, err := client.Do(ctx, client.B().Info().Build()).ToString()
	if err != nil {
		return s.diagnosed(ctx, client, err)
	}
	// Valkey names the Redis version that it is compatible with
	version := field(info, "redis_version")
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && (major < minVersion[0] || major == minVersion[0] && minor < minVersion[1]) {
		return fmt.Errorf("%w: it is Redis %s, and SET … EXAT needs %d.%d", ErrServer, version, minVersion[0], minVersion[1])
	}
	for address, node := range nodes(client) {
		info, err := node.Do(ctx, node.B().Info().Section("memory").Build()).ToString()
		if err != nil {
			continue // it is checked when it answers
		}
		s.warnOfEviction(address, field(info, "maxmemory_policy"), field(info, "maxmemory_human"))
	}
	return nil
}

func nodes(client rueidis.Client) map[string]rueidis.Client {
	if client.Mode() == rueidis.ClientModeCluster {
		return client.Nodes()
	}
	return map[string]rueidis.Client{"": client}
}

// field returns the value of one line of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (s *Store) warnOfEviction(address, policy, maxMemory string) {
	if policy == "" || policy == "noeviction" || s.warned == policy {
		return
	}
	s.warned = policy
	if address == "" {
		address = s.addresses
	}
	s.log.Warn("this Redis evicts counters when its memory is full, and evicted windows start from zero: set maxmemory-policy noeviction",
		"store", address, "maxmemory-policy", policy, "maxmemory", maxMemory)
}

// warnOfSlots logs, once, that a policy has windows that a cluster cannot charge together.
func (s *Store) warnOfSlots() {
	if !s.split.Swap(true) {
		s.log.Error("a limiter has windows that do not begin with the same key source: this cluster cannot count them together, so each node counts them locally",
			"store", s.addresses)
	}
}

// check checks what may change: the clock, the user's rights, the secret, and whether the counters
// are still there. On a cluster a dead machine does not keep the others from being checked.
func (s *Store) check(ctx context.Context, client rueidis.Client) error {
	if err := s.readClock(ctx, client); lasting(err) {
		return err
	}
	if err := s.probe(ctx, newLink(client, nil, false)); err != nil {
		return s.diagnosed(ctx, client, err)
	}
	if err := s.agree(ctx, client); err != nil {
		return err
	}
	s.readSlots(ctx, client)
	s.checkLoss(ctx, client)
	return nil
}

// readClock reads the server's clock.
func (s *Store) readClock(ctx context.Context, client rueidis.Client) error {
	asked := s.local()
	parts, err := client.Do(ctx, client.B().Time().Build()).AsStrSlice()
	if err != nil {
		return s.diagnosed(ctx, client, err)
	}
	if len(parts) != 2 {
		return errReply
	}
	seconds, _ := strconv.ParseInt(parts[0], 10, 64)
	micro, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || seconds <= 0 {
		return errReply
	}
	now := s.local()
	// this process's clock was set, or the process was suspended
	if trip := now - asked; trip < 0 || trip > int64(checkTimeout) {
		return nil
	}
	s.clock.correct(asked, now, seconds*int64(time.Second)+micro*int64(time.Microsecond), int64(time.Microsecond))
	return nil
}
