package weir

import (
	"context"
	"errors"
	"time"
)

// A Store keeps the counts of all windows. Implementations must pass storetest.Run and be safe for concurrent use.
type Store interface {
	// Take charges every window or none, in one step and one round trip, and fills receipt in. It
	// judges all charges at one instant of its own clock. The keys of the charges are distinct.
	// Charges and receipt belong to the caller and must not be used after Take returns. Take
	// returns promptly once ctx is done; an error means that the outcome is unknown (the units may
	// or may not have been spent) and that receipt holds nothing. After ctx's deadline a take
	// spends nothing any more: whoever asked has gone on without it.
	Take(ctx context.Context, charges []Charge, receipt *Receipt) error
}

// ErrCharges is wrapped by the error of a Take whose charges the store cannot count together, whatever its state: it tells nothing
// about whether it answers.
var ErrCharges = errors.New("charges that cannot be counted together")

// A Charge asks for Cost units of one window.
type Charge struct {
	// Key is unique to the window and whoever it counts: length-prefixed parts, each with its source's name. Stores hash
	// it; they never parse it.
	Key []byte
	// Key[:Scope] names the limiter and the window, Key[Scope:Subject] is the first part of who is counted. Charges of
	// one Take that share the subject can be kept on one machine.
	Scope, Subject int

	Limit int64 // 1 to MaxLimit
	Per   int64 // length of the window in seconds
	Cost  int64 // units; 0 reads without spending and is always allowed

	// OnFailure is what the limiter declared for a store that does not answer. It is for stores around a store, such as
	// package failover's; others ignore it.
	OnFailure FailureMode
}

// A Receipt is a store's answer to one Take.
type Receipt struct {
	// Allowed says that every charge fitted and was spent. Otherwise nothing was spent.
	Allowed bool
	// Remembered says that the store answered from what this process remembers, without asking: the answer tells nothing
	// about whether the store can be reached.
	Remembered bool
	// Outcome is for stores around a store: how the answer came about, if the store inside did not give it. Others leave it at
	// zero, Counted.
	Outcome Outcome
	// Now is the store's clock in whole Unix seconds, rounded down.
	Now int64
	// Used holds, for each charge and in the same order, the window as it stands after the take.
	Used [MaxCharges]Used
}

// Refuse makes r a refusal that nothing has counted, at now: no window has units left, and another try is worth it in a second.
// Its Outcome is StoreUnavailable.
func (r *Receipt) Refuse(charges []Charge, now time.Time) {
	*r = Receipt{Outcome: StoreUnavailable, Now: now.Unix()}
	for i := range charges {
		r.Used[i] = Used{Count: charges[i].Limit, Reset: r.Now + 1}
	}
}

// Used is what has been spent of one window. The zero value is a window that is not open.
type Used struct {
	Count int64 // units spent
	Reset int64 // Unix seconds at which the window ends; 0 where none is open
}

// An InProcess store answers from this process's memory and never waits: Decide asks it without a deadline and without a
// circuit breaker.
type InProcess interface {
	Store
	InProcess()
}

// A Bounded store is one around another store: it waits for that no longer than a deadline of its own, whatever becomes of ctx,
// and answers without it if need be. Package failover has one. Inspect and Grant ask the store inside, because an operator wants its
// counts or its error. If a Bounded store is a Keeper, it counts as one only around a Keeper.
type Bounded interface {
	Store
	// Unwrap returns the store inside.
	Unwrap() Store
}

// A Shared store counts for several processes, elsewhere, and can fail. What this process knows of it bridges an outage: the
// local count starts from there, and what was counted locally is given to the store when it answers again (D25).
type Shared interface {
	Store
	// Recall fills in how each window stood when the store last answered for it, as far as this process remembers: the zero
	// Used where it does not, or the window has ended. It asks nobody and does not block.
	Recall(charges []Charge, used []Used)
	// Give adds units that were spent while the store did not answer. Each element is sent at most once, whatever happens.
	// Where the window is alive at the store its Reset stays; else it is created with the given one. It returns how many
	// units may not have arrived. The elements belong to the caller and must not be used after Give returns, which it does
	// promptly once ctx is done.
	Give(ctx context.Context, spent []Spent) (lost int64, err error)
	// Ping asks whether the store would count now, without counting for anybody. It keeps to ctx as Take does.
	// A store of several machines answers if any of them does.
	Ping(ctx context.Context) error
	// Reach asks the machines that keep these windows whether they would count now, and sets
	// reached[i] for each spent[i] whose machine would. It is asked before Give: what is given to a
	// dead machine is lost. Its error says why some are not reached; nil means that all are. It
	// keeps to ctx as Take does, and the machines that have answered by then are reached.
	Reach(ctx context.Context, spent []Spent, reached []bool) error
	// Now is the store's clock as this process knows it: its own, corrected by what the store last said.
	Now() time.Time
}

// Spent is what one window spent elsewhere.
type Spent struct {
	Key            []byte // as in Charge
	Scope, Subject int    // as in Charge
	Per            int64  // length of the window in seconds
	Used           Used   // units to add, and the reset of the window that they were counted in
}

// A Raiser is a Fallback that can go on from another store's counts. memstore is one.
type Raiser interface {
	// Raise brings windows up to at least used, as another store counts them: where a window is open at both, the higher
	// count and the given reset hold. The zero Used changes nothing. It does not block, and keeps nothing of its arguments.
	Raise(charges []Charge, used []Used)
}

// A Keeper is a store whose windows an operator can change one by one. To look at them is a Take of cost 0.
type Keeper interface {
	Store
	// Reset forgets what was spent in each window: it is as if it had never been opened. An error means that it is unknown
	// which were.
	Reset(ctx context.Context, charges []Charge) error
	// Grant gives each key the limit Limit until Until, by the store's clock, in place of whatever grant it has; the zero Grant
	// takes that back. All processes that count in the store know it within two seconds. Grants outlive the process where
	// counts do. An error means that it is unknown which were given.
	Grant(ctx context.Context, charges []Charge, grants []Grant) error
	// Granted fills in the grant in force of each key, the zero Grant where there is none, and reports whether there is any.
	// It asks nobody and does not block. While nobody has a grant it costs next to nothing, and may leave grants as they were.
	Granted(charges []Charge, grants []Grant) bool
}

// A Grant is an operator's word on one caller's window: another limit, for a while.
type Grant struct {
	Limit int64 // 1 to MaxLimit; 0: no grant
	Until int64 // Unix seconds; at that second it has ended
}

// MaxGrants is how many grants a Keeper keeps at least; beyond it may refuse more.
const MaxGrants = 10_000
