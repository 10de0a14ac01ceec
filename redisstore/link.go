package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // how Redis names scripts
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
	dialTimeout  = 2 * time.Second // for a connection and its greeting
	stuckTimeout = 2 * time.Second // for a connection that says nothing, unless Options say otherwise
	keepEvery    = time.Second     // how often the keeper looks at the server
	checkTimeout = time.Second     // for one look
	mostFailures = 2               // after how many in a row it connects anew
	lingering    = 3 * time.Second // how long the questions of an old connection may go on
)

// A link is a connection, with what is needed to use it. It is replaced whole.
type link struct {
	client     rueidis.Client
	hasher     *hasher
	take, give script
	cluster    bool
	sentinel   bool

	reset, grant, granted script
}

func newLink(client rueidis.Client, h *hasher, sentinel bool) *link {
	return &link{
		client: client, hasher: h, cluster: client.Mode() == rueidis.ClientModeCluster, sentinel: sentinel,
		take: newScript(takeText), give: newScript(giveText),
		reset: newScript(resetText), grant: newScript(grantText), granted: newScript(grantedText),
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

// A state is what was wrong when the server was last asked; the zero value says nothing was.
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

// unready says why there is no link.
func (s *Store) unready() error {
	if s.closing.Err() != nil {
		return ErrClosed
	}
	if err := s.state.why(); err != nil {
		return fmt.Errorf("redis %s: %w", s.where, err)
	}
	return fmt.Errorf("redis %s: not connected yet", s.where)
}

// reconnect has the keeper connect anew, soon.
func (s *Store) reconnect() {
	select {
	case s.renew <- struct{}{}:
	default:
	}
}

// keep looks after the connection until the store is closed: it connects where there is none, connects anew where the old one
// is of no use, and looks at the server from time to time.
func (s *Store) keep() {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	failures := 0
	for {
		anew := false
		select {
		case <-s.closing.Done():
			return
		case <-ticker.C:
		case <-s.renew:
			anew = true
			select { // once a second is enough
			case <-s.closing.Done():
				return
			case <-ticker.C:
			}
		}
		l := s.link.Load()
		if l != nil && !anew {
			ctx, cancel := context.WithTimeout(s.closing, checkTimeout)
			err := s.look(ctx, l.client)
			cancel()
			if failures++; err == nil {
				failures = 0
			}
			_ = s.note(err)
			s.lookAtGrants(s.closing) // which may be on a machine that answers
		}
		if l == nil || anew || failures >= mostFailures && !l.cluster { // a cluster's client finds its machines by itself
			if s.note(s.connect(s.closing)) == nil {
				failures = 0
			}
		}
	}
}

// note keeps what was found, and says it once.
func (s *Store) note(err error) error {
	if s.closing.Err() != nil {
		return err
	}
	s.state.failed(err)
	if err == nil {
		s.said = ""
	}
	if !lasting(err) {
		return err
	}
	if s.said != err.Error() {
		s.said = err.Error()
		s.log.Error("the store cannot be used until an operator sees to it", "store", s.where, "error", err)
	}
	if l := s.link.Swap(nil); l != nil { // doubt refuses: no second budget, no counting where we are not let in
		s.leave(l)
	}
	return err
}

// lasting reports whether err is one that waiting does not cure.
func lasting(err error) bool {
	return errors.Is(err, ErrDenied) || errors.Is(err, ErrSecret) || errors.Is(err, ErrServer)
}

// connect makes a connection, looks at what is there, and puts it in force.
func (s *Store) connect(ctx context.Context) error {
	client, err := rueidis.NewClient(s.clientOptions())
	if err != nil {
		return explained(err)
	}
	bounded, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	for _, step := range []func(context.Context, rueidis.Client) error{s.inspect, s.readClock, s.tryAll, s.agree} {
		if err := step(bounded, client); err != nil {
			client.Close()
			return err
		}
	}
	s.lookForLoss(bounded, client)
	s.lookAtGrants(bounded)
	return nil
}

// adopt puts a client in force, with the secret that the server has.
func (s *Store) adopt(client rueidis.Client) {
	l := newLink(client, newHasher(s.prefix, s.secret), s.options.Master != "")
	s.hasher.Store(l.hasher)
	if old := s.link.Swap(l); old != nil && old.client != client {
		s.leave(old)
	}
	s.trouble.Store(0) // it has just answered
}

// leave closes a connection that is used no more, when what was asked there has had the time to be answered.
func (s *Store) leave(l *link) {
	s.done.Go(func() {
		timer := time.NewTimer(lingering)
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
		PipelineMultiplex:   -1, // one connection: the more is asked at once, the fewer packets
		DialCtxFn:           s.dial,
		Dialer:              net.Dialer{Timeout: dialTimeout, KeepAlive: time.Second},
		ConnWriteTimeout:    o.Timeout,
		AlwaysPipelining:    true,
		DisableCache:        true,
		DisableRetry:        true, // a take that may have been counted is never sent again
		RingScaleEachConn:   ringScale,
		ReadBufferEachConn:  bufferSize,
		WriteBufferEachConn: bufferSize,
	}
}

const bufferSize = 128 << 10

// explained tells apart what waiting does not cure, and leaves out what was sent: a server that does not know a command repeats
// it, passwords and all.
func explained(err error) error {
	if err == nil {
		return nil
	}
	text, _, repeats := strings.Cut(err.Error(), ", with args beginning with")
	begins := func(some ...string) bool {
		return slices.ContainsFunc(some, func(s string) bool { return strings.HasPrefix(text, s) })
	}
	has := func(some ...string) bool {
		return slices.ContainsFunc(some, func(s string) bool { return strings.Contains(text, s) })
	}
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, ErrServer), errors.Is(err, ErrDenied):
		return err
	case begins("READONLY"):
		return fmt.Errorf("%w: give the master's address, or Sentinels (%s)", ErrReplica, text)
	case errors.As(err, &untrusted), has("Unknown Redis command", "unknown message type", "unexpected number byte", "unexpected simple string message", "No such master with that name", "DB index is out of range", "SELECT is not allowed"),
		begins("unknown command", "ERR unknown command"):
		return fmt.Errorf("%w: %s", ErrServer, text)
	case begins("WRONGPASS", "NOAUTH", "NOPERM", "DENIED"), has(scriptsDenied...),
		has("invalid password", "without any password configured", "Client sent AUTH"):
		return fmt.Errorf("%w: %s", ErrDenied, text)
	case has("cluster support disabled"):
		return fmt.Errorf("%w: several addresses are those of a cluster, and this is none: give the address of one server, or Sentinels", ErrServer)
	case repeats:
		return errors.New(text)
	}
	return err
}

// oldest is the first version whose SET knows EXAT.
var oldest = [2]int{6, 2}

// inspect looks at what stays as it is: the version, and whether counters can be dropped.
func (s *Store) inspect(ctx context.Context, client rueidis.Client) error {
	info, err := client.Do(ctx, client.B().Info().Build()).ToString()
	if err != nil {
		return s.denied(ctx, client, err)
	}
	version := field(info, "redis_version") // Valkey says which Redis it is like
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && (major < oldest[0] || major == oldest[0] && minor < oldest[1]) {
		return fmt.Errorf("%w: it is Redis %s, and SET … EXAT needs %d.%d", ErrServer, version, oldest[0], oldest[1])
	}
	for address, node := range nodes(client) {
		info, err := node.Do(ctx, node.B().Info().Section("memory").Build()).ToString()
		if err != nil {
			continue // it is looked at when it answers
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

// field returns one value of what INFO says.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (s *Store) warnOfEviction(address, policy, most string) {
	if policy == "" || policy == "noeviction" || s.warned == policy {
		return
	}
	s.warned = policy
	if address == "" {
		address = s.where
	}
	s.log.Warn("this Redis drops counters when its memory is full, and what is dropped is admitted again: set maxmemory-policy noeviction",
		"store", address, "maxmemory-policy", policy, "maxmemory", most)
}

// warnOfSlots says once that a policy has windows that a cluster does not count together.
func (s *Store) warnOfSlots() {
	if !s.split.Swap(true) {
		s.log.Error("a limiter has windows that do not begin with the same key source: this cluster cannot count them together, and each node does for itself",
			"store", s.where)
	}
}

// look looks at what may change: the clock, the rights, the secret, and whether the counters are
// there. On a cluster a machine that is dead keeps nothing else from being looked at.
func (s *Store) look(ctx context.Context, client rueidis.Client) error {
	if err := s.readClock(ctx, client); lasting(err) {
		return err
	}
	if err := s.tryTake(ctx, newLink(client, nil, false)); err != nil {
		return s.denied(ctx, client, err)
	}
	if err := s.agree(ctx, client); err != nil {
		return err
	}
	s.lookForLoss(ctx, client)
	return nil
}

// readClock asks what time it is at the server.
func (s *Store) readClock(ctx context.Context, client rueidis.Client) error {
	asked := s.local()
	parts, err := client.Do(ctx, client.B().Time().Build()).AsStrSlice()
	if err != nil {
		return s.denied(ctx, client, err)
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
	if trip := now - asked; trip < 0 || trip > int64(checkTimeout) { // this process's clock was moved, or stood still
		return nil
	}
	s.clock.ahead.Store(seconds*int64(time.Second) + micro*int64(time.Microsecond) - now)
	return nil
}
