// Package replay runs the requests of a log through the engine that serves, on the log's clock, and
// reports the results under one policy or two.
//
// The same code as in the gateway decides a request: target chooses the limiter, identity finds the
// caller, and a weir.Decider over a memstore decides. A log holds less than a request:
//
//   - An OPTIONS request on a surface is taken for a CORS preflight.
//   - No credential can be verified: a session or token is the value of the log's field, if it has
//     one. A request without a value is counted as one that is answered 401 if its limiter requires
//     that credential. If the log has no such field, no request is known to be answered 401, and all
//     requests spend what everyone shares.
//   - The agent is the value of the query or a field, else the User-Agent, because bodies are not
//     logged. If the log has none of these, windows that count by agent are unknown.
//
// Memory is bounded for any log: callers.go describes what is forgotten then, and how the report
// shows it.
//
//	read.go        the lines of logs
//	replay.go      one line after another           lane.go       one policy
//	paths.go       the limiter of a request         callers.go    what is remembered of callers
//	caller.go      the sender of a request          worst.go      callers that are named
//	unknown.go     requests with an unknown agent  hosts.go       the host of a request
//	peers.go       a cache of addresses
//	flights.go     what a request has cost, and its end
//	wait.go        waiting and sending again        recommend.go  the lowest limit that touches few
//	difference.go  what a second policy changes     report.go     the result
package replay

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"net/netip"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/accesslog"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/policyfile"
)

// Options are a Replay's settings. Only Policy is required.
type Options struct {
	Policy weir.Policy
	Name   string // of the policy: its file, or "the contract"

	Against     *weir.Policy // a second policy, to compare; nil: none
	AgainstName string

	// TrustedProxies, ClientIPHeader and IPv6Prefix are those of identity.Options. The field
	// Forwarded holds the client's address from the proxies.
	TrustedProxies []netip.Prefix
	ClientIPHeader string
	IPv6Prefix     int
	// index into accesslog.Options.Fields of the value of ClientIPHeader; -1: the log does not have
	// it
	Forwarded int

	// Paths is how the server that is replayed reads paths: the zero value is target.Strict
	Paths target.Paths

	// Keys maps key sources, as policies spell them, to indexes into accesslog.Options.Fields:
	// session, token, agent, ip, header:X-Api-Key, or one of your own. PlanKey maps the plan. The
	// value of such a field counts as verified; without a value the caller has no such credential.
	Keys map[string]int

	// Cost returns what a request has cost by the log, in units, for limiters whose answers report
	// that; nil means accesslog.Line.Cost. Text that is no whole number is taken for none.
	Cost func(*accesslog.Line) []byte

	// Memory bounds everything that is remembered, in bytes; 0 means 256 MiB. At least MinMemory.
	Memory int64

	// whether refused requests are sent again, each at its Reset, as the contract asks of callers
	Paced    bool
	Patience time.Duration // how long a paced caller waits at most; 0 means 1 h

	// the share of callers that a recommended limit may touch, 0 to 1; 0: none is recommended
	Touch float64
	Worst int // how many of the worst callers of each limiter are reported, at most 100; 0 means 10

	// OnVerdict, if set, is called with the result of each request, once for each policy. It must
	// not keep its argument.
	OnVerdict func(Verdict)
}

// A Verdict is the result of one request when it first comes.
type Verdict struct {
	Line     *accesslog.Line
	Against  bool // by the second policy
	Kind     target.Kind
	Limiter  string         // the enforced limiter that covers it; empty: none
	Decision *weir.Decision // nil if no limiter covers it
	// the request is answered 401 although the decision admits it: it lacks the credential that the
	// limiter requires
	Rejected bool
	// the log has no agent, by which a window counts: that window is not in Decision
	Unknown bool
}

const (
	defaultMemory = 256 << 20
	// MinMemory is the smallest valid Options.Memory, except for 0.
	MinMemory = 16 << 20
	maxWorst  = 100
)

