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
)

const (
	// mostAsked is how many questions may be under way: fewer than fit into the client's queue (ringScale is its logarithm), where
	// a question waits without a look at its deadline.
	mostAsked = 3 << (ringScale - 2)
	ringScale = 12
	// mostAside is how many may be under way in goroutines of their own.
	mostAside = 1 << 10
	// troubled is how long after a failure of the connection questions are asked aside.
	troubled = 10 * time.Second
	// tryAgain is how long a question waits while the keys it is about move to another machine.
	tryAgain = time.Millisecond
)

// A room holds so many at a time.
type room struct {
	*semaphore.Weighted
	size int64
}

func newRoom(size int64) room { return room{semaphore.NewWeighted(size), size} }

func (r room) enter(ctx context.Context) error {
	if err := r.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("%d questions are under way already: %w", r.size, err)
	}
	return nil
}

func (r room) leave() { r.Release(1) }

// empty waits until everybody has left.
func (r room) empty() {
	_ = r.Acquire(context.Background(), r.size) // errs only where the context ends
	r.Release(r.size)
}

// A script is known to the server by its SHA-1, and sent whole where it is not.
type script struct{ text, sha string }

func (sc *script) command(l *link, whole bool, keys, args []string) rueidis.Completed {
	if whole {
		return l.client.B().Eval().Script(sc.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	}
	return l.client.B().Evalsha().Sha1(sc.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// run runs a script on windows, and notes whether the server counts.
func (s *Store) run(ctx context.Context, l *link, sc *script, keys, args []string) (rueidis.RedisResult, error) {
	reply, err := s.send(ctx, l, sc, keys, args)
	if err != nil {
		s.state.failed(err)
		return reply, err
	}
	s.state.answered()
	return reply, nil
}

// send runs a script, once: it is sent again only after an answer that says that it was not run.
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
		told, ok := rueidis.IsRedisErr(err)
		switch {
		case ok && told.IsNoScript() && !whole:
			whole = true
			continue
		case ok && told.IsTryAgain() && wait(ctx, tryAgain):
			continue
		}
		s.lookForMaster(err)
		return reply, explained(err)
	}
}

// pings is how many windows Ping counts in on a cluster. They are in as many slots, so that some of
// them are on machines that answer as long as a few machines do.
const pings = 16

// Ping implements weir.Shared: it counts units that nobody asks for, in a window of a second,
// exactly as takes would. On a cluster it does so in several slots, and the first answer is enough.
func (s *Store) Ping(ctx context.Context) error {
	l := s.link.Load()
	if l == nil {
		return s.unready()
	}
	if err := s.tryTake(ctx, l); err != nil {
		err = explained(err)
		s.state.failed(err)
		return fmt.Errorf("redis %s: %w", s.where, err)
	}
	s.state.answered()
	return nil
}

// Reach implements weir.Shared, with units that nobody asks for in windows beside those of spent.
func (s *Store) Reach(ctx context.Context, spent []weir.Spent, reached []bool) error {
	l := s.link.Load()
	if l == nil {
		return s.unready()
	}
	of := make(map[string][]int) // which of spent a trial is for
	for i := range spent {
		name := s.trialName(0)
		if l.cluster {
			g := &spent[i]
			c := weir.Charge{Key: g.Key, Scope: g.Scope, Subject: g.Subject}
			name = tagOf(l.hasher.name(&c, hash{})) + "}" + trialName
		}
		of[name] = append(of[name], i)
	}
	var bad error
	for name, err := range s.trials(ctx, l, slices.Collect(maps.Keys(of))) {
		if err != nil {
			bad = err
			continue
		}
		for _, i := range of[name] {
			reached[i] = true
		}
	}
	if bad != nil {
		return fmt.Errorf("redis %s: %w", s.where, explained(bad))
	}
	return nil
}

// lookForMaster connects anew where what was the master is one no more.
func (s *Store) lookForMaster(err error) {
	if told, ok := rueidis.IsRedisErr(err); ok && (strings.Contains(told.Error(), "READONLY") || strings.HasPrefix(told.Error(), "MASTERDOWN")) {
		s.reconnect()
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// do asks one question. The client waits without regard to ctx in some places: where its queue is full, which room prevents,
// while somebody else connects, and while it looks for the machine that took over from another. So from when the connection
// failed, or is made anew, until a while later questions are asked by goroutines of their own, which may wait as long as
// they must.
func (s *Store) do(ctx context.Context, l *link, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	if s.troubled() {
		return s.doAside(ctx, l, cmd)
	}
	if err := s.room.enter(ctx); err != nil {
		return rueidis.RedisResult{}, err
	}
	if s.trouble.Load() != 0 { // who was in the room before may have left its question in the queue
		s.room.leave()
		return s.doAside(ctx, l, cmd)
	}
	reply := l.client.Do(ctx, cmd)
	err := s.transport(reply)
	s.room.leave()
	return reply, err
}

func (s *Store) troubled() bool {
	until := s.trouble.Load()
	return until != 0 && (s.local() < until || !s.trouble.CompareAndSwap(until, 0))
}

func (s *Store) doAside(ctx context.Context, l *link, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	if err := s.aside.enter(ctx); err != nil {
		return rueidis.RedisResult{}, err
	}
	reply, err := aside(ctx, s.aside, func() rueidis.RedisResult { return l.client.Do(ctx, cmd) })
	if err != nil {
		s.inTroubleBy(err)
		return reply, err
	}
	return reply, s.transport(reply)
}

// aside asks in a goroutine of its own, which leaves the room when it has the answer: Close waits for that. Whoever asks has entered
// the room, and waits until ctx ends.
func aside[T any](ctx context.Context, r room, ask func() T) (T, error) {
	answer := make(chan T, 1)
	go func() {
		defer r.leave()
		answer <- ask()
	}()
	select {
	case reply := <-answer:
		return reply, nil
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// transport notes where no answer came.
func (s *Store) transport(reply rueidis.RedisResult) error {
	err := reply.NonRedisError()
	if err != nil && !rueidis.IsRedisNil(err) {
		s.inTroubleBy(err)
		return err
	}
	return nil
}

// inTroubleBy is inTrouble, unless err only says that whoever asked has given up: that tells nothing of the server.
func (s *Store) inTroubleBy(err error) {
	if !errors.Is(err, context.Canceled) {
		s.inTrouble()
	}
}

func (s *Store) inTrouble() { s.trouble.Store(s.local() + int64(troubled)) }

// doMulti asks many questions aside. When ctx ends before all are answered, all have its error.
func (s *Store) doMulti(ctx context.Context, l *link, commands []rueidis.Completed) []error {
	all := make([]error, len(commands))
	fail := func(err error) []error {
		for i := range all {
			all[i] = err
		}
		return all
	}
	if err := s.aside.enter(ctx); err != nil {
		return fail(err)
	}
	replies, err := aside(ctx, s.aside, func() []rueidis.RedisResult { return l.client.DoMulti(ctx, commands...) })
	if err != nil {
		return fail(err)
	}
	for i := range replies {
		all[i] = replies[i].Error()
	}
	return all
}
