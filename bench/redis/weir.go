package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// secret keys the hashes of all of Weir's contestants.
var secret = []byte("sixteen bytes of no importance..")

func openStore(s setup) (*redisstore.Store, error) {
	return redisstore.New(context.Background(), redisstore.Options{Addresses: []string{s.Server.address}, Secret: secret})
}

// A take calls the store through weir's own interface.
type take struct {
	store   *redisstore.Store
	windows []window
}

// A window of a charge: its key begins with scope, and goes on with the caller.
type window struct {
	scope string
	limit int64
	per   int64
}

func openTake(s setup) (limiter, error) {
	store, err := openStore(s)
	return take{store, []window{{scope, s.Limit, int64(s.Per / time.Second)}}}, err
}

// openTwoTake charges a second window of the same caller, twice as long.
func openTwoTake(s setup) (limiter, error) {
	store, err := openStore(s)
	per := int64(s.Per / time.Second)
	return take{store, []window{{scope, s.Limit, per}, {"api more ip ", s.Limit, 2 * per}}}, err
}

func (t take) worker() func(context.Context, string) (bool, error) {
	charges := make([]weir.Charge, len(t.windows))
	for i, w := range t.windows {
		charges[i] = weir.Charge{Key: make([]byte, 0, 64), Scope: len(w.scope), Limit: w.limit, Per: w.per, Cost: 1}
	}
	receipt := new(weir.Receipt)
	return func(ctx context.Context, key string) (bool, error) {
		for i, w := range t.windows {
			charges[i].Key = append(append(charges[i].Key[:0], w.scope...), key[len(scope):]...)
			charges[i].Subject = len(charges[i].Key)
		}
		err := t.store.Take(ctx, charges, receipt)
		return receipt.Allowed, err
	}
}

func (t take) close() error { return t.store.Close() }

// A settledTake takes two units, and gives one back.
type settledTake struct{ take }

func openSettledTake(s setup) (limiter, error) {
	l, err := openTake(s)
	if err != nil {
		return nil, err
	}
	return settledTake{l.(take)}, nil
}

func (t settledTake) worker() func(context.Context, string) (bool, error) {
	w := t.windows[0]
	charges := []weir.Charge{{Key: make([]byte, 0, 64), Scope: len(w.scope), Limit: w.limit, Per: w.per, Cost: 2}}
	receipt, changes := new(weir.Receipt), make([]weir.Change, 1)
	return func(ctx context.Context, key string) (bool, error) {
		c := &charges[0]
		c.Key = append(append(c.Key[:0], w.scope...), key[len(scope):]...)
		c.Subject = len(c.Key)
		if err := t.store.Take(ctx, charges, receipt); err != nil || !receipt.Allowed {
			return false, err
		}
		changes[0] = weir.Change{Charge: *c, Reset: receipt.Used[0].Reset, Units: -1}
		if err := t.store.Settle(ctx, &receipt.Ticket, changes); err != nil {
			return false, err
		}
		if !changes[0].Done {
			return false, fmt.Errorf("it was not settled: %+v", changes[0])
		}
		return true, nil
	}
}

// A decide decides like a service that embeds Weir, with a fallback store in this process.
type decide struct {
	store    *redisstore.Store
	fallback *memstore.Store
	over     *failover.Store // around store
	decider  *weir.Decider
	match    weir.Match
}

func openDecide(s setup) (limiter, error) {
	return openDecider(s, weir.Window{Limit: s.Limit, Per: s.Per, Key: weir.Key{{"ip"}}})
}

func openTwoDecide(s setup) (limiter, error) {
	return openDecider(s, weir.Window{Limit: s.Limit, Per: s.Per, Key: weir.Key{{"ip"}}}, weir.Window{Limit: s.Limit, Per: 2 * s.Per, Key: weir.Key{{"ip"}}})
}

func openDecider(s setup, windows ...weir.Window) (limiter, error) {
	store, err := openStore(s)
	if err != nil {
		return nil, err
	}
	fallback, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	policy := weir.Policy{Limiters: []weir.Limiter{{Name: "api", Windows: windows}}}
	// The deadline is long, so that a pause of the whole machine does not count as an outage.
	over, err := failover.New(store, fallback, failover.Options{Deadline: 2 * time.Second})
	if err != nil {
		return nil, errors.Join(err, store.Close(), fallback.Close())
	}
	d, err := weir.New(policy, over, weir.Options{})
	if err != nil {
		return nil, errors.Join(err, store.Close(), fallback.Close())
	}
	return decide{store, fallback, over, d, d.Named("api")}, nil
}

// An address is the only key source of a caller.
type address string

func (a *address) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, *a...), source == "ip"
}

func (d decide) worker() func(context.Context, string) (bool, error) {
	caller := new(address)
	request := weir.Request{Keys: caller, Match: d.match, Scratch: new(weir.Scratch)}
	var decision weir.Decision
	return func(ctx context.Context, key string) (bool, error) {
		*caller = address(key[len(scope):]) // the decider adds its own scope
		if err := d.decider.DecideInto(ctx, &request, &decision); err != nil {
			return false, err
		}
		if decision.Outcome != weir.Counted {
			return false, fmt.Errorf("the store did not answer: outcome %d", decision.Outcome)
		}
		return decision.Allowed, nil
	}
}

func (d decide) close() error {
	return errors.Join(d.over.Close(context.Background()), d.store.Close(), d.fallback.Close())
}
