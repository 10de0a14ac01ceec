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
	"github.com/weirlimit/weir/memstore"
)

// A guard is what every request passes before anything is looked at.
type guard struct {
	tokens *Tokens
	page   http.Handler
	hosts  []string // lower case
	own    atomic.Pointer[netip.Addr]
	origin http.CrossOriginProtection
	now    func() time.Time
	log    *slog.Logger

	attempts *weir.Decider // who sends wrong tokens
	store    *memstore.Store
	dates    headers.DateCache
}

func newGuard(o *Options) (*guard, error) {
	g := &guard{tokens: o.Tokens, page: o.Page, now: o.Now, log: o.Log}
	for _, name := range o.Hosts {
		g.hosts = append(g.hosts, strings.ToLower(strings.Trim(name, "[]")))
	}
	g.origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusForbidden, "cross_origin", "A page of another origin may change nothing here.")
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
	if g.attempts, err = weir.New(policy, g.store, weir.Options{Sources: []string{"ip"}}); err != nil {
		return nil, errors.Join(err, g.store.Close())
	}
	return g, nil
}

func (g *guard) close() error { return g.store.Close() }

// at says where the listener is.
func (g *guard) at(addr net.Addr) {
	if at, err := netip.ParseAddrPort(addr.String()); err == nil {
		own := at.Addr().Unmap().WithZone("")
		g.own.Store(&own)
	}
}

// content is what the page may do: what is of this origin, and nothing else.
const content = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// around puts the guard around next. Its context tells next who asks.
func (g *guard) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", content)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !g.knows(r) {
			announce(w)
			refuse(w, http.StatusMisdirectedRequest, "misdirected",
				"No name that is allowed here stands in Host; --admin-hosts names further ones.")
			return
		}
		g.origin.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/page/") {
				g.shell(w, r)
				return
			}
			if r.URL.Path == challengePath {
				methods{http.MethodGet: g.answerChallenge}.ServeHTTP(w, r)
				return
			}
			if name, ok := g.identify(w, r); ok {
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), asker{}, name)))
			}
		})).ServeHTTP(w, r)
	})
}

// asker is the context's key of who asks: the name of a token.
type asker struct{}

// who returns the name of the token that a request has shown.
func who(r *http.Request) string {
	name, _ := r.Context().Value(asker{}).(string)
	return name
}

// shell answers with the static page.
func (g *guard) shell(w http.ResponseWriter, r *http.Request) {
	if g.page == nil {
		refuse(w, http.StatusNotFound, "not_found", "There is no page here.")
		return
	}
	methods{http.MethodGet: g.page.ServeHTTP}.ServeHTTP(w, r)
}

// knows reports whether Host names this machine as its operator does. A page of a stranger's, whose name was made to resolve to this
// address (DNS rebinding), sends the stranger's name.
func (g *guard) knows(r *http.Request) bool {
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
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr) // of a listener that is on all addresses
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().WithZone("") == addr
}

// identify returns whose token the request shows. Where ok is false the request was refused.
func (g *guard) identify(w http.ResponseWriter, r *http.Request) (name string, ok bool) {
	token, given := bearer(r.Header.Values("Authorization"))
	if !given {
		g.unauthorized(w, "Send a token as Authorization: Bearer TOKEN; the server's start says where one is.")
		return "", false
	}
	name, known, err := g.tokens.find(token)
	switch {
	case err != nil:
		g.unreadable(w, err)
		return "", false
	case known:
		return name, true
	}
	g.wrong(w, r)
	return "", false
}

// unreadable answers 503, because the tokens cannot be read.
func (g *guard) unreadable(w http.ResponseWriter, err error) {
	g.log.Error("the admin tokens cannot be read, so every request is refused", "error", err)
	announce(w)
	refuse(w, http.StatusServiceUnavailable, "tokens_unavailable", "The tokens cannot be read, so every request is refused; the server's log says why.")
}

// wrong answers a request with an unknown token: 401, or 429 if its address has sent too many of them.
func (g *guard) wrong(w http.ResponseWriter, r *http.Request) {
	if g.tooMany(w, r) {
		return
	}
	g.log.Warn("a request with an unknown token came to the admin listener", "from", peer(r).String())
	g.unauthorized(w, "The token is unknown here or was revoked; 'weir admin create NAME' makes another.")
}

func (g *guard) unauthorized(w http.ResponseWriter, message string) {
	announce(w)
	refuse(w, http.StatusUnauthorized, "unauthorized", message)
}

// announce names the admin listener to whoever is refused.
func announce(w http.ResponseWriter) {
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
		return netip.IPv6Unspecified() // all who have none are one
	}
	return at.Addr().Unmap().WithZone("")
}

// tooMany counts a wrong token, and answers where its sender has sent too many.
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
	announce(w)
	refuse(w, http.StatusTooManyRequests, "rate_limited", "Too many wrong tokens from this address.")
	return true
}

// An address is a caller of which nothing else is known; of IPv6 its /64 counts.
type address netip.Addr

// AppendKey implements weir.Keys.
func (a address) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	if source != "ip" {
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
