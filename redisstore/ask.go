package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/semaphore"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/wait"
)

const (
	// maxInFlight bounds the commands in flight on the shared connection. It is below the capacity
	// of the client's ring (2^ringScale): a full ring blocks without regard to the deadline.
	maxInFlight = 3 << (ringScale - 2)
	ringScale   = 12
	// maxDetached bounds the commands that run in goroutines of their own.
	maxDetached = 1 << 10
	// troubleLasts is how long commands are detached after the connection has failed.
	troubleLasts = 10 * time.Second
	// tryAgainDelay is the pause before a command is repeated while its keys move to another
	// machine.
	tryAgainDelay = time.Millisecond
)

// slots is a semaphore with a size that errors can name.
type slots struct {
	*semaphore.Weighted
	size int64
}

func newSlots(size int64) slots { return slots{semaphore.NewWeighted(size), size} }

func (s slots) acquire(ctx context.Context) error {
	if err := s.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("%d commands are already in flight: %w", s.size, err)
	}
	return nil
}

func (s slots) release() { s.Release(1) }

// waitEmpty waits until every slot is released.
func (s slots) waitEmpty() {
	_ = s.Acquire(context.Background(), s.size) // fails only if the context ends
	s.Release(s.size)
}

// A script is run by its SHA-1, or by its text on a server that does not have it.
type script struct{ text, sha string }

