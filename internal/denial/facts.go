package denial

import "github.com/weirlimit/weir"

// Facts are what an id tells of one refusal.
type Facts struct {
	Limiter string
	Window  string // the one that bound, as a policy spells it: "30 per minute by session or ip"
	Limit   int64  // what held for the caller
	Count   int64  // units that the window had spent
	Reset   int64  // Unix seconds at which it gave the budget back
	At      int64  // Unix seconds of the refusal
	Policy  string // the version of the policy in force

	// Callers are who was counted: one for each key source that counted in any window of the limiter, each once.
	Callers []Caller
	// Partial says that an id had no room for all of them, which takes key sources beyond the usual ones: then Keys does not
	// name the caller.
	Partial bool
}

// A Caller is who was counted, by one key source.
type Caller = weir.KnownSource

// Keys returns a caller that has the facts' key sources and no others, so that its windows of the limiter are the very ones that
// the refused request was counted in, as long as the limiter counts as it did. It shares f's memory.
func (f *Facts) Keys() weir.Keys { return weir.Known(f.Callers) }
