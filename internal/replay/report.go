package replay

// A Report is the result of a log under a policy. Times are Unix seconds.
type Report struct {
	Log        Log         `json:"log"`
	Policy     Outcome     `json:"policy"`
	Against    *Outcome    `json:"against,omitempty"`    // the second policy's
	Difference *Difference `json:"difference,omitempty"` // from Policy to Against
	// why only a part of the log was read; empty: all was
	Partial string `json:"partial,omitempty"`
}

// A Log is what was read.
type Log struct {
	Files    []string `json:"files"`
	Formats  []string `json:"formats"` // of Files
	Lines    int64    `json:"lines"`   // including malformed ones
	Requests int64    `json:"requests"`
	// lines without a request that a limiter would have seen: a handshake, a time-out, no target
	Without   int64 `json:"without_request"`
	Malformed int64 `json:"malformed"`
	// lines of Weir's own log that are no requests, such as its start and stop
	Own     int64 `json:"of_the_server"`
	Dropped int64 `json:"missing"` // requests that are missing according to Weir's own log
	// lines with a time before 1970 or after 2104, which cannot be counted
	Timeless int64     `json:"outside_time"`
	Examples []BadLine `json:"malformed_lines"` // the first of them
	// requests that were counted later than their time, because later ones had been read already
	OutOfOrder int64     `json:"out_of_order"`
	Disorder   int64     `json:"disorder_seconds"` // the maximum delay of these
	From       int64     `json:"from"`
	To         int64     `json:"to"`
	Lacks      []Lack    `json:"lacks"`
	NoAddress  NoAddress `json:"no_address"`
}

// NoAddress counts requests of covered paths without a valid address: a host name, or an anonymized
// one. A limiter counts them by address as one caller, like the gateway.
type NoAddress struct {
	Requests int64  `json:"requests"`
	Example  string `json:"example"` // the text in the place of an address, cut at 60 bytes
}

// A BadLine is a line that could not be read.
type BadLine struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Text   string `json:"text"`
	Reason string `json:"reason"`
}

// A Lack is a key source that limiters count by, or are chosen by, and the log does not have.
type Lack struct {
	Source   string   `json:"source"`
	Limiters []string `json:"limiters"`
	Requests int64    `json:"requests"` // requests of these limiters that were counted without it
	// what they were counted by, in words; empty: nothing, so that windows by the source are
	// unknown
	Instead string `json:"instead"`
	// Routes is true for a host that the routes of these limiters name: none of the requests, which
	// are then all of the log, could be found to be theirs.
	Routes bool `json:"routes,omitempty"`
	// Required is true for a credential that limiters require: none of the requests is known to be
	// answered 401.
	Required bool `json:"required,omitempty"`
}

// A Count is a number of distinct callers.
type Count struct {
	N int64 `json:"n"`
	// there are too many to remember: N has a standard error of 0.8 %, or 1.6 % in Recommend
	Estimated bool `json:"estimated"`
	// the possible error of an estimate, if it is larger: the estimate is the difference of two
	Off int64 `json:"off,omitempty"`
}

// An Outcome is the results of the requests under one policy.
type Outcome struct {
	Name     string `json:"name"`    // the policy's file, or "the contract"
	Version  string `json:"version"` // as in /readyz and the metrics
	Requests int64  `json:"requests"`
	// requests that no enforced limiter covers; one in shadow may, see Shadow.Alone
	Unlimited int64 `json:"unlimited"`
	Refused   int64 `json:"refused"`
	Denied    int64 `json:"denied"` // of Refused, those that a limiter denies (403)
	// of Refused, those that lack the credential that their limiter requires (401), and would have
	// been admitted with it
	Unauthenticated int64 `json:"unauthenticated"`
	// requests that are not in Refused, though an unknown window may have refused them
	Unknown  int64     `json:"unknown"`
	Shadow   Shadow    `json:"shadow"`
	Callers  Count     `json:"callers"` // addresses with a request under an enforced limiter
	Touched  Count     `json:"touched"` // of Callers, those that were refused at least once
	Limiters []Limiter `json:"limiters"`
	Series   Series    `json:"series"`
	Delay    *Delay    `json:"delay,omitempty"` // if callers wait
	// charges that were counted in a shared budget because the memory was full: 0, or the figures
	// are wrong
	Shared int64 `json:"shared_budgets"`
	// requests that were settled, and gave their slots back, before they had ended, because the
	// memory was full: 0, or the figures are too low
	EndedEarly int64 `json:"ended_early"`
}

// A Shadow is the results of the requests under limiters in shadow, besides the enforced ones.
type Shadow struct {
	Requests int64 `json:"requests"` // requests under at least one
	Alone    int64 `json:"alone"`    // of them, those that no enforced limiter covers
	Refused  int64 `json:"refused"`  // of them, those that at least one would have refused
	// of them, those that are not in Refused, though an unknown window may have refused them
	Unknown int64 `json:"unknown"`
}

// A Limiter is the results of one limiter.
type Limiter struct {
	Name     string `json:"name"`
	Mode     string `json:"mode"` // "enforce"; "shadow": Refused is what it would have refused
	Requests int64  `json:"requests"`
	Refused  int64  `json:"refused"`
	Denied   int64  `json:"denied"` // of Refused, those that it denies: no window counts them
	// of Refused, those that lack the credential that it requires: the windows count them
	Unauthenticated int64 `json:"unauthenticated"`
	// of Refused, those of callers under the limiter's penalty, with the ones that began it
	Penalized int64 `json:"penalized"`
	// requests that are not in Refused, though an unknown window may have refused them
	Unknown int64    `json:"unknown"`
	Windows []Window `json:"windows"`
	Worst   []Caller `json:"worst"` // callers with the most refusals, worst first
	Doubt   Doubt    `json:"worst_doubt"`
	Series  Series   `json:"series"`
	Delay   *Delay   `json:"delay,omitempty"`
	// what became of reservations; nil for a limiter that settles nothing
	Settled *Settled `json:"settled,omitempty"`
}

