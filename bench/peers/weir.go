package main

import (
	"context"
	"io"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// openWeir opens the embedded store. Its bound is far above what the keys need: a bound reserves
// nothing.
func openWeir(s setup) (store, error) {
	m, err := memstore.New(memstore.Options{Memory: max(memstore.DefaultMemory, int64(s.Keys)*100), File: s.File})
	if err != nil {
		return nil, err
	}
	return weirStore{store: m, setup: s}, nil
}

// A weirStore is called through weir's own interface.
type weirStore struct {
	store weir.Store
	setup setup
}

func (s weirStore) charge(key []byte) weir.Charge {
	return weir.Charge{Key: key, Scope: 19, Subject: 32, Limit: s.setup.Limit, Per: int64(s.setup.Per / time.Second), Cost: 1}
}

func (s weirStore) worker() func([]byte) bool {
	charges := []weir.Charge{s.charge(nil)}
	receipt := new(weir.Receipt)
	ctx := context.Background()
	return func(key []byte) bool {
		charges[0].Key = key
		if err := s.store.Take(ctx, charges, receipt); err != nil {
			panic(err)
		}
		return receipt.Allowed
	}
}

func (s weirStore) close() error {
	if c, ok := s.store.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// openTwoWindows is Weir with the charges of the limiter widget-init: a window by address and
// agent, and one by address. Four agents share an address.
func openTwoWindows(s setup) (store, error) {
	one, err := openWeir(s)
	if err != nil {
		return nil, err
	}
	return twoWindows{one.(weirStore)}, nil
}

type twoWindows struct{ weirStore }

func (s twoWindows) worker() func([]byte) bool {
	address := newKey(0)
	address[0] = 'W' // another window's
	charges := []weir.Charge{s.charge(nil), s.charge(address[:])}
	receipt := new(weir.Receipt)
	ctx := context.Background()
	return func(k []byte) bool {
		charges[0].Key = k
		address.set(key(k).number() / 4)
		if err := s.store.Take(ctx, charges, receipt); err != nil {
			panic(err)
		}
		return receipt.Allowed
	}
}
