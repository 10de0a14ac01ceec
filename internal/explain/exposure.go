package explain

import (
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
)

// How many requests a policy lets pass at most: what a backend has to sustain, or a bill can reach.

// A Party is a group of callers whose requests are added up: all requests that have the same value
// of a key source in common, and may differ in everything else.
type Party struct {
	Name   string
	Source string // empty: the requests have nothing in common
}

// Parties returns the groups that exposure of a policy is reported for. One address is what a
// server counts as one: a network of IPv6 (D12). A claim is a party if the policy counts by it: all
// sessions with one value of it. A certificate is one if the policy counts by it or requires it.
// What a caller chooses makes no party: many callers can choose the same value.
func Parties(p weir.Policy) []Party {
	var all []Party
	for _, s := range weir.Sources() {
		if s.Kind == weir.Address || s.Kind == weir.Credential && s.From == "" && (!s.OfConnection || uses(p, s.Name)) {
			all = append(all, Party{s.About, s.Name})
		}
	}
	for i := range p.Limiters {
		for _, w := range p.Limiters[i].Rows() {
			for _, source := range slices.Concat(w.Key...) {
				party := Party{"one " + source, source}
				if weir.SourceOf(source).From != "" && !slices.Contains(all, party) {
					all = append(all, party)
				}
			}
		}
	}
	return append(all, Party{Name: "everybody"})
}

// uses reports whether a limiter of p counts by a credential or requires it.
func uses(p weir.Policy, credential string) bool {
	return slices.ContainsFunc(p.Limiters, func(l weir.Limiter) bool {
		counts := func(w weir.Window) bool { return w.Key.Uses(credential) }
		return l.Requires == credential || slices.ContainsFunc(l.Rows(), counts)
	})
}

// bounds reports whether a key counts all requests of the party together.
func (p Party) bounds(k weir.Key) bool {
	return !slices.ContainsFunc(k, func(part weir.Part) bool { return !p.fixes(part) })
}

// fixes reports whether a part of a key has one value for all requests of the party: it counts by
// what they have in common, or by what all callers share. It does not if it could count by anything
// else, because a caller can change its address, choose its agent and HTTP fields, and have any
// number of sessions, tokens and certificates. A request carries one credential, so a caller with a
// session sends no token: the help says that this assumes tokens in Authorization alone. It may
// carry any of them on a connection with a certificate. One session has one value of each claim, or
// none.
func (p Party) fixes(part weir.Part) bool {
	for _, source := range part {
		switch {
		case source == p.Source || kind(source) == weir.Common:
			return true
		case credential(source) == "" || credential(p.Source) == "" || together(source, p.Source):
			return false
		case credential(source) != credential(p.Source) || p.Source == credential(p.Source):
			continue
		default:
			return false
		}
	}
	// The address is counted instead of a missing credential (D16).
	return kind(p.Source) == weir.Address
}

// Served reports whether a limiter admits requests of the party at all, if credentials are
// verified: a limiter that requires another credential answers them 401.
func (p Party) Served(l *weir.Limiter) bool {
	needed := credential(p.Source)
	return needed == "" || l.Requires == "" || l.Requires == needed || together(needed, l.Requires)
}

// together reports whether a request may have both of two credentials, or what is read from them.
func together(one, other string) bool {
	return weir.SourceOf(one).OfConnection != weir.SourceOf(other).OfConnection
}

func credential(source string) string { return weir.SourceOf(source).Credential() }

func kind(source string) weir.SourceKind { return weir.SourceOf(source).Kind }

// A Bound is the maximum number of requests that pass in some span.
type Bound struct {
	Requests int64 `json:"requests"`
	Exact    bool  `json:"exact"` // a caller can reach it; otherwise the maximum may be lower
	// By is the override or plan whose limit this is, as in "plan gold"; empty: a window's own.
	By string `json:"by,omitempty"`
}

// String returns the number, behind "≤" if it is not exact.
func (b *Bound) String() string {
	if b.Exact {
		return strconv.FormatInt(b.Requests, 10)
	}
	return "≤" + strconv.FormatInt(b.Requests, 10)
}

// Exposure returns the maximum number of the party's requests that pass in any span of that many
// seconds, on the clock that counts. If the limiter counts by status, it is the number of those
// that are counted. It is nil if no window bounds them, which no window does whose units are given
// back as a response tells.
func Exposure(l *weir.Limiter, p Party, span int64) *Bound {
	return exposure(l, p, span, func(w *weir.Window) int64 {
		switch {
		case w.Requests:
			return 1
		case l.Actual != (weir.Reading{}):
			return 0
		case l.Reserve.From != (weir.Reading{}):
			return l.Reserve.Units(0, max(l.Cost, 1))
		}
		return max(l.Cost, 1)
	})
}

// ExposureInUnits returns the maximum of units that the party's requests which pass in such a span
// cost, without what they cost beyond their reservations. It is nil if no window bounds them.
func ExposureInUnits(l *weir.Limiter, p Party, span int64) *Bound {
	b := exposure(l, p, span, func(w *weir.Window) int64 {
		if w.Requests {
			return 0
		}
		return 1
	})
	if b != nil && b.Requests > 0 {
		b.Exact = false // a request reserves several at once
	}
	return b
}