// Settled is what became of the reservations of a limiter, and what the log lacks to show it.
type Settled struct {
	Reserved int64 `json:"reserved"` // units that were charged before the requests were served
	// units that refused requests would have reserved
	WouldReserve int64 `json:"would_reserve"`

	GivenBack  int64 `json:"given_back"` // units of those that the requests have not cost
	Overrun    int64 `json:"overrun"`    // units beyond those that the requests have cost
	Unreported int64 `json:"unreported"` // requests without a cost in the log, as reserved
	// requests without a status in the log, which count
	NoStatus int64 `json:"no_status"`
	// requests without a duration in the log, which are in flight for no time
	NoDuration int64 `json:"no_duration"`
}

// A Window is the results of one window of a limiter. Its callers are what it counts by: addresses,
// sessions, addresses with an agent.
type Window struct {
	Window string `json:"window"` // in the policy's form
	Limit  int64  `json:"limit"`
	// requests that this window contributed to refusing; for the first window, or the penalty
	Refused int64 `json:"refused"`
	// requests that it has not counted, because the log lacks their agent: if there are any, its
	// other figures mean nothing
	Unknown int64 `json:"unknown"`
	Callers Count `json:"callers"`
	Touched Count `json:"touched"` // callers that this window refused something
	// the maximum of units that one caller asked for in one window; of a limiter that settles, the
	// highest count of one caller when a request of it came, with what was reserved then; of a
	// limit in flight, the requests of one caller at the same time. A refused request is in neither
	Peak int64 `json:"peak"`
	// nil if no share was asked for, no limit does it, nothing was counted, or the limiter settles
	Recommend *Recommend `json:"recommend"`
	// callers that were evicted before their window had ended: then Peak may be too low, and
	// nothing is recommended
	Forgotten int64 `json:"forgotten"`
}

// A Recommend is the lowest limit that touches at most a share of the callers, if the limiter had
// no other windows.
type Recommend struct {
	Limit   int64 `json:"limit"`
	Touches Count `json:"touches"`
	// callers that the limit applies to: neither exempt nor with a limit of their own
	Callers Count   `json:"callers"`
	Share   float64 `json:"share"` // Touches of Callers, 0 to 1
}

// A Caller is one of the worst.
type Caller struct {
	Name     string `json:"name"` // key sources and values in words: "ip 192.0.2.7, agent demo"
	Requests int64  `json:"requests"`
	Refused  int64  `json:"refused"`
	First    int64  `json:"first"` // time of its first refusal
	Last     int64  `json:"last"`
	Peak     int64  `json:"peak"` // the maximum of units that it asked for in one window
}

// A Doubt is how a list of the worst callers may be wrong, because memory did not suffice for all
// of them.
type Doubt struct {
	Requests bool `json:"requests"` // callers were evicted: Requests and Peak are lower bounds
	// a window is unknown, so that Refused counts only the others' refusals
	Unknown bool `json:"unknown"`
	// callers with refusals were evicted: Refused is a lower bound too, and others may be missing
	Refused bool `json:"refused"`
}

// A Series is the number of requests over time, in steps of equal length.
type Series struct {
	Start    int64   `json:"start"`
	Step     int64   `json:"step"` // seconds
	Requests []int64 `json:"requests"`
	Refused  []int64 `json:"refused"`
}

// A Delay is how long refused requests waited until they were served. Durations are in seconds.
type Delay struct {
	Delayed int64 `json:"delayed"` // requests that were served later than they came
	GaveUp  int64 `json:"gave_up"` // requests that would have waited longer than callers do
	// requests that would have waited, but were dropped because too many did: 0, or the figures are
	// wrong
	NoRoom int64   `json:"no_room"`
	Mean   float64 `json:"mean"` // of the delayed
	P50    float64 `json:"p50"`
	P95    float64 `json:"p95"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// A Difference is what changes from the first policy to the second.
type Difference struct {
	// requests that the first admits and the second refuses
	NewlyRefused  int64 `json:"newly_refused"`
	NewlyAdmitted int64 `json:"newly_admitted"` // and the opposite
	// requests that may differ, because a window of one of the policies is unknown
	Unknown int64 `json:"unknown"`
	// callers (addresses) that only the second policy refuses something
	NewlyTouched Count `json:"newly_touched"`
	// callers that only the first policy refuses something
	Freed    Count         `json:"freed"`
	Limiters []Differences `json:"limiters"` // by the second policy's limiter
	// addresses with the most newly refused requests; Refused counts those
	Worst  []Caller `json:"worst"`
	Doubt  Doubt    `json:"worst_doubt"`
	Series Series   `json:"series"` // Refused is what is newly refused
}

// Differences are a Difference for one limiter.
type Differences struct {
	Name          string `json:"name"` // empty: no limiter of the second policy covers the requests
	NewlyRefused  int64  `json:"newly_refused"`
	NewlyAdmitted int64  `json:"newly_admitted"`
	Unknown       int64  `json:"unknown"`
}
