package memstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// A caller is the key source "user" of one request.
type caller string

func (c caller) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	return append(dst, c...), source == "user"
}

// A Store counts for a Decider in the same process. It is empty at the start.
func Example() {
	route, err := weir.ParseRoute("POST /jobs")
	check(err)
	window, err := weir.ParseWindow("2 per minute by user")
	check(err)
	policy := weir.Policy{Limiters: []weir.Limiter{{Name: "jobs", Routes: []weir.Route{route}, Windows: []weir.Window{window}}}}

	store, err := memstore.New(memstore.Options{Memory: 8 << 20})
	check(err)
	defer store.Close()
	decider, err := weir.New(policy, store, weir.Options{Sources: []weir.Source{{Name: "user", Kind: weir.Credential}}})
	check(err)

	for _, user := range []caller{"ann", "ann", "ann", "ben"} {
		d, err := decider.Decide(context.Background(), weir.Request{Method: "POST", Path: "/jobs", Keys: user})
		check(err)
		fmt.Printf("%s: allowed %v, %d of %d left\n", user, d.Allowed, d.Binding().Remaining, d.Binding().Limit)
	}
	// Output:
	// ann: allowed true, 1 of 2 left
	// ann: allowed true, 0 of 2 left
	// ann: allowed false, 0 of 2 left
	// ben: allowed true, 1 of 2 left
}

// With a File the counts outlive the process. If another process uses the file, New
// returns an *InUseError.
func Example_file() {
	store, err := memstore.New(memstore.Options{File: "/var/lib/example/counts"})
	check(err)
	defer store.Close()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
