package weir

import (
	"context"
	"errors"
	"time"
)

// A Store keeps the counts of all windows. Implementations must pass storetest.Run and be safe for
// concurrent use.
type Store interface {
	// Take charges every window or none, in one step and one round trip, and fills in receipt. It
	// judges all charges at one instant of its own clock. The keys of the charges are distinct.
	// Charges and receipt belong to the caller and must not be used after Take returns.
	//
	// Take returns promptly once ctx is done. An error means that the outcome is unknown (the units
	// may or may not have been spent) and that receipt holds nothing. After the deadline of ctx a
	// take spends nothing, because its caller has gone on without it.
	Take(ctx context.Context, charges []Charge, receipt *Receipt) error
}

// ErrCharges is wrapped by the error of a Take whose charges the store can never count together. It
// does not mean that the store fails.
var ErrCharges = errors.New("charges that cannot be counted together")

// A Charge asks for Cost units of one window.
type Charge struct {
	// Key identifies the window and the caller that it counts. It has length-prefixed parts, each
	// with its source's name. Stores hash it and never parse it.
	Key []byte
	// Key[:Scope] identifies the limiter and the window. Key[Scope:Subject] is the first part of
	// the caller. Charges of one Take with the same subject can be kept on one machine.
	Scope, Subject int

	Limit int64 // 1 to MaxLimit
	Per   int64 // length of the window in seconds; with Ends, the longest that it can be; slots: 0
	Cost  int64 // units; 0 reads without spending and is always allowed; or Gate

	// Ends are the seconds at which the window ends, by the store's clock. If nil, it ends Per
	// after its first unit.
	Ends *Ends

	// Held means that the units are slots, which no time gives back: they are held until Settle
	// gives them back, and their window never ends. Its Used has the slots that are held as Count,
	// and Reset 0. Only a Settler gets such charges.
	Held bool

	// Exact means that the receipt must have the window's very count. A store that charges units
	// before it gives them out (Receipt.Leased) serves no such charge from them. Others ignore it.
	Exact bool

	// OnFailure is what the limiter declares for a store that does not answer. It is for stores
	// around a store (see Bounded); others ignore it.
	OnFailure FailureMode
}

// Gate is the Charge.Cost that spends nothing, and refuses the take if the window has no unit left.
const Gate = -1

// A Receipt is a store's answer to one Take.
type Receipt struct {
	// Allowed means that every charge fitted and was spent. Otherwise nothing was spent.
	Allowed bool
	// Remembered means that the store answered from the memory of this process. Such an answer does
	// not show whether the store can be reached.
	Remembered bool
	// Leased means that the store answered with units that it had charged before, for this process.
	// Such an answer does not show whether the store can be reached. Used leaves out what this
	// process could still give out, and has all that others could.
	Leased bool
	// Outcome is set by stores around a store (see Bounded) if the store inside did not answer.
	// Others leave it zero, Counted.
	Outcome Outcome
	// Now is the store's clock in whole Unix seconds, rounded down.
	Now int64
	// Used has each window after the take, in the order of the charges.
	Used [MaxCharges]Used
	// Ticket is for Settle. The zero Ticket means that nothing can be settled: the take was
	// refused, or the store is not a Settler.
	Ticket Ticket
}

// A Ticket identifies an allowed take for its Settle. Only the store that made it reads it.
type Ticket struct {
	At    int64  // when the take was counted
	Epoch uint64 // what the store has gone through by then, such as resets
	Slot  uint64 // the slots that the take holds
	Local bool   // a store around the store counted it
	Round uint64 // of a store around the store: what it had given to the store by then
}

// A Settler is a store whose takes can be changed once the cost of their requests is known (D28),
// and that can hold slots (D29).
type Settler interface {
	Store
	// Settle changes what a take has spent, each change in the very window that the take was
	// charged to. t is the Ticket of the take's Receipt. A take may be settled more than once, for
	// different charges; no charge twice.
	//
	// A window that has ended since, or that an operator has reset, is not changed: its units are
	// gone. A later window of the key never is. Settle sends each change at most once. After an
	// error it is unknown which changes were counted, and none is given back twice. Changes belong
	// to the caller and must not be used after Settle returns, promptly once ctx is done.
	Settle(ctx context.Context, t *Ticket, changes []Change) error
}

// A SettleStarter is a Settler that waits for something outside of this process, such as a server.
// Without StartSettle, a caller that has its whole answer could be refused by the slot or the units
// of that very request, because the store has not given them back yet.
type SettleStarter interface {
	Settler
	// StartSettle begins a Settle without waiting, and returns a function that ends it: its error
	// is that of Settle. It must be called once, and may wait. A take of this process that begins
	// after StartSettle has returned finds the slots among the changes free, even if the server has
	// not been reached yet, and so the units that are given back: it may wait for that until its
	// ctx is done, and is refused then. That no longer holds once finish has returned an error. t
	// and changes belong to the caller again when finish has returned.
	StartSettle(ctx context.Context, t *Ticket, changes []Change) (finish func() error)
}

// StartSettle is that of a SettleStarter. Of any other Settler it changes nothing before finish is
// called.
func StartSettle(ctx context.Context, s Settler, t *Ticket, changes []Change) (finish func() error) {
	if s, ok := s.(SettleStarter); ok {
		return s.StartSettle(ctx, t, changes)
	}
	return func() error { return s.Settle(ctx, t, changes) }
}