// A Replay processes a log. It is not safe for concurrent use.
type Replay struct {
	options  Options
	sources  *sources
	resolver *identity.Resolver
	caller   caller
	end      end // of the present line
	namer    namer
	seed     maphash.Seed
	key      []byte // buffer for a key
	paths    paths

	now      int64  // the log's clock in Unix nanoseconds; it never goes back
	second   uint32 // now in seconds, as windows count
	timeline timeline
	log      Log
	ended    bool

	lanes     []*lane // of the policy, and of the second one
	addresses callers
	hosts     hosts
	changes   *changes // nil without a second policy
}

// New checks the options and returns a Replay without lines. A policy with problems gives a
// *weir.PolicyError.
func New(o Options) (*Replay, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("new replay: %w", err)
	}
	r := &Replay{hosts: newHosts(&o), options: o, sources: newSources(&o), seed: maphash.MakeSeed(), now: math.MinInt64}
	if len(r.sources.all) > maxSources {
		return nil, fmt.Errorf("new replay: the policies count by %d key sources: at most %d are allowed", len(r.sources.all), maxSources)
	}
	var err error
	if r.resolver, err = identity.New(identity.Options{
		TrustedProxies: r.sources.trusted,
		ClientIPHeader: o.ClientIPHeader,
		IPv6Prefix:     o.IPv6Prefix,
		Now:            func() time.Time { return time.Unix(0, r.now) },
	}); err != nil {
		return nil, fmt.Errorf("new replay: %w", err)
	}
	var random [16]byte
	rand.Read(random[:]) // never fails
	r.namer = namer{k0: binary.LittleEndian.Uint64(random[:]), k1: binary.LittleEndian.Uint64(random[8:]), ipv6: cmp.Or(o.IPv6Prefix, 64)}
	r.caller.sources, r.caller.peers = r.sources, &peers{seed: r.seed}
	own := o.Memory / 8
	r.addresses.pool = newPool(own)
	share := o.Memory - own
	if o.Against != nil {
		share /= 2
	}
	if err := r.open(o.Name, o.Policy, share); err != nil {
		return nil, err
	}
	if o.Against == nil {
		return r, nil
	}
	if err := r.open(o.AgainstName, *o.Against, share); err != nil {
		return nil, errors.Join(err, r.lanes[0].store.Close())
	}
	r.changes = newChanges(r)
	r.addresses.protected = touchedEither
	return r, nil
}

func (r *Replay) open(name string, p weir.Policy, memory int64) error {
	l, err := r.newLane(name, p, memory)
	if err != nil {
		return fmt.Errorf("new replay: policy %q: %w", name, err)
	}
	r.lanes = append(r.lanes, l)
	return nil
}

// complete replaces zeros by defaults, and checks the rest.
func (o *Options) complete() error {
	o.Memory, o.Patience, o.Worst = cmp.Or(o.Memory, defaultMemory), cmp.Or(o.Patience, time.Hour), cmp.Or(o.Worst, 10)
	switch {
	case o.Memory < MinMemory:
		return fmt.Errorf("%d bytes of memory are too few: at least %d (%d MiB) are needed, 0 means %d (%d MiB)",
			o.Memory, MinMemory, MinMemory>>20, defaultMemory, defaultMemory>>20)
	case o.Patience < 0 || o.Patience > maxPatience:
		return fmt.Errorf("patience %v: up to %v is allowed, 0 means 1h", o.Patience, maxPatience)
	case o.Worst < 0 || o.Worst > maxWorst:
		return fmt.Errorf("%d of the worst callers: 1 to %d are allowed, 0 means 10", o.Worst, maxWorst)
	case !(o.Touch >= 0 && o.Touch <= 1): // also rejects NaN
		return fmt.Errorf("a share of %v of the callers: 0 to 1 is allowed", o.Touch)
	case o.Forwarded < -1:
		return fmt.Errorf("forwarded field %d: an index is needed, or -1", o.Forwarded)
	}
	for source, field := range o.Keys {
		if field < 0 {
			return fmt.Errorf("field %d for key source %q: an index is needed", field, source)
		}
		if weir.SourceOf(source).Kind == weir.Common {
			return fmt.Errorf("key source %q is the same for all callers: no field can hold it", source)
		}
		if !isInLog(source) {
			return fmt.Errorf("key source %q is part of the path: no other field can hold it", source)
		}
	}
	return nil
}

