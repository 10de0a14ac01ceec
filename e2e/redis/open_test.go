package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// open returns a store that is closed with the test.
func open(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// bridge opens a store around inner, which is s or wraps it. It counts in memory while s does not
// answer.
func bridge(t testing.TB, s *redisstore.Store, inner weir.Store, o failover.Options) *failover.Store {
	t.Helper()
	mem, err := memstore.New(memstore.Options{Now: s.Now})
	if err != nil {
		t.Fatal(err)
	}
	over, err := failover.New(inner, mem, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = over.Close(ctx) // the server may be gone
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
	return over
}
