package admin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/internal/owned"
	"github.com/weirlimit/weir/memstore"
)

// A guard checks the Host, the origin and the token of every request.
type guard struct {
	tokens *Tokens
	page   http.Handler
	hosts  []string // lower case
	own    atomic.Pointer[netip.Addr]
	origin http.CrossOriginProtection
	now    func() time.Time
	log    *slog.Logger

	attempts *weir.Decider // counts wrong tokens by address
	store    *memstore.Store
	dates    headers.DateCache
}

func newGuard(o *Options) (*guard, error) {
	g := &guard{tokens: o.Tokens, page: o.Page, now: o.Now, log: o.Log}
	for _, name := range o.Hosts {
		g.hosts = append(g.hosts, strings.ToLower(strings.Trim(name, "[]")))
	}
	g.origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusForbidden, "cross_origin", "Pages of other origins cannot make changes here.")
	}))
	var err error
	if g.store, err = memstore.New(memstore.Options{Memory: loginMemory, Now: o.Now, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	key, err := weir.ParseKey("ip")
	if err != nil {
		return nil, errors.Join(err, g.store.Close())
	}
	policy := weir.Policy{Limiters: []weir.Limiter{{
		Name: "admin-login", Windows: []weir.Window{{Limit: loginLimit, Per: time.Minute, Key: key}},
	}}}
	if g.attempts, err = weir.New(policy, g.store, weir.Options{Sources: weir.Sources()}); err != nil {
		return nil, errors.Join(err, g.store.Close())
	}
	return g, nil
}

func (g *guard) close() error { return g.store.Close() }

// setAddr sets the address of the listener.
func (g *guard) setAddr(addr net.Addr) {
	if at, err := netip.ParseAddrPort(addr.String()); err == nil {
		own := at.Addr().Unmap().WithZone("")
		g.own.Store(&own)
	}
}

// contentPolicy allows the page to use resources of this origin only.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// setSecurity sets the fields that every answer has.
func setSecurity(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// wrap returns a handler that checks requests before next, whose requests are identified.
func (g *guard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurity(w.Header())
		if !g.allowedHost(r) {
			setChallenge(w)
			refuse(w, http.StatusMisdirectedRequest, "misdirected",
				"The name in Host is not allowed here; --admin-hosts allows further names.")
			return
		}
		g.origin.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/page/") {
				g.servePage(w, r)
				return
			}
			if r.URL.Path == challengePath {
				methods{http.MethodGet: g.answerChallenge}.ServeHTTP(w, r)
				return
			}
			if r, ok := g.identified(w, r); ok {
				next.ServeHTTP(w, r)
			}
		})).ServeHTTP(w, r)
	})
}

// requesterKey is the context key for the request's token.
type requesterKey struct{}

// requester returns the token of an identified request; else one without a role.
func requester(r *http.Request) NamedToken {
	token, _ := r.Context().Value(requesterKey{}).(NamedToken)
	return token
}

// servePage answers with the static page.
func (g *guard) servePage(w http.ResponseWriter, r *http.Request) {
	if g.page == nil {
		refuse(w, http.StatusNotFound, "not_found", "There is no page at this path.")
		return
	}
	methods{http.MethodGet: g.page.ServeHTTP}.ServeHTTP(w, r)
}

// allowedHost reports whether Host is a name of this machine that its operator uses. After DNS
// rebinding, a foreign page that resolves to this address still sends its own name.
func (g *guard) allowedHost(r *http.Request) bool {
	host := r.Host
	if name, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return false
		}
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if host == "localhost" || host == "127.0.0.1" || host == "::1" || slices.Contains(g.hosts, host) {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	addr = addr.Unmap()
	if own := g.own.Load(); own != nil && *own == addr && !addr.IsUnspecified() {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok { // local is for a listener on all addresses
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().WithZone("") == addr
}

// identified returns the request with its token in the context (requester). If ok is false, it has
// refused the request.
func (g *guard) identified(w http.ResponseWriter, r *http.Request) (with *http.Request, ok bool) {
	secret, given := bearer(r.Header.Values("Authorization"))
	if !given {
		g.unauthorized(w, "Send a token as Authorization: Bearer TOKEN; the server prints at start-up where to find one.")
		return nil, false
	}
	token, known, err := g.tokens.find(secret)
	switch {
	case err != nil:
		g.tokensUnreadable(w, err)
		return nil, false
	case known:
		return r.WithContext(context.WithValue(r.Context(), requesterKey{}, token)), true
	}
	g.unknownToken(w, r)
	return nil, false
}

// tokensUnreadable logs err and answers 503, because the tokens cannot be read.
func (g *guard) tokensUnreadable(w http.ResponseWriter, err error) {
	attributes := []any{"error", err}
	if hint := owned.HintOf(err, ""); hint != "" {
		attributes = append(attributes, "hint", hint)
	}
	g.log.Error("the admin tokens cannot be read, so every admin request is refused", attributes...)
	setChallenge(w)
	refuse(w, http.StatusServiceUnavailable, "tokens_unavailable", "The tokens cannot be read, so every admin request is refused; the server's log has the reason.")
}

// unknownToken answers a request with an unknown token: 401, or 429 if its address has sent too
// many of them.
func (g *guard) unknownToken(w http.ResponseWriter, r *http.Request) {
	if g.tooMany(w, r) {
		return
	}
	g.log.Warn("the admin listener refused a request with an unknown token", "from", peer(r).String())
	g.unauthorized(w, "The token is unknown here or was revoked; 'weir admin create NAME --role ROLE' makes a new one.")
}

func (g *guard) unauthorized(w http.ResponseWriter, message string) {
	setChallenge(w)
	refuse(w, http.StatusUnauthorized, "unauthorized", message)
}

// setChallenge sets WWW-Authenticate, which marks the answer as the admin listener's.
func setChallenge(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="`+Realm+`"`)
}

// bearer returns the token of the one Authorization field.
func bearer(lines []string) (token string, ok bool) {
	if len(lines) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	token = strings.Trim(token, " ")
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

// peer returns the address of the connection's other end.
func peer(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.IPv6Unspecified() // all requests without an address count together
	}
	return at.Addr().Unmap().WithZone("")
}

// tooMany counts a wrong token, and answers 429 and returns true if its address has sent too many.
func (g *guard) tooMany(w http.ResponseWriter, r *http.Request) bool {
	d, err := g.attempts.Decide(r.Context(), weir.Request{Limiters: []string{"admin-login"}, Keys: address(peer(r))})
	if err != nil || d.Allowed {
		return false
	}
	b := d.Binding()
	h := w.Header()
	h.Set(headers.Limit, strconv.FormatInt(b.Limit, 10))
	h.Set(headers.Remaining, strconv.FormatInt(b.Remaining, 10))
	h.Set(headers.Reset, strconv.FormatInt(b.Reset, 10))
	h.Set(headers.RetryAfter, strconv.FormatInt(d.RetryAfter(), 10))
	h.Set(headers.Date, g.dates.At(d.Now))
	setChallenge(w)
	refuse(w, http.StatusTooManyRequests, "rate_limited", "Too many wrong tokens from this address.")
	return true
}

// An address is a caller of which only the address is known. An IPv6 address counts as its /64.
type address netip.Addr

// AppendKey implements weir.Keys.
func (a address) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	if weir.SourceOf(source).Kind != weir.Address {
		return dst, false
	}
	addr := netip.Addr(a)
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			addr = network.Addr()
		}
	}
	return append(dst, addr.AsSlice()...), true
}
