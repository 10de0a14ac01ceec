package weircaddy

import (
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
)

// A lateKey finds a key whose placeholder is set by a handler that runs after the limiter, such as
// {http.auth.user.id} by basic_auth. It is empty at the decision, so its requests are counted by
// another key. The module cannot see the order of the handlers, but a request shows it.
type lateKey struct {
	name        string
	placeholder string
	logged      atomic.Bool
}

func (k *lateKey) value(r *http.Request) string {
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return ""
	}
	return repl.ReplaceAll(k.placeholder, "")
}

// emptyKeys returns the keys that have no value for a request, and that the log does not have yet.
func emptyKeys(keys []*lateKey, r *http.Request) (empty []*lateKey) {
	for _, k := range keys {
		if !k.logged.Load() && k.value(r) == "" {
			empty = append(empty, k)
		}
	}
	return empty
}

// warnOfLate logs, once for each key, that a later handler has given a value to a key that was
// empty when the request was decided.
func warnOfLate(empty []*lateKey, r *http.Request, log *slog.Logger) {
	for _, k := range empty {
		if k.value(r) != "" && !k.logged.Swap(true) {
			log.Warn("a key is empty when weir counts a request, because a later handler sets it: the request is counted without it, in the end by address",
				"key", k.name, "placeholder", k.placeholder,
				"hint", "if basic_auth sets it, add the global option: order weir after basic_auth; otherwise name the directive that sets it")
		}
	}
}
