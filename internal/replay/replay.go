// Package replay puts the requests of a log through the engine that serves, its clock driven by the log, and tells what became of
// them under a policy, or under two.
//
// A request is decided by the same code as in the gateway: target chooses what counts it, identity says who sent it, a weir.Decider
// over a memstore judges it. Where a log tells less than a request does:
//
//   - An OPTIONS request on a surface is taken for a CORS preflight.
//   - Nobody's credential can be verified: a session or a token is what a field of the log says it is, or there is none. So nobody is
//     known to be answered 401 either, and all spend what everyone shares.
//   - The agent is what the query or a field says, else the User-Agent: bodies are not logged. If the log has none of these, windows
//     that count by agent are unknown.
//
// Memory is bounded, whatever the log's length: see callers.go for what is forgotten then, and how the report says so.
//
//	read.go        the lines of logs
//	replay.go      one line after another         lane.go       one policy
//	paths.go       what counts it                 callers.go    what is remembered of each
//	caller.go      who sent it                    worst.go      those who are named
//	unknown.go     whose agent is not told
//	peers.go       whom it has seen last
//	wait.go        who waits, and is sent again   recommend.go  the lowest limit that touches few
//	difference.go  what a second policy changes   report.go     what is told
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
)

// Options are a Replay's settings. Only Policy is required.
type Options struct {
	Policy weir.Policy
	Name   string // of the policy: its file, or "the contract"

	Against     *weir.Policy // a second policy, to compare; nil: none
	AgainstName string

	// TrustedProxies, ClientIPHeader and IPv6Prefix are those of identity.Options. Who the proxies say the client is, stands in
	// field Forwarded.
	TrustedProxies []netip.Prefix
	ClientIPHeader string
	IPv6Prefix     int
	Forwarded      int // index into accesslog.Options.Fields of what ClientIPHeader held; -1: the log does not tell

	// Keys says which of accesslog.Options.Fields hold key sources, by source and index: session, token, agent, ip, or one of your
	// own. What such a field has is taken for verified; a line that has none of it was sent by somebody who has none.
	Keys map[string]int

	// Memory bounds all that is remembered, in bytes; 0 means 256 MiB. At least LeastMemory.
	Memory int64

	Paced    bool          // whether refused requests are sent again, each at its Reset, as callers who keep to the contract do
	Patience time.Duration // how long a paced caller waits at most; 0 means 1 h

	Touch float64 // the share of callers that a recommended limit may touch, 0 to 1; 0: none is recommended
	Worst int     // how many of the worst callers are told of each limiter, at most 100; 0 means 10

	// OnVerdict, if set, is told what becomes of each request, once for each policy. It must not keep what it is given.
	OnVerdict func(Verdict)
}

// A Verdict is what becomes of one request when it first comes.
type Verdict struct {
	Line     *accesslog.Line
	Against  bool // by the second policy
	Kind     target.Kind
	Limiter  string         // that is enforced and covers it; empty: none
	Decision *weir.Decision // nil where no limiter covers it
	Unknown  bool           // the log does not tell the agent, by which a window counts: that window is not in Decision
}

const (
	defaultMemory = 256 << 20
	// LeastMemory is the smallest Options.Memory.
	LeastMemory = 16 << 20
	mostWorst   = 100
)

// A Replay is a log on its way through. It is not for concurrent use.
type Replay struct {
	options  Options
	sources  *sources
	resolver *identity.Resolver
	caller   caller
	namer    namer
	seed     maphash.Seed
	key      []byte // room for one
	paths    paths

	now      int64  // the log's clock in Unix nanoseconds: it never goes back
	second   uint32 // that in seconds, as windows count
	timeline timeline
	log      Log
	ended    bool

	lanes     []*lane // of the policy, and of the second one
	addresses callers
	changes   *changes // nil without a second policy
}

// New checks the options and returns a Replay that waits for its first line. A policy with problems gives a *weir.PolicyError.
func New(o Options) (*Replay, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("new replay: %w", err)
	}
	r := &Replay{options: o, sources: newSources(&o), seed: maphash.MakeSeed(), now: math.MinInt64}
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
	r.addresses.keeps = touchedEither
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

// complete puts defaults in place of zeros.
func (o *Options) complete() error {
	o.Memory, o.Patience, o.Worst = cmp.Or(o.Memory, defaultMemory), cmp.Or(o.Patience, time.Hour), cmp.Or(o.Worst, 10)
	switch {
	case o.Memory < LeastMemory:
		return fmt.Errorf("%d bytes of memory are too few: at least %d (%d MiB) are needed, 0 means %d (%d MiB)",
			o.Memory, LeastMemory, LeastMemory>>20, defaultMemory, defaultMemory>>20)
	case o.Patience < 0 || o.Patience > mostPatience:
		return fmt.Errorf("patience %v: up to %v is allowed, 0 means 1h", o.Patience, mostPatience)
	case o.Worst < 0 || o.Worst > mostWorst:
		return fmt.Errorf("%d of the worst callers: 1 to %d are allowed, 0 means 10", o.Worst, mostWorst)
	case !(o.Touch >= 0 && o.Touch <= 1): // nor NaN
		return fmt.Errorf("a share of %v of the callers: 0 to 1 is allowed", o.Touch)
	case o.Forwarded < -1:
		return fmt.Errorf("forwarded field %d: an index is needed, or -1", o.Forwarded)
	}
	for source, field := range o.Keys {
		if field < 0 {
			return fmt.Errorf("field %d for key source %q: an index is needed", field, source)
		}
		if source == identity.Everyone {
			return fmt.Errorf("key source %q is the same for all callers: no field can hold it", source)
		}
	}
	return nil
}

