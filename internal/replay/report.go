package replay

// A Report is what a log says of a policy. Times are Unix seconds.
type Report struct {
	Log        Log         `json:"log"`
	Policy     Outcome     `json:"policy"`
	Against    *Outcome    `json:"against,omitempty"`    // the second policy's
	Difference *Difference `json:"difference,omitempty"` // from Policy to Against
	Partial    string      `json:"partial,omitempty"`    // why only a part of the log was read; empty: all was
}

// A Log is what was read.
type Log struct {
	Files      []string  `json:"files"`
	Formats    []string  `json:"formats"` // of Files
	Lines      int64     `json:"lines"`   // malformed ones included
	Requests   int64     `json:"requests"`
	Without    int64     `json:"without_request"` // lines that hold none that a limiter would have seen: a handshake, a time-out, no target
	Malformed  int64     `json:"malformed"`
	Own        int64     `json:"of_the_server"`    // lines of Weir's own log that are no requests, such as when it starts and stops
	Dropped    int64     `json:"missing"`          // requests that Weir's own log says are missing in it
	Timeless   int64     `json:"outside_time"`     // lines whose time the counting cannot have, before 1970 or after 2104: their requests are left out
	Examples   []BadLine `json:"malformed_lines"`  // the first of them
	OutOfOrder int64     `json:"out_of_order"`     // requests that were counted later than their time, since later ones had been read already
	Disorder   int64     `json:"disorder_seconds"` // by how much at most
	From       int64     `json:"from"`
	To         int64     `json:"to"`
	Lacks      []Lack    `json:"lacks"`
	NoAddress  NoAddress `json:"no_address"`
}

// NoAddress is requests of covered paths whose address is none: a host's name, one that was made unreadable. By address they are one
// caller to a limiter, as they would be to the gateway.
type NoAddress struct {
	Requests int64  `json:"requests"`
	Example  string `json:"example"` // what one has in the place of its address, cut at 60 bytes
}

// A BadLine is a line that could not be read.
type BadLine struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Text   string `json:"text"`
	Reason string `json:"reason"`
}

// A Lack is a key source that limiters count by, and the log does not tell.
type Lack struct {
	Source   string   `json:"source"`
	Limiters []string `json:"limiters"`
	Requests int64    `json:"requests"` // of these limiters, that were counted without it
	Instead  string   `json:"instead"`  // what they were counted by, in words; empty: nothing, so that windows by the source are unknown
}

// A Count is a number of distinct callers.
type Count struct {
	N         int64 `json:"n"`
	Estimated bool  `json:"estimated"`     // within 2 %, because there are too many to remember
	Off       int64 `json:"off,omitempty"` // by how much an estimate may be off where that is more: one that is the difference of two
}

// An Outcome is what became of the requests under one policy.
type Outcome struct {
	Name      string    `json:"name"`    // the policy's file, or "the contract"
	Version   string    `json:"version"` // as /readyz and the metrics tell it
	Requests  int64     `json:"requests"`
	Unlimited int64     `json:"unlimited"` // that no limiter covers which is enforced: a shadow may, see Shadow.Alone
	Refused   int64     `json:"refused"`
	Unknown   int64     `json:"unknown"` // requests that are not in Refused, though a window that is unknown may have refused them
	Shadow    Shadow    `json:"shadow"`
	Callers   Count     `json:"callers"` // addresses that sent a request under some limiter that is enforced
	Touched   Count     `json:"touched"` // of them, those that were refused at least once
	Limiters  []Limiter `json:"limiters"`
	Series    Series    `json:"series"`
	Delay     *Delay    `json:"delay,omitempty"` // where callers wait
	Shared    int64     `json:"shared_budgets"`  // charges that were counted in a shared budget since the memory was full: 0, or the figures are wrong
}

// A Shadow is what became of the requests under limiters that are tried out, beside the one that is enforced.
type Shadow struct {
	Requests int64 `json:"requests"` // under at least one
	Alone    int64 `json:"alone"`    // of them, those that no limiter covers which is enforced
	Refused  int64 `json:"refused"`  // of them, those that at least one would have refused
	Unknown  int64 `json:"unknown"`  // of them, those that are not in Refused, though a window that is unknown may have refused them
}

