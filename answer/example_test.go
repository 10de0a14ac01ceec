package answer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

// A sender is one of a message queue, as its broker has authenticated it.
type sender string

func (s sender) AppendKey(dst []byte, source string) ([]byte, bool) {
	if source != identity.Token {
		return dst, false
	}
	return append(dst, s...), true
}

// A door without HTTP: it names the limiter, and knows the sender already.
func Example() {
	window, _ := weir.ParseWindow("2 per minute by token")
	policy := weir.Policy{Limiters: []weir.Limiter{{Name: "imports", Windows: []weir.Window{window}}}}
	store, err := memstore.New(memstore.Options{})
	check(err)
	decider, err := weir.New(policy, store, weir.Options{})
	check(err)
	judge, err := answer.New(decider, answer.Options{Door: "queue"})
	check(err)

	question := answer.Question{Keys: sender("3fk2mq7a4c"), Limiters: []string{"imports"}}
	var a answer.Answer // used again for each message
	for range 3 {
		check(judge.Answer(context.Background(), &question, &a))
		fmt.Println(a.Outcome, a.Decision.Binding().Remaining)
	}
	fmt.Println(a.Status, string(a.Body()))
	// Output:
	// admitted 1
	// admitted 0
	// refused 0
	// 429 {"error":{"code":"rate_limited","message":"Too many requests. Please slow down."}}
}

// A door for HTTP that is not net/http: the caller is resolved, and the fields are appended to the
// response.
func Example_http() {
	route, _ := weir.ParseRoute("POST /v1/imports")
	window, _ := weir.ParseWindow("2 per minute by ip")
	policy := weir.Policy{Limiters: []weir.Limiter{{Name: "imports", Routes: []weir.Route{route}, Windows: []weir.Window{window}}}}
	store, err := memstore.New(memstore.Options{})
	check(err)
	decider, err := weir.New(policy, store, weir.Options{})
	check(err)
	who, err := identity.New(identity.Options{})
	check(err)
	judge, err := answer.New(decider, answer.Options{Door: "engine", Identity: who})
	check(err)

	var caller identity.Caller
	who.Start(&caller, from("192.0.2.7", "")) // an identity.Request of the engine's own
	question := answer.Question{Caller: &caller, Method: "POST", Path: "/v1/imports"}
	var a answer.Answer
	check(judge.Answer(context.Background(), &question, &a))
	for _, f := range a.AppendFields(nil)[:2] {
		fmt.Printf("%s: %s\n", f.Name, f.Value)
	}
	// Output:
	// X-RateLimit-Limit: 2
	// X-RateLimit-Remaining: 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
