// Package weircaddy limits requests in Caddy by a policy of Weir. It is a Caddy module: build Caddy
// with it, and write into a site of the Caddyfile
//
//	weir {
//		policy /etc/caddy/policy.yaml
//	}
//
// The files follow one request:
//
//	handler.go    Handler: its settings, how it is provisioned, and one request
//	caddyfile.go  the directive weir
//	client.go     the client's address, by Caddy's trusted proxies
//	late.go       keys that a handler after the limiter sets
//	writer.go     errors that Caddy answers after all handlers
//	store.go      the stores, which outlive a reload
//	metrics.go    Weir's figures in Caddy's /metrics
package weircaddy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/policyfile"
)

// A Handler is the HTTP handler http.handlers.weir. Its counts outlive a reload of Caddy's
// configuration.
type Handler struct {
	// Policy is the policy's file. A change of the file is in force within three seconds; one that
	// is not valid is logged, and the policy before stays. A policy that is not valid when the
	// configuration is loaded rejects the configuration.
	Policy string `json:"policy"`

	// Store is where requests are counted. If it is empty, that is the memory of this process:
	// handlers with the same policy file share counts, and no others. redis://HOST:PORT (as in
	// weir serve --store) shares them with all that count there by the same limiter names.
	Store string `json:"store,omitempty"`

	// Counts is a file that keeps the counts of Store memory through a restart of Caddy, on Linux.
	// If it is empty, they end with the process. One process at a time can use it, and the handlers
	// of one policy, which all have the same. A reload that changes it begins with its counts.
	Counts string `json:"counts,omitempty"`

	// IETF adds the fields RateLimit and RateLimit-Policy.
	IETF bool `json:"ietf,omitempty"`

	// TokenFile has the API tokens of the key source "token" (weir serve --token-file).
	TokenFile string `json:"token_file,omitempty"`

	// TokenFrom is where requests have tokens; if it is empty, that is Authorization: Bearer.
	TokenFrom []string `json:"token_from,omitempty"`

	// Keys are key sources that the policy can count by, by name.
	Keys map[string]KeySource `json:"keys,omitempty"`

	limit   *httplimit.Middleware
	decider *weir.Decider
	policy  *live.Policy
	version atomic.Pointer[string] // of the policy in force, for denial ids
	pooled  []any                  // the keys of what the handler uses of the pool
	stop    context.CancelFunc
	watches sync.WaitGroup
	doubt   clientDoubt
	late    []*lateKey // one for each verified key
}

// A KeySource is a value of a request that windows can count by.
type KeySource struct {
	// Placeholder has the value, such as {http.auth.user.id}. A request for which it is empty is
	// counted by the next alternative of the window's key, in the end by its address. It is empty
	// if the handler that sets it comes after this one: the directive weir is before basic_auth
	// unless the global option says otherwise (order weir after basic_auth).
	Placeholder string `json:"placeholder"`
	// Verified means that a client cannot choose the value: another handler has verified it. If it
	// is false, windows must join it with a source that is, as in "by tenant+ip".
	Verified bool `json:"verified,omitempty"`
}

// CaddyModule implements caddy.Module.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.weir", New: func() caddy.Module { return new(Handler) }}
}

// Provision implements caddy.Provisioner.
func (h *Handler) Provision(ctx caddy.Context) error {
	repl := caddy.NewReplacer() // {env.NAME} and {file.PATH}
	for _, text := range []*string{&h.Policy, &h.Store, &h.Counts, &h.TokenFile} {
		*text = repl.ReplaceAll(*text, "")
	}
	if h.Policy == "" {
		return errors.New("weir: no policy: name its file, such as: policy /etc/caddy/policy.yaml")
	}
	path, err := filepath.Abs(h.Policy)
	if err != nil {
		return fmt.Errorf("weir: policy: %w", err)
	}
	h.Policy = path
	log := ctx.Slogger()
	h.doubt.log = log
	who, err := h.resolver(func(err error) {
		log.Error("the token file cannot be read again; the tokens before stay", "error", err)
	})
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	reader := policyfile.Reader{Sources: who.Sources(), Messages: answer.Messages()}
	start, err := live.Load(reader, path)
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	store, err := h.openStore(ctx, log)
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	if err := store.check(start.Policy); err != nil {
		return fmt.Errorf("weir: count in %s: %w", store.name, err)
	}
	if err := h.decide(ctx, who, start, store); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	h.warn(log, who, &start.Policy)
	h.policy, err = live.New(start, func(p weir.Policy) error {
		err := h.decider.Swap(p)
		if err == nil {
			h.warn(log, who, &p)
		}
		return err
	}, live.Options{
		Reader: reader, Check: store.check, Log: log,
		OnState: func(s live.State) { h.version.Store(&s.Version) },
	})
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	watching, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.watches.Go(func() { h.policy.Watch(watching) })
	return nil
}

