package failover_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/memstore"
)

// A deadStore is a store that does not answer.
type deadStore struct{}

func (deadStore) Take(context.Context, []weir.Charge, *weir.Receipt) error {
	return errors.New("connection refused")
}

func ExampleNew() {
	fallback, err := memstore.New(memstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	store, err := failover.New(deadStore{}, fallback, failover.Options{
		OnEvent: func(e failover.Event) { fmt.Println("failing:", e.Failing, e.Err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close(context.Background())

	window, _ := weir.ParseWindow("1 per minute by ip")
	policy := weir.Policy{Limiters: []weir.Limiter{
		// Counts in this process, unless the limiter declares another mode.
		{Name: "search", Windows: []weir.Window{window}},
		{Name: "login", Windows: []weir.Window{window}, OnStoreFailure: weir.FailDeny},
	}}
	decider, err := weir.New(policy, store, weir.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, limiter := range []string{"search", "search", "login"} {
		d, err := decider.Decide(context.Background(), weir.Request{Limiters: []string{limiter}, Keys: ip})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(limiter, d.Allowed, d.Outcome == weir.CountedLocally)
	}
	// Output:
	// failing: true connection refused
	// search true true
	// search false true
	// login false false
}
