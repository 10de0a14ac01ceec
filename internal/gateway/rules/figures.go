package rules

import (
	"net/http"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/upstream"
)

// A statusTally counts answers that are seldom given, by their status.
type statusTally struct{ n [600 - 400]atomic.Int64 }

// add counts an answer with a status of 400 to 599.
func (t *statusTally) add(status int) {
	if i := status - 400; i >= 0 && i < len(t.n) {
		t.n[i].Add(1)
	}
}

// all returns what was counted, and a figure for each status that is named, counted or not.
func (t *statusTally) all(named ...int) map[int]int64 {
	all := make(map[int]int64, len(named))
	for _, status := range named {
		all[status] = t.n[status-400].Load()
	}
	for i := range t.n {
		if n := t.n[i].Load(); n > 0 {
			all[400+i] = n
		}
	}
	return all
}

// Malformed returns how many times the fast engine was sent what is no request, by the status of its answer. Nobody was charged for
// these, and they are in no access log. net/http does not tell of those that it refuses.
func (g *Gateway) Malformed() map[int]int64 {
	return g.malformed.all(http.StatusBadRequest, http.StatusExpectationFailed, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusNotImplemented, http.StatusHTTPVersionNotSupported)
}

// Unanswered returns how many requests of both engines were answered by the gateway because the upstream gave no answer that could be
// passed on, by the status of its own.
func (g *Gateway) Unanswered() map[int]int64 {
	return g.unanswered.all(upstreamUnavailable.status, upstreamTimeout.status)
}

// Upstreams returns how the addresses of the upstream are doing, in the order of Options; nil before Backend. Kept connections are
// those of the fast engine.
func (g *Gateway) Upstreams() []upstream.State {
	if g.pool == nil {
		return nil
	}
	return g.pool.States()
}
