package redisstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
)

// Several processes count in one Redis, and so share each caller's budget. New
// succeeds even if the server is unreachable; then Take returns errors until it
// answers.
func Example() {
	route, err := weir.ParseRoute("/api/*")
	check(err)
	window, err := weir.ParseWindow("600 per minute by ip")
	check(err)
	policy := weir.Policy{Limiters: []weir.Limiter{{Name: "api", Routes: []weir.Route{route}, Windows: []weir.Window{window}}}}

	options, err := redisstore.Parse("redis://:password@redis.example.com:6379/0?prefix=api")
	check(err)
	store, err := redisstore.New(context.Background(), options)
	check(err)
	defer store.Close()
	// On a cluster: whether it can charge each limiter's windows together.
	check(store.Check(policy))

	decider, err := weir.New(policy, store, weir.Options{})
	check(err)
	_ = decider // pass it to httplimit.New
}

// String omits users and passwords, so that the options can be logged.
func ExampleParse() {
	options, err := redisstore.Parse("rediss://app:secret@redis-1.example.com,redis-2.example.com:7000?prefix=api")
	check(err)
	fmt.Println(options.Addresses)
	fmt.Println(options)
	// Output:
	// [redis-1.example.com:6379 redis-2.example.com:7000]
	// rediss://redis-1.example.com:6379,redis-2.example.com:7000?prefix=api
}

// A user of the server needs these rights, as for ACL SETUSER.
func ExampleACLRules() {
	fmt.Println("ACL SETUSER api on >password " + redisstore.ACLRules("api"))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