// mostPatience bounds Options.Patience.
const mostPatience = 366 * 24 * time.Hour

// latest is the last time that a line may have, in Unix nanoseconds: a memstore's clock stands still where the longest window would end
// after what 32 bits hold, and who waits from now on must come to the end of it before.
const latest = (1<<32 - 1 - int64((weir.MaxPer+mostPatience)/time.Second)) * int64(time.Second)

// errEnded is what Add returns after Report.
var errEnded = errors.New("replay: the report was made already")

// Add judges the request of the next line. A line that is older than one before it is counted at the time of that one. After an error,
// which no line alone can cause, the Replay is of no more use.
func (r *Replay) Add(l *accesslog.Line) error {
	if r.ended {
		return errEnded
	}
	if len(l.Method) == 0 {
		r.log.Without++
		return nil
	}
	chosen, query, ok := r.choose(text(l.Method), text(l.Target), r.sources.namesAgent(l))
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
	r.caller.start(r.resolver, l, query)
	for i, lane := range r.lanes {
		if err := lane.add(&chosen.choices[i], &chosen.blind[i]); err != nil {
			return err
		}
		if r.options.OnVerdict != nil {
			r.tell(l, i, chosen.choices[i].Kind)
		}
	}
	r.noteAddress()
	return nil
}

// move has the clock show the time of a line, if it is not there already.
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

func (r *Replay) tell(l *accesslog.Line, index int, kind target.Kind) {
	lane := r.lanes[index]
	v := Verdict{Line: l, Against: index == 1, Kind: kind, Unknown: lane.verdict == unknown}
	if lane.covers != nil {
		v.Limiter, v.Decision = lane.covers.rules.Name, &lane.decision
	}
	r.options.OnVerdict(v)
}

// Marks of an address, beside known. touched says that the first policy refused it something.
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
		no.Example = string(peer[:min(len(peer), mostShown)])
	}
}

// Report ends the replay and tells what it saw. Requests that still wait are sent at their time, the clock moving on without the log.
// Log holds what can be told of the requests alone: the files, their formats and what is malformed are the reader's to add. The error is
// Add's.
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
		if l.waiting != nil {
			if err := l.waiting.until(math.MaxInt64); err != nil {
				return nil, err
			}
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

// outcome tells what became of the requests, but for their addresses.
func (l *lane) outcome() Outcome {
	o := Outcome{Name: l.name, Version: version(l.policy), Requests: l.requests, Unlimited: l.unlimited, Refused: l.refused, Unknown: l.unknown, Shadow: l.shadow,
		Limiters: []Limiter{}, Series: l.points.series(&l.replay.timeline), Shared: l.store.Stats().Shared}
	if l.waiting != nil {
		o.Delay = l.waiting.delay.tell()
	}
	for _, s := range l.ordered {
		o.Limiters = append(o.Limiters, s.tell(l))
	}
	return o
}

func (s *limiter) tell(l *lane) Limiter {
	out := Limiter{Name: s.rules.Name, Mode: s.rules.Mode.String(), Requests: s.requests, Refused: s.refused, Unknown: s.unknown,
		Windows: []Window{}, Series: s.points.series(&l.replay.timeline)}
	out.Worst = s.worst.callers(func(group int) *callers { return &s.windows[group].callers })
	if l.waiting != nil && s.rules.Mode == weir.Enforce {
		out.Delay = s.delay.tell()
	}
	for i := range s.windows {
		w := &s.windows[i]
		if s.leaders[i] == i {
			out.Doubt.add(&w.callers)
		}
		out.Doubt.Unknown = out.Doubt.Unknown || w.unknown > 0
		told := Window{Window: w.rules.String(), Limit: w.rules.Limit, Refused: w.refused, Unknown: w.unknown, Peak: int64(w.peak),
			Callers: w.callers.count(known), Touched: w.callers.count(touched)}
		if w.callers.estimates != nil {
			told.Forgotten = w.callers.estimates.broken
		}
		if l.replay.options.Touch > 0 && w.unknown == 0 {
			told.Recommend = w.callers.recommend(l.replay.options.Touch, max(s.rules.Cost, 1), w.peak)
		}
		out.Windows = append(out.Windows, told)
	}
	return out
}