// A Change of one window is what a request has spent of it more or less than its take.
type Change struct {
	Charge       // as in the take
	Reset  int64 // Receipt.Used's of the take, which tells its window; 0 for slots
	// Units are added to the window, also beyond its limit, up to MaxLimit in all. Negative ones
	// are given back, at most the charge's Cost. All slots are given back at once.
	Units int64

	// Settle fills in the rest.

	Done bool // the window was changed
	// Used is the window after the change, if Done. Of slots it is a moment between the change and
	// the return: others may have been taken or given back meanwhile.
	Used Used
	// Lost means that the window may go on with what the take has spent, because the store cannot
	// tell whether it still counts the take. It is false if the window has ended.
	Lost bool
}

// Refuse makes r the refusal of charges that nothing could count, at now. No window has units left,
// each ends in a second, and the Outcome is StoreUnavailable.
func (r *Receipt) Refuse(charges []Charge, now time.Time) {
	*r = Receipt{Outcome: StoreUnavailable, Now: now.Unix()}
	for i := range charges {
		r.Used[i] = Used{Count: charges[i].Limit, Reset: r.Now + 1}
	}
}

// Used is what was spent of one window. The zero value is a window that is not open.
type Used struct {
	Count int64 // units spent
	Reset int64 // Unix seconds at which the window ends; 0 means that it is not open
}

// An InProcess store answers from this process's memory and never waits.
type InProcess interface {
	Store
	InProcess()
}

// A Bounded store is a store around a store, such as failover.Store. It bounds the wait for the
// store inside by a deadline of its own, and ignores the cancellation of ctx. Inspect and Grant ask
// the store inside, because an operator needs its counts or its error. A Bounded store that
// implements Keeper is used as one only if the store inside is a Keeper.
type Bounded interface {
	Store
	// Unwrap returns the store inside. If that is Bounded too, weir unwraps it as well.
	Unwrap() Store
}

// A Shared store counts for several processes, elsewhere, and can fail. Package failover bridges
// its outages (D25): it counts in this process from where the Shared store left off, and gives it
// those units when it answers again.
type Shared interface {
	Store
	// Recall fills in each window as it was in the store's last answer. If this process does not
	// remember it, or the window has ended, that is the zero Used. Recall does not ask the store
	// and does not block.
	Recall(charges []Charge, used []Used)
	// Give adds units that were spent while the store did not answer. Each element is sent at most
	// once, even after an error. If the window is open at the store, its Reset stays; otherwise it
	// is created with the given one. lost is the number of units that may not have arrived. The
	// elements belong to the caller and must not be used after Give returns, promptly once ctx is
	// done.
	Give(ctx context.Context, spent []Spent) (lost int64, err error)
	// Ping returns nil if the store would count now. It counts nothing for any caller, and obeys
	// ctx as Take does. A store of several machines answers if any of them does.
	Ping(ctx context.Context) error
	// Reach asks the machines that keep these windows whether they would count now, and sets
	// reached[i] if the machine of spent[i] would. It is called before Give, because units that are
	// sent to a dead machine are lost. The error is why some are not reached; nil means that all
	// are. Reach obeys ctx as Take does, and reports the machines that answered in time.
	Reach(ctx context.Context, spent []Spent, reached []bool) error
	// Now is the store's clock as this process knows it: its own, corrected by the store's answers.
	Now() time.Time
}

// A Leaser is a Shared store that charges units before it gives them out (Receipt.Leased).
type Leaser interface {
	Shared
	// TakeLeased is Take from units that were charged before, without asking the store: for a
	// store around it while it does not answer. It reports false, and has spent nothing, if it
	// has too few, or if the OnFailure of a charge does not have FailPocket. It does not block.
	TakeLeased(charges []Charge, r *Receipt) bool
}

// Spent is what one window spent elsewhere.
type Spent struct {
	Key            []byte // as in Charge
	Scope, Subject int    // as in Charge
	Per            int64  // as in Charge
	Ends           *Ends  // as in Charge
	Used           Used   // units to add, and the reset of the window that counted them
}

// A Starter is a store that can continue from another store's counts. memstore is one.
type Starter interface {
	// StartFrom brings windows up to at least used, as another store counts them. If a window is
	// open at both, the higher count and the given reset hold. The zero Used changes nothing.
	// StartFrom does not block, and keeps nothing of its arguments.
	StartFrom(charges []Charge, used []Used)
}

// A Keeper is a store whose windows an operator can change one by one. A Take of cost 0 reads them.
type Keeper interface {
	Store
	// Reset drops what was spent in each window: it is as if it had never been opened. After an
	// error it is unknown which windows were reset.
	Reset(ctx context.Context, charges []Charge) error
	// Grant gives each key the limit Limit until Until, by the store's clock, in place of an
	// earlier grant. The zero Grant removes that. All processes that count in the store apply it
	// within two seconds. Grants last as long as the counts do. After an error it is unknown which
	// were given.
	Grant(ctx context.Context, charges []Charge, grants []Grant) error
	// Granted fills in the grant in force of each key, the zero Grant for a key without one, and
	// reports whether any key has one. It does not ask the store and does not block. If the store
	// has no grants at all, it is nearly free and may leave grants unchanged.
	Granted(charges []Charge, grants []Grant) bool
}

// A Grant is another limit for one caller's window, for a time. An operator gives it.
type Grant struct {
	Limit int64 // 1 to MaxLimit; 0: no grant
	Until int64 // Unix seconds; at that second the grant has ended
}

// MaxGrants is the number of grants that every Keeper can keep. It may reject more.
const MaxGrants = 10_000
