package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// maxReplicas is the largest Options.Replicas.
const maxReplicas = 15

// replicasTimeout is how long the server waits for its replicas.
const replicasTimeout = 200 * time.Millisecond

// asideDial tells connections that nothing is counted on, and that no take waits for, from others.
const asideDial = time.Second

// replicaName follows the prefix in the name of the key that is written before each WAIT.
const replicaName = ":replicas"

var (
	errReplicas = errors.New("its replicas do not have the take")
	errReplaced = errors.New("the server may have been replaced before its replicas had the take")
)

// replicas lets takes wait until replicas have them (Options.Replicas). WAIT waits for what its own
// connection has written. So a connection of its own writes a key after takes have been answered,
// and waits for that: a replica that has the key has these takes. The takes that are answered
// meanwhile share the next WAIT.
type replicas struct {
	mu      sync.Mutex
	waiting []chan error
	wake    chan struct{} // there are some; nil: takes do not wait

	// Only waitForReplicas uses these.
	client rueidis.Client // to the machine that counts takes; nil: none
	epoch  uint64         // it was the same machine in this epoch
	link   *link          // whose machine it is
	used   string         // link.uses() then
}

// awaitReplicas waits until enough replicas have a take that was answered.
func (s *Store) awaitReplicas(ctx context.Context, epoch uint64) error {
	r := &s.replicas
	if r.wake == nil {
		return nil
	}
	answer := make(chan error, 1)
	r.mu.Lock()
	r.waiting = append(r.waiting, answer)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	select {
	case err := <-answer:
		if err == nil && !s.epoch.outlives(epoch, noSlot) {
			return errReplaced
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errReplicas, ctx.Err())
	case <-s.closing.Done():
		return ErrClosed
	}
}

// waitForReplicas answers those who wait, until the store is closed.
func (s *Store) waitForReplicas() {
	r := &s.replicas
	defer r.disconnect()
	for {
		select {
		case <-s.closing.Done():
			return
		case <-r.wake:
		}
		r.mu.Lock()
		all := r.waiting
		r.waiting = nil
		r.mu.Unlock()
		if len(all) == 0 {
			continue
		}
		err := s.waitOnce()
		if err != nil {
			r.disconnect() // another machine may be right since
		}
		for _, answer := range all {
			answer <- err
		}
	}
}

// waitOnce returns nil if enough replicas have every take that was answered before, unless another
// server may have answered since.
func (s *Store) waitOnce() error {
	ctx, cancel := context.WithTimeout(s.closing, checkTimeout)
	defer cancel()
	r := &s.replicas
	if r.client == nil || !s.isSameMachine() {
		r.disconnect()
		if err := s.connectToWait(ctx); err != nil {
			return err
		}
	}
	replies := r.client.DoMulti(ctx,
		r.client.B().Set().Key(s.prefix+replicaName).Value("").ExSeconds(1).Build(),
		r.client.B().Wait().Numreplicas(int64(s.options.Replicas)).Timeout(replicasTimeout.Milliseconds()).Build())
	if err := replies[0].Error(); err != nil {
		return classified(err)
	}
	have, err := replies[1].AsInt64()
	switch {
	case err != nil:
		return classified(err)
	case !s.isSameMachine():
		return errReplaced
	case have < int64(s.options.Replicas):
		return fmt.Errorf("%w: %d are asked for, and %d had it after %v", errReplicas, s.options.Replicas, have, replicasTimeout)
	}
	return nil
}

// isSameMachine reports whether takes are still counted where it is waited for replicas. A client
// of Sentinels uses a new connection later than that has answered.
func (s *Store) isSameMachine() bool {
	r := &s.replicas
	return s.link.Load() == r.link && r.link.uses() == r.used && s.epoch.outlives(r.epoch, noSlot)
}

// asideOptions are those of a client of one server, or Sentinel, that counts nothing: its
// connections end no epoch (see dial).
func (s *Store) asideOptions(addresses ...string) rueidis.ClientOption {
	o := s.clientOptions()
	o.InitAddress, o.Sentinel, o.ForceSingleClient = addresses, rueidis.SentinelOption{}, true
	o.Dialer.Timeout = asideDial
	return o
}

// connectToWait connects to the machine that counts takes. After an error, too, there may be a
// client.
func (s *Store) connectToWait(ctx context.Context) (err error) {
	r := &s.replicas
	r.epoch = s.epoch.now() // before the machines are compared
	l := s.link.Load()
	if l == nil {
		return s.notConnected()
	}
	addresses := s.options.Addresses
	if r.link, r.used = l, l.uses(); l.sentinel {
		addresses = []string{r.used}
	}
	if r.client, err = rueidis.NewClient(s.asideOptions(addresses...)); err != nil {
		return classified(err)
	}
	ours, err := runID(ctx, r.client)
	if err != nil {
		return err
	}
	theirs, err := runID(ctx, l.client)
	if err == nil && ours != theirs { // a name, or a proxy, may lead to another
		err = errReplaced
	}
	return err
}

// runID returns what tells a process of a server from every other.
func runID(ctx context.Context, client rueidis.Client) (string, error) {
	info, err := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
	if err != nil {
		return "", classified(err)
	}
	if id := field(info, "run_id"); id != "" {
		return id, nil
	}
	return "", fmt.Errorf("%w: INFO does not tell its run_id, so takes cannot wait for replicas", ErrServer)
}

func (r *replicas) disconnect() {
	if r.client != nil {
		r.client.Close()
		r.client = nil
	}
}

// tryReplicas checks that a server can wait for its replicas.
func (s *Store) tryReplicas(ctx context.Context, client rueidis.Client) error {
	if s.options.Replicas == 0 {
		return nil
	}
	if client.Mode() == rueidis.ClientModeCluster {
		return fmt.Errorf("%w: it is a cluster, where takes cannot wait for replicas", ErrServer)
	}
	if _, err := runID(ctx, client); err != nil {
		return err
	}
	// for no replica it does not block, so it needs no connection of its own
	err := classified(client.Do(ctx, client.B().Arbitrary("WAIT", "0", "1").Build()).Error())
	if errors.Is(err, ErrDenied) {
		return &RightsError{User: s.options.Username, Missing: []string{"wait"}, Prefix: s.prefix}
	}
	return err
}