// exposure returns the bound of what each window admits limit/cost of. A window of cost 0 bounds
// nothing.
func exposure(l *weir.Limiter, p Party, span int64, cost func(*weir.Window) int64) *Bound {
	if !p.Served(l) {
		return &Bound{0, true, ""}
	}
	if l.Mode == weir.Shadow || len(l.Exempt) > 0 {
		return nil
	}
	var bounding []boundingWindow
	tightest, lowest := 0, int64(-1)
	raised, by := false, ""
	for _, w := range l.Windows {
		if !p.bounds(w.Key) || cost(&w) == 0 {
			continue
		}
		limit, raisedBy := highest(l, p, w)
		if limit > w.Limit {
			w.Limit, raised = limit, true
		} else {
			raisedBy = ""
		}
		ends, err := weir.NewEnds(l, &w)
		if err != nil {
			return nil // not a valid policy
		}
		free := len(l.Count.Statuses) > 0 || l.Actual != (weir.Reading{}) && !w.Requests
		b := boundingWindow{w, int64(w.Per / time.Second), cost(&w), ends, free}
		if n := b.maxIn(span); lowest < 0 || n < lowest {
			lowest, tightest, by = n, len(bounding), raisedBy
		}
		bounding = append(bounding, b)
	}
	if lowest < 0 {
		return nil
	}
	return &Bound{lowest, !raised && attained(bounding, &bounding[tightest], span), by}
}

// maxIn returns the maximum number of requests that one window lets pass in any span of that many
// seconds.
//
// A window admits n = limit/cost requests, starts at the whole second of its first request and ends
// P seconds later. A real span of T seconds touches T+1 whole seconds. So if P divides T, T/P+1
// windows can be used up in it: the first one late in its first second, the last one early in the
// T-th second after. If P does not divide T, the span can touch one window more than can begin in
// it. A request before the span must have opened that window. That one is a unit less, unless it
// was given back: then its window stays open, and has all of its units.
//
// Windows that end by the clock adjoin, and need no request before the span: T+1 seconds touch at
// most (T-1)/P+2 of them.
func (w *boundingWindow) maxIn(span int64) int64 {
	n := w.Limit / w.cost
	switch {
	case w.ends != nil:
		return n * ((span-1)/w.per + 2)
	case span%w.per == 0:
		return n * (span/w.per + 1)
	case w.free:
		return n * (span/w.per + 2)
	}
	return n*(span/w.per+2) - 1
}

// A boundingWindow is a window that counts all requests of a party together.
type boundingWindow struct {
	weir.Window
	per  int64      // its length in seconds; of a calendar, that of its unit
	cost int64      // what one request spends of it
	ends *weir.Ends // nil: it ends one length after its first request
	free bool       // a request that is given back may open it
}

// end returns when the window ends if it is opened at a time.
func (w *boundingWindow) end(at int64) int64 {
	if w.ends == nil {
		return at + w.per
	}
	return w.ends.After(at)
}

// A burst is a number of requests in one second.
type burst struct {
	at, requests int64
	givenBack    bool
}

// start is any second with enough seconds before it.
const start = 2 * int64(weir.MaxSpan/time.Second)

// pattern returns bursts that reach the maximum of one window in a span of that many seconds,
// preceded by a request before the span if that has to open the first window. The span of a window
// that ends by the clock begins in its last second before a boundary, one of windows.
func (w *boundingWindow) pattern(boundary, span int64) []burst {
	n := w.Limit / w.cost
	var all []burst
	begin, first := start, start
	switch {
	case w.ends != nil:
		begin = w.end(boundary) - 1
		all, first = append(all, burst{at: begin, requests: n}), begin+1
	case span%w.per != 0:
		last := burst{at: start, requests: n - 1}
		if w.free {
			last.requests = n
		}
		all = append(all, w.opener(start+1-w.per), last)
		first = start + 1
	}
	for at := first; at <= begin+span; {
		all = append(all, burst{at: at, requests: n})
		at = w.end(at)
	}
	return all
}

// opener returns the request that opens the window at a time, at the least cost.
func (w *boundingWindow) opener(at int64) burst { return burst{at, 1, w.free} }

// attained reports whether a pattern that reaches the maximum of the tightest window passes all
// windows, which proves that a caller can reach it. A longer window that is opened well before the
// span ends within it, which helps: this is tried at up to about a hundred points for each window.
// A boundary of a longer window by the clock helps as well. If it all fails, another pattern might
// still pass.
func attained(windows []boundingWindow, tightest *boundingWindow, span int64) bool {
	if attainedFrom(start, windows, tightest, span) {
		return true
	}
	for i := range windows {
		if w := &windows[i]; tightest.ends != nil && w.ends != nil && attainedFrom(w.end(start)-1, windows, tightest, span) {
			return true
		}
	}
	return false
}

// attainedFrom is attained for the pattern of a span that begins after a boundary, if the tightest
// window ends by the clock.
func attainedFrom(boundary int64, windows []boundingWindow, tightest *boundingWindow, span int64) bool {
	bursts := tightest.pattern(boundary, span)
	if pass(windows, bursts) {
		return true
	}
	for _, w := range windows {
		for i := 0; i < len(bursts); i += 1 + len(bursts)/100 {
			opener := w.opener(bursts[i].at - w.per)
			if opener.at < bursts[0].at && pass(windows, append([]burst{opener}, bursts...)) {
				return true
			}
		}
	}
	return false
}

// pass reports whether fresh windows admit all bursts.
func pass(windows []boundingWindow, bursts []burst) bool {
	var used [weir.MaxWindows]weir.Used
	for _, b := range bursts {
		for i := range windows {
			w := &windows[i]
			end := w.end(b.at)
			u := used[i].At(b.at, end)
			if !u.Fits(b.requests*w.cost, w.Limit) {
				return false
			}
			if used[i] = u.Spend(b.requests*w.cost, end); b.givenBack {
				used[i] = used[i].Settle(-b.requests * w.cost)
			}
		}
	}
	return true
}
