// Package rules is what the gateway's engines share: every decision about a request that is not
// HTTP's own. The rules know values (a method, a path, a list of fields, a status) and no engine,
// so each engine asks the same functions in the same order, and no two of them differ in what they
// forward, withhold, answer or log.
//
//	rules.go      the rules of one gateway, made from its options
//	limits.go     how long and how much
//	site.go       the upstreams, by host
//	target.go     how a request's target is read
//	route.go      what a request asks for, and which of our own answers it gets
//	answers.go    the answers of our own: one table
//	withheld.go   the fields of a request that a backend never gets: one table
//	forwarding.go the fields by which an upstream learns who is calling: one table
//	keys.go       the places of tokens that a backend does not get
//	clientcert.go the certificates of clients: which are no longer valid, which are refused
//	fields.go     the fields of one hop, the limiter's own fields, lists of names
//	onward.go     what an upstream receives of a request, and which of its answers make no sense
//	cors.go       browsers on other origins
//	health.go     what load balancers ask
//	outage.go     what the log has while an upstream does not answer
//	counts.go     what is under way, and what went wrong, also in an engine itself
//	record.go     what is known of a request when it is over
//	line.go       one line of the access log
//	logfields.go  the fields of a line that can be switched off
//	accesslog.go  the access log, written by a goroutine of its own
package rules

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/notice"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/wire"
)