func (sc *script) command(l *link, whole bool, keys, args []string) rueidis.Completed {
	if whole {
		return l.client.B().Eval().Script(sc.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	}
	return l.client.B().Evalsha().Sha1(sc.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// run runs a script on windows and records whether the server answered.
func (s *Store) run(ctx context.Context, l *link, sc *script, keys, args []string) (rueidis.RedisResult, error) {
	reply, err := s.send(ctx, l, sc, keys, args)
	if err != nil {
		s.state.failed(err)
		return reply, err
	}
	s.state.answered()
	return reply, nil
}

// send runs a script at most once. It repeats the command only after a reply that says that the
// script has not run.
func (s *Store) send(ctx context.Context, l *link, sc *script, keys, args []string) (rueidis.RedisResult, error) {
	whole := false
	for {
		reply, err := s.do(ctx, l, sc.command(l, whole, keys, args))
		if err == nil {
			err = reply.Error()
		}
		if err == nil {
			return reply, nil
		}
		redisErr, ok := rueidis.IsRedisErr(err)
		switch {
		case ok && redisErr.IsNoScript() && !whole:
			whole = true
			continue
		case ok && redisErr.IsTryAgain() && sc != &l.lease && wait.For(ctx, tryAgainDelay) == nil:
			continue
		}
		s.lookForMaster(err)
		return reply, classified(err)
	}
}

// probes is the number of windows that Ping counts in on a cluster. They are in different slots, so
// that some of them are on machines that answer even if few machines do.
const pings = 16

// Ping implements weir.Shared: it charges a window of one second that belongs to no caller, in the
// same way as a take, and waits for replicas if takes do. On a cluster it does so in several slots,
// and one answer is enough.
func (s *Store) Ping(ctx context.Context) error {
	epoch := s.epoch.now()
	l := s.link.Load()
	if l == nil {
		return s.notConnected()
	}
	err := s.probe(ctx, l)
	if err == nil {
		err = s.awaitReplicas(ctx, epoch)
	}
	if err != nil {
		err = classified(err)
		s.state.failed(err)
		return fmt.Errorf("redis %s: %w", s.addresses, err)
	}
	s.state.answered()
	return nil
}

// Reach implements weir.Shared: it probes windows in the same slots as those of spent.
func (s *Store) Reach(ctx context.Context, spent []weir.Spent, reached []bool) error {
	l := s.link.Load()
	if l == nil {
		return s.notConnected()
	}
	of := make(map[string][]int) // indexes into spent, by the name of the probe
	for i := range spent {
		name := s.probeName(0)
		if l.cluster {
			g := &spent[i]
			c := weir.Charge{Key: g.Key, Scope: g.Scope, Subject: g.Subject}
			name = tagOf(l.hasher.name(&c, hash{})) + "}" + probeSuffix
		}
		of[name] = append(of[name], i)
	}
	var bad error
	for name, err := range s.probeAll(ctx, l, slices.Collect(maps.Keys(of))) {
		if err != nil {
			bad = err
			continue
		}
		for _, i := range of[name] {
			reached[i] = true
		}
	}
	if bad != nil {
		return fmt.Errorf("redis %s: %w", s.addresses, classified(bad))
	}
	return nil
}

// lookForMaster reconnects after an error that shows that the server is no longer the master.
func (s *Store) lookForMaster(err error) {
	if redisErr, ok := rueidis.IsRedisErr(err); ok && (strings.Contains(redisErr.Error(), "READONLY") || strings.HasPrefix(redisErr.Error(), "MASTERDOWN")) {
		s.epoch.replace()
		s.reconnect()
	}
}

// do runs one command. In some places the client ignores ctx: while its ring is full (which
// inFlight prevents), while another goroutine connects, and while it looks for a replacement of a
// failed machine. So commands run detached from the moment the connection fails or is replaced,
// until troubleLasts later.
func (s *Store) do(ctx context.Context, l *link, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	if s.troubled() {
		return s.doDetached(ctx, l, cmd)
	}
	if err := s.inFlight.acquire(ctx); err != nil {
		return rueidis.RedisResult{}, err
	}
	if s.trouble.Load() != 0 { // an earlier command may still be in the ring
		s.inFlight.release()
		return s.doDetached(ctx, l, cmd)
	}
	reply := l.client.Do(ctx, cmd)
	err := s.transport(reply)
	s.inFlight.release()
	return reply, err
}

func (s *Store) troubled() bool {
	until := s.trouble.Load()
	return until != 0 && (s.local() < until || !s.trouble.CompareAndSwap(until, 0))
}

func (s *Store) doDetached(ctx context.Context, l *link, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	if err := s.detached.acquire(ctx); err != nil {
		return rueidis.RedisResult{}, err
	}
	reply, err := detach(ctx, s.detached, func() rueidis.RedisResult { return l.client.Do(ctx, cmd) })
	if err != nil {
		s.noteTroubleBy(err)
		return reply, err
	}
	return reply, s.transport(reply)
}

// detach runs a command in a goroutine of its own, which releases the slot when the command has
// ended; Close waits for that. The caller has acquired the slot, and waits until ctx ends.
func detach[T any](ctx context.Context, s slots, run func() T) (T, error) {
	answer := make(chan T, 1)
	go func() {
		defer s.release()
		answer <- run()
	}()
	select {
	case reply := <-answer:
		return reply, nil
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// transport records that a command got no reply.
func (s *Store) transport(reply rueidis.RedisResult) error {
	err := reply.NonRedisError()
	if err != nil && !rueidis.IsRedisNil(err) {
		s.noteTroubleBy(err)
		return err
	}
	return nil
}

// noteTroubleBy is noteTrouble, unless err only means that the caller gave up. That does not show
// anything about the server.
func (s *Store) noteTroubleBy(err error) {
	if !errors.Is(err, context.Canceled) {
		s.noteTrouble()
	}
}

func (s *Store) noteTrouble() { s.trouble.Store(s.local() + int64(troubleLasts)) }

// doMulti runs many commands detached. If ctx ends before every reply is there, each result is
// ctx's error.
func (s *Store) doMulti(ctx context.Context, to rueidis.Client, commands []rueidis.Completed) []error {
	all := make([]error, len(commands))
	replies, err := s.exchange(ctx, to, commands)
	for i := range all {
		if all[i] = err; err == nil {
			all[i] = replies[i].Error()
		}
	}
	return all
}

// exchange runs many commands detached. It returns an error if ctx ends before every reply is
// there.
func (s *Store) exchange(ctx context.Context, to rueidis.Client, commands []rueidis.Completed) ([]rueidis.RedisResult, error) {
	if err := s.detached.acquire(ctx); err != nil {
		return nil, err
	}
	return detach(ctx, s.detached, func() []rueidis.RedisResult { return to.DoMulti(ctx, commands...) })
}
