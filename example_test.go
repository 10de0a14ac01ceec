package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// A user is the Keys of a caller that is known by name.
type user string

func (u user) AppendKey(dst []byte, source string) ([]byte, bool) {
	if source != "user" {
		return dst, false
	}
	return append(dst, u...), true
}

func ExampleNew() {
	route, _ := weir.ParseRoute("POST /orders*")
	window, _ := weir.ParseWindow("100 per hour by user")
	policy := weir.Policy{Limiters: []weir.Limiter{
		{Name: "orders", Routes: []weir.Route{route}, Windows: []weir.Window{window}},
		{Name: "Refunds", Routes: []weir.Route{route}},
	}}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = weir.New(policy, store, weir.Options{Sources: []weir.Source{{Name: "user", Kind: weir.Credential}}})

	var problems *weir.PolicyError
	if errors.As(err, &problems) {
		for _, p := range problems.Problems {
			fmt.Println(p.Message)
		}
	}
	// Output:
	// name "Refunds": lower-case letters, digits and dashes are allowed, a letter first, at most 64 characters
	// no windows: at least one is needed, such as: 60 per minute by ip; or in_flight, such as: 10 by ip
	// route "POST /orders*" is unreachable: limiter "orders" has "POST /orders*" already (letter case and trailing slashes make no difference)
}

func ExampleDecider_Decide() {
	route, _ := weir.ParseRoute("POST /orders*")
	minute, _ := weir.ParseWindow("2 per minute by user")
	hour, _ := weir.ParseWindow("100 per hour by user")
	policy := weir.Policy{Limiters: []weir.Limiter{
		{Name: "orders", Routes: []weir.Route{route}, Windows: []weir.Window{minute, hour}},
	}}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	decider, err := weir.New(policy, store, weir.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		d, err := decider.Decide(context.Background(), weir.Request{Method: "POST", Path: "/orders/7", Keys: user("ann")})
		if err != nil {
			log.Fatal(err)
		}
		binding := d.Binding()
		fmt.Println(d.Allowed, binding.Limit, binding.Remaining)
	}
	// Output:
	// true 2 1
	// true 2 0
	// false 2 0
}