// warn logs which limiters of a policy require or count by a credential that nothing verifies: they
// let everybody in.
func (h *Handler) warn(log *slog.Logger, who *identity.Resolver, p *weir.Policy) {
	for _, credential := range weir.Credentials() {
		var names []string
		for i := range p.Limiters {
			l := &p.Limiters[i]
			if !who.Verifies(credential) && (l.Requires == credential || l.CountsBy(credential)) {
				names = append(names, l.Name)
			}
		}
		if len(names) > 0 {
			log.Warn("limiters require or count by a credential that is not verified: their requests are counted by IP address and forwarded",
				"policy", h.Policy, "limiters", strings.Join(names, ", "), "credential", credential)
		}
	}
}

// resolver returns what tells callers apart. It trusts no proxy: the peer of a request is the
// client, as Caddy knows it.
func (h *Handler) resolver(report func(error)) (*identity.Resolver, error) {
	o := identity.Options{}
	if h.TokenFile != "" {
		tokens, err := identity.OpenTokenFile(h.TokenFile, identity.TokenFileOptions{Failed: report})
		if err != nil {
			return nil, err
		}
		o.Tokens = tokens
	} else if len(h.TokenFrom) > 0 {
		return nil, errors.New("token_from has no effect without tokens to verify: add token_file FILE")
	}
	for _, text := range h.TokenFrom {
		place, err := identity.ParsePlace(text)
		if err != nil {
			return nil, fmt.Errorf("token_from: %w", err)
		}
		o.TokenFrom = append(o.TokenFrom, place)
	}
	for name, key := range h.Keys {
		kind := weir.Chosen
		if key.Verified {
			kind = weir.Credential
		}
		if !strings.Contains(key.Placeholder, "{") {
			return nil, fmt.Errorf("key %s: %q is no placeholder, such as {http.auth.user.id}", name, key.Placeholder)
		}
		late := &lateKey{name: name, placeholder: key.Placeholder}
		if key.Verified {
			h.late = append(h.late, late)
		}
		o.Extra = append(o.Extra, httplimit.KeyFunc(name, kind, func(r *http.Request) (string, bool) {
			value := late.value(r)
			return value, value != ""
		}))
	}
	return identity.New(o)
}

// decide makes what limits requests.
func (h *Handler) decide(ctx caddy.Context, who *identity.Resolver, start *live.Document, s *store) error {
	figures, err := h.openMetrics(ctx)
	if err != nil {
		return err
	}
	version := live.Version(start.Policy)
	h.version.Store(&version)
	denial, err := s.denialIDs(func() string { return *h.version.Load() })
	if err != nil {
		return err
	}
	h.decider, err = weir.New(start.Policy, s.counts, weir.Options{
		Sources: who.Sources(), OnShadow: figures.Shadow, OnSettled: figures.Settled, OnHeld: figures.Held,
	})
	if err != nil {
		return err
	}
	h.limit, err = httplimit.New(h.decider, httplimit.Options{Identity: who, IETF: h.IETF, Observe: figures.Observe, Denial: denial})
	return err
}

// Cleanup implements caddy.CleanerUpper.
func (h *Handler) Cleanup() error {
	if h.stop != nil {
		h.stop()
		h.watches.Wait()
	}
	var errs []error
	if h.decider != nil {
		ctx, cancel := context.WithTimeout(context.Background(), maxGiveBack)
		defer cancel()
		h.decider.Close(ctx)
	}
	for _, key := range h.pooled {
		_, err := pool.Delete(key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (failed error) {
	peer := r.RemoteAddr
	r.RemoteAddr = h.doubt.client(r)
	defer func() { r.RemoteAddr = peer }()
	x := &writer{ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w}}
	empty := emptyKeys(h.late, r)
	h.limit.Wrap(http.HandlerFunc(func(limited http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = peer
		if failed = next.ServeHTTP(limited, r); failed != nil {
			x.withhold(limited, failed)
		}
		warnOfLate(empty, r, h.doubt.log)
	})).ServeHTTP(x, r)
	return failed
}

// The interfaces that Caddy asks for.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