// maxPatience bounds Options.Patience.
const maxPatience = 366 * 24 * time.Hour

// latest is the latest valid time of a line, in Unix nanoseconds: a memstore's clock stops if the
// longest window would end after what 32 bits hold, and a caller that waits must reach its end
// before that.
const latest = (1<<32 - 1 - int64((weir.MaxSpan+maxPatience)/time.Second)) * int64(time.Second)

// errEnded is returned by Add after Report.
var errEnded = errors.New("replay: the report was made already")

// Add decides the request of the next line. A line that is older than an earlier one is counted at
// the time of that one. No line alone causes an error; after an error the Replay must not be used.
func (r *Replay) Add(l *accesslog.Line) error {
	if r.ended {
		return errEnded
	}
	if len(l.Method) == 0 {
		r.log.Without++
		return nil
	}
	chosen, query, ok := r.choose(text(l.Method), r.routedHost(l), text(l.Target), r.sources.namesAgent(l))
	if !ok {
		r.log.Without++
		return nil
	}
	if l.Time < 0 || l.Time > latest {
		r.log.Timeless++
		return nil
	}
	r.move(l.Time)
	r.log.Requests++
	r.noteHost(l)
	r.caller.start(r.resolver, l, query)
	r.end = r.options.endOf(l)
	for i, lane := range r.lanes {
		if err := lane.add(&chosen.choices[i], &chosen.agentless[i]); err != nil {
			return err
		}
		if r.options.OnVerdict != nil {
			r.report(l, i, chosen.choices[i].Kind)
		}
	}
	r.noteAddress()
	return nil
}

// move advances the clock to the time of a line.
func (r *Replay) move(at int64) {
	if r.log.Requests == 0 {
		r.log.From, r.log.To = at, at
	}
	r.log.From, r.log.To = min(r.log.From, at), max(r.log.To, at) // in nanoseconds until the end
	if at < r.now {
		r.log.OutOfOrder++
		r.log.Disorder = max(r.log.Disorder, r.now-at)
		return
	}
	r.now = at
	r.second = uint32(at / int64(time.Second))
	r.timeline.at(int64(r.second))
}

func (r *Replay) report(l *accesslog.Line, index int, kind target.Kind) {
	lane := r.lanes[index]
	v := Verdict{Line: l, Against: index == 1, Kind: kind, Unknown: lane.verdict == unknown, Rejected: r.caller.rejected}
	if lane.covers != nil {
		v.Limiter, v.Decision = lane.covers.rules.Name, &lane.decision
	}
	r.options.OnVerdict(v)
}

// Marks of an address, besides known. touched means that the first policy refused it something.
const (
	coveredFirst mark = 1 << (iota + 3)
	coveredSecond
	touchedSecond
	touchedEither
)

// noteAddress counts the present address under each policy that covers the request.
func (r *Replay) noteAddress() {
	var facts mark
	for i, l := range r.lanes {
		if l.verdict != uncovered {
			facts |= [...]mark{coveredFirst, coveredSecond}[i]
		}
		if l.verdict == refused {
			facts |= [...]mark{touched, touchedSecond}[i] | touchedEither
		}
	}
	if facts == 0 {
		return
	}
	var ok bool
	if r.key, ok = r.caller.AppendKey(r.key[:0], identity.IP); !ok {
		r.noteNoAddress()
	}
	at := r.caller.known
	if at != nil && r.changes == nil && facts&^mark(at.noted) == 0 { // nearly always
		return
	}
	hash := maphash.Bytes(r.seed, r.key)
	e := r.addresses.at(hash, r.second)
	e.requests = plus(e.requests, 1)
	r.addresses.markAll(e, facts)
	if at != nil {
		at.noted |= uint8(facts)
	}
	if r.changes != nil {
		r.changes.note(r, e, hash)
	}
}