// A Limiter is what one limiter did.
type Limiter struct {
	Name     string   `json:"name"`
	Mode     string   `json:"mode"` // "enforce"; "shadow": Refused is what it would have refused
	Requests int64    `json:"requests"`
	Refused  int64    `json:"refused"`
	Unknown  int64    `json:"unknown"` // requests that are not in Refused, though a window that is unknown may have refused them
	Windows  []Window `json:"windows"`
	Worst    []Caller `json:"worst"` // who was refused most, worst first
	Doubt    Doubt    `json:"worst_doubt"`
	Series   Series   `json:"series"`
	Delay    *Delay   `json:"delay,omitempty"`
}

// A Window is what one window of a limiter did. Its callers are whoever it counts: addresses, sessions, addresses with an agent.
type Window struct {
	Window    string     `json:"window"` // as a policy spells it
	Limit     int64      `json:"limit"`
	Refused   int64      `json:"refused"` // requests that this window had a part in refusing
	Unknown   int64      `json:"unknown"` // requests that it has not counted, since the log does not tell their agent: if there are any, its other figures say nothing
	Callers   Count      `json:"callers"`
	Touched   Count      `json:"touched"`   // callers for whom this window refused something
	Peak      int64      `json:"peak"`      // the most units that one caller asked for in one window
	Recommend *Recommend `json:"recommend"` // nil where no share was asked for, no limit does it, or nothing was counted
	Forgotten int64      `json:"forgotten"` // callers for whom there was no memory before their window had ended: then Peak may be too low, and nothing is recommended
}

// A Recommend is the lowest limit that touches no more callers than a share of them, had the limiter no other windows.
type Recommend struct {
	Limit   int64   `json:"limit"`
	Touches Count   `json:"touches"`
	Callers Count   `json:"callers"` // whom the limit concerns: those who are neither exempt nor have a limit of their own
	Share   float64 `json:"share"`   // Touches of Callers, 0 to 1
}

// A Caller is one of the worst.
type Caller struct {
	Name     string `json:"name"` // key sources and values in words: "ip 192.0.2.7, agent demo"
	Requests int64  `json:"requests"`
	Refused  int64  `json:"refused"`
	First    int64  `json:"first"` // when it was first refused
	Last     int64  `json:"last"`
	Peak     int64  `json:"peak"` // the most units that it asked for in one window
}

// A Doubt is what a list of the worst callers may have wrong, since there was no memory for all of them.
type Doubt struct {
	Requests bool `json:"requests"` // callers gave way: Requests and Peak are the least that they can have been
	Unknown  bool `json:"unknown"`  // a window is unknown, so that Refused is what the others refused
	Refused  bool `json:"refused"`  // callers gave way who were refused something: Refused is the least, too, and others may be missing
}

// A Series is how many requests there were over time, in steps of equal length.
type Series struct {
	Start    int64   `json:"start"`
	Step     int64   `json:"step"` // seconds
	Requests []int64 `json:"requests"`
	Refused  []int64 `json:"refused"`
}

// A Delay is how long refused requests waited until they were served. Durations are in seconds.
type Delay struct {
	Delayed int64   `json:"delayed"` // requests that were served later than they came
	GaveUp  int64   `json:"gave_up"` // requests that would have waited longer than callers do
	NoRoom  int64   `json:"no_room"` // requests that would have waited, and were dropped since too many did: 0, or the figures are wrong
	Mean    float64 `json:"mean"`    // of the delayed
	P50     float64 `json:"p50"`
	P95     float64 `json:"p95"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

// A Difference is what changes from the first policy to the second.
type Difference struct {
	NewlyRefused  int64         `json:"newly_refused"`  // requests that the first admits and the second refuses
	NewlyAdmitted int64         `json:"newly_admitted"` // and the other way round
	Unknown       int64         `json:"unknown"`        // requests of which it is not known, since a window of one policy or the other is unknown
	NewlyTouched  Count         `json:"newly_touched"`  // callers (addresses) that the second policy refuses something, and the first nothing
	Freed         Count         `json:"freed"`          // callers that the first policy refuses something, and the second nothing
	Limiters      []Differences `json:"limiters"`       // by the second policy's limiter
	Worst         []Caller      `json:"worst"`          // addresses with the most newly refused requests; Refused counts those
	Doubt         Doubt         `json:"worst_doubt"`
	Series        Series        `json:"series"` // Refused is what is newly refused
}

// Differences are a Difference's, for one limiter.
type Differences struct {
	Name          string `json:"name"` // empty: no limiter of the second policy covers the requests
	NewlyRefused  int64  `json:"newly_refused"`
	NewlyAdmitted int64  `json:"newly_admitted"`
	Unknown       int64  `json:"unknown"`
}
