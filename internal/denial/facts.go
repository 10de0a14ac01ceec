package denial

import "github.com/weirlimit/weir"

// Facts are what an id holds about one refusal.
type Facts struct {
	Limiter string
	Window  string // the binding one, as in a policy: "30 per minute by session or ip"
	Limit   int64  // the limit in force for the caller
	Count   int64  // units that were spent in the window
	Reset   int64  // Unix seconds at which the budget is restored; 0 if InFlight
	At      int64  // Unix seconds of the refusal
	Policy  string // the version of the policy in force
	// InFlight means that the limit in flight refused it: Count and Limit are of requests under
	// way.
	InFlight bool
	// Denied means that the limiter denies the caller: no window was read, and Window, Limit, Count
	// and Reset are zero.
	Denied  bool
	Penalty bool // the limiter's penalty refused it, and ends at Reset or before

	// Callers are the values the caller was counted by, one for each key source of the limiter.
	Callers []Caller
	// Partial is true if the id had no room for all of Callers. Then Keys does not identify the
	// caller. This takes more key sources, or longer ones, than are built in.
	Partial bool
}

// A Caller is the value of one key source.
type Caller = weir.SavedSource

// Keys returns a caller that has exactly the key sources in f. It is counted in the same windows as
// the refused request, as long as the limiter counts by the same keys. It shares f's memory.
func (f *Facts) Keys() weir.SavedKeys { return weir.SavedKeys(f.Callers) }
