package edge

import (
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
)

// An observer watches a server: it appends to the hooks that it needs, and adds what it has opened
// to the parts.
type observer func(*observing) error

// An observing is what an observer may use when it is opened.
type observing struct {
	*Config
	store    *openStore
	operated bool // whether there is an admin listener
	hooks    *hooks
	own      *parts
}

// observers are opened in this order, after the store and before everything that calls them. To add
// one, write its file and add it here.
var observers = []observer{
	openMetrics,
	openRecorder,
	openSettled,
	openDenials,
	openEvents,
	openAccessLog,
	openTracer,
}

// hooks are the points at which observers are called, in the order in which they were appended.
// Hooks that are called for requests must not block, and must not keep their argument.
type hooks struct {
	decisions   []func(answer.Observation)
	shadows     []func(weir.Shadowed)
	candidates  []func(weir.Compared)
	crossings   []func(weir.Crossed)
	settled     []func(weir.Settled)
	spent       []func(answer.Spending)
	held        []func(l *weir.Limiter, slots int64)
	takes       []func(time.Duration, error) // of a store outside this process
	storeEvents []func(failover.Event)

	// policies are called at the start, and after every attempt to replace the policy.
	policies        []func(live.State)
	candidateLoaded []func()

	gateway   []func(*gateway.Options) // before the gateway is made
	admin     []func(*admin.Options)   // before the admin API is made
	listeners []func(name string, l net.Listener) net.Listener
	opened    []func(*Server) // when all parts are open

	rows []Row // for Server.Rows

	// derive derives a secret for a label from the one of openDenials. It has no bytes while it is
	// not known.
	derive func(label string) (func() []byte, error)
	events func() map[string]int64 // the totals of openEvents

	// denial seals the facts of a refusal into its id (openDenials).
	denial func(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string
	// register adds metrics of a part (openMetrics).
	register func(prometheus.Collector) error
	// accessLog has a line for each request (openAccessLog); nil: none.
	accessLog *gateway.AccessLog
}

// each returns a function that calls all of them; nil if there is none.
func each[T any](all []func(T)) func(T) {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return func(argument T) {
		for _, call := range all {
			call(argument)
		}
	}
}

// eachOf is each for functions with two arguments.
func eachOf[T, U any](all []func(T, U)) func(T, U) {
	if len(all) == 0 {
		return nil
	}
	return func(one T, other U) {
		for _, call := range all {
			call(one, other)
		}
	}
}

// policyChanged calls the policies hooks.
func (h *hooks) policyChanged(s live.State) {
	for _, call := range h.policies {
		call(s)
	}
}

// listener returns l as the listeners hooks have wrapped it.
func (h *hooks) listener(name string, l net.Listener) net.Listener {
	for _, wrap := range h.listeners {
		l = wrap(name, l)
	}
	return l
}