func (r *Replay) noteNoAddress() {
	no := &r.log.NoAddress
	no.Requests++
	if no.Example == "" {
		peer := r.caller.logged()
		no.Example = string(peer[:min(len(peer), maxShown)])
	}
}

// Report ends the replay and returns its results. Requests that still wait are sent at their time,
// with the clock advancing beyond the log. Log holds only what the requests show: the caller of
// Report adds the files, their formats and malformed lines. The error is Add's.
func (r *Replay) Report() (*Report, error) {
	if r.ended {
		return nil, errEnded
	}
	r.ended = true
	out := &Report{Log: r.log}
	out.Log.Lacks = r.lacks()
	out.Log.From, out.Log.To = r.log.From/int64(time.Second), r.log.To/int64(time.Second)
	out.Log.Disorder = (r.log.Disorder + int64(time.Second) - 1) / int64(time.Second)
	for i, l := range r.lanes {
		if err := l.until(math.MaxInt64); err != nil {
			return nil, err
		}
		o := l.outcome()
		o.Callers = r.addresses.count([...]mark{coveredFirst, coveredSecond}[i])
		o.Touched = r.addresses.count([...]mark{touched, touchedSecond}[i])
		if i == 0 {
			out.Policy = o
		} else {
			out.Against = &o
		}
		if err := l.store.Close(); err != nil {
			return nil, fmt.Errorf("end of the replay: %w", err)
		}
	}
	if r.changes != nil {
		out.Difference = r.changes.difference(r)
	}
	return out, nil
}

// outcome returns the results of the requests, without their addresses.
func (l *lane) outcome() Outcome {
	o := Outcome{Name: l.name, Version: policyfile.Version(l.policy), Requests: l.requests, Unlimited: l.unlimited, Refused: l.refused, Denied: l.denied, Unauthenticated: l.rejected, Unknown: l.unknown, Shadow: l.shadow,
		Limiters: []Limiter{}, Series: l.points.series(&l.replay.timeline), Shared: l.store.Stats().Shared, EndedEarly: l.flights.early}
	if l.waiting != nil {
		o.Delay = l.waiting.delay.result()
	}
	for _, s := range l.ordered {
		o.Limiters = append(o.Limiters, s.result(l))
	}
	return o
}

func (s *limiter) result(l *lane) Limiter {
	out := Limiter{Name: s.rules.Name, Mode: s.rules.Mode.String(), Requests: s.requests, Refused: s.refused, Denied: s.denied, Unauthenticated: s.rejected, Penalized: s.punished, Unknown: s.unknown,
		Windows: []Window{}, Series: s.points.series(&l.replay.timeline)}
	out.Settled = s.settledResult()
	out.Worst = s.worst.callers(func(group int) *callers { return &s.windows[group].callers })
	if l.waiting != nil && s.rules.Mode == weir.Enforce {
		out.Delay = s.delay.result()
	}
	for i := range s.windows {
		w := &s.windows[i]
		if s.leaders[i] == i {
			out.Doubt.add(&w.callers)
		}
		out.Doubt.Unknown = out.Doubt.Unknown || w.unknown > 0
		window := Window{Window: w.rules.String(), Limit: w.rules.Limit, Refused: w.refused, Unknown: w.unknown, Peak: int64(w.peak),
			Callers: w.callers.count(known), Touched: w.callers.count(touched)}
		if w.callers.estimates != nil {
			window.Forgotten = w.callers.estimates.broken
		}
		if l.replay.options.Touch > 0 && w.unknown == 0 {
			window.Recommend = w.callers.recommend(l.replay.options.Touch, w.costOf(max(s.rules.Cost, 1)), w.peak)
		}
		out.Windows = append(out.Windows, window)
	}
	return out
}