// Options are what rules are made from. Decider and Identity are required. They mean what they mean
// in the gateway's options, which document them.
type Options struct {
	Decider        *weir.Decider
	Identity       *identity.Resolver
	Sites          []*Site // none: the backend is a handler
	CORSOrigins    []string
	IETF           bool
	TrustedProxies []netip.Prefix
	Ready          func(context.Context) error
	Degraded       func() error
	AccessLog      *AccessLog
	Log            *slog.Logger // nil: slog.Default()
	Credentials    map[string]string
	Denial         func(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string
	ValueHash      func(value string) (hash uint64, ok bool)
	CallerHash     func(who []byte) (hash uint64, ok bool)
	LogFields      LogFields
	Served         func(Served)
	Observe        func(answer.Observation)
	Spent          func(answer.Spending)
	HideTokens     []identity.Place
	Forwarded      []string
	Paths          target.Paths
	Methods        []string
	Limits         Limits

	// Covers, if set, reports whether a TLS connection whose client asked for a name (SNI; empty:
	// for none) may carry requests for a host. It must not block.
	Covers func(asked, host string) bool

	// Holds is set if clients are asked for certificates. It reports whether one of the chains that
	// verified when a connection began still does at now. It must not block.
	Holds func(chains [][]*x509.Certificate, now time.Time) bool

	// Judged, if set, is called by net/http's engine for each request whose caller the limiter has
	// judged (httplimit.Options.Judged).
	Judged func(http.ResponseWriter, *identity.Caller, *answer.Answer)
	// Ended, if set, is called by it when a request has ended (httplimit.Options.Ended).
	Ended func(w http.ResponseWriter, reserved, used int64)
}

// Rules are the rules of one gateway, and what its engines count together. Make them with New. They
// are safe for concurrent use.
type Rules struct {
	Options
	Counts

	Limit      *httplimit.Middleware
	CORS       *CORS
	ownCORS    *CORS       // under a policy of one's own; nil: nothing is said to browsers
	Pace       pace.Limits // of a client that sends a request
	AnswerPace pace.Limits // of a client that takes an answer

	// Draining is set when the gateway wants no new requests, and Lingering while it asks the
	// clients of kept connections to go elsewhere, by closing each connection after its next
	// answer.
	Draining, Lingering atomic.Bool

	// TakenOver are the connections of websockets, which a drain does not wait for but closes last.
	TakenOver pace.Set

	hidden        hiddenTokens
	refused       notice.Limit // of certificates that do not verify
	forwarded     forwardings
	methods       string // all that are accepted, as Allow has them
	unknownMethod Answer
	serverOptions Answer
	sites         weir.HostTable[*Site]
	dates         headers.DateCache
	ready         readiness
	forwarders    notice.Peers // that are not trusted
}

// New checks the options and returns their rules, with defaults for limits that are not set.
func New(o Options) (*Rules, error) {
	o.Limits = o.Limits.WithDefaults(len(o.Sites) > 0)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	r := &Rules{Options: o, Pace: o.Limits.pace(), hidden: newHiddenTokens(o.HideTokens)}
	r.AnswerPace = r.Pace.OfAnswers()
	err := r.addSites(o.Sites)
	if err != nil {
		return nil, err
	}
	if r.forwarded, err = newForwardings(o.Forwarded); err != nil {
		return nil, err
	}
	for _, m := range o.Methods {
		if err = CheckMethod(m); err != nil {
			return nil, fmt.Errorf("new gateway: %w", err)
		}
	}
	r.methods = strings.Join(append([]string{AllMethods}, o.Methods...), ", ")
	r.unknownMethod, r.serverOptions = unknownMethod(r.methods), serverOptions(r.methods)
	if r.CORS, err = newCORS(o.CORSOrigins, o.limitFields()...); err != nil {
		return nil, err
	}
	r.CORS.methods = r.methods
	if len(o.CORSOrigins) > 0 {
		own := *r.CORS
		own.shares = true
		r.ownCORS = &own
	}
	r.Limit, err = httplimit.New(o.Decider, httplimit.Options{
		Identity:    o.Identity,
		IETF:        o.IETF,
		Credentials: o.Credentials,
		Denial:      o.Denial,
		Observe:     o.Observe,
		Spent:       o.Spent,
		Judged:      o.Judged,
		Ended:       o.Ended,
	})
	if err != nil {
		return nil, fmt.Errorf("new gateway: %w", err)
	}
	return r, nil
}

// limitFields returns the fields of limited answers that are switched on, beside the contract's.
func (o *Options) limitFields() []string {
	var fields []string
	if o.IETF {
		fields = append(fields, headers.RateLimit, headers.Policy)
	}
	if o.Denial != nil {
		fields = append(fields, headers.Denial)
	}
	return fields
}

// Trusts reports whether a peer is a trusted proxy.
func (r *Rules) Trusts(peer netip.Addr) bool { return r.Identity.Trusts(peer) }

// IsForwarder reports whether the field of a name, in any case, is one by which proxies report the
// caller's address.
func IsForwarder(name string) bool {
	return wire.EqualFold(name, ForwardedFor) || wire.EqualFold(name, Forwarded)
}

// NoteForwarder is called for each request with a field that IsForwarder. It logs that a peer which
// is not trusted sends one: if it is a proxy, all clients behind it are counted as one address.
// Callers can send the field too, so only a few peers are named, each once. peer is the other side
// of the connection; the zero Addr: it has no address.
func (r *Rules) NoteForwarder(peer netip.Addr, field string) {
	if r.Trusts(peer) || !r.forwarders.Allow(peer) {
		return
	}
	field = textproto.CanonicalMIMEHeaderKey(field) // HTTP/2 has small letters
	why := "a peer that is not in --trusted-proxies sends " + field + ", which is not believed: if it is a proxy of yours, add it, " +
		"since all its clients are counted as one address; a caller may send the field too"
	if len(r.TrustedProxies) == 0 {
		why = "a request came with " + field + ", and no proxy is trusted to send it: if a proxy is in front of this server, " +
			"all its clients are counted as one address until it is named in --trusted-proxies"
	}
	log := r.Log
	if peer.IsValid() {
		log = log.With("peer", peer.String())
	}
	log.Warn(why)
}

// Date returns the Date of an answer that no limiter covers. unix is the time in seconds.
func (r *Rules) Date(unix int64) string { return r.dates.At(unix) }
