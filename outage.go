package weir

import (
	"context"
	"time"
)

// A StoreEvent says that the store has stopped answering, or answers again.
type StoreEvent struct {
	Failing bool
	Err     error // why the store stopped answering; nil where it answers again

	// When it answers again, and what was counted here meanwhile has been given to it:
	For         time.Duration // how long it did not answer
	Local       int64         // requests that were decided without it
	Given, Lost int64         // units counted here meanwhile: those that it was given, and those that it may not have got
}

// Health is whether the store answers.
type Health struct {
	Failing bool
	Since   time.Time // when it stopped answering; zero where it answers
	Err     error     // why; nil where it answers
}

// Health returns whether the store answers, as far as the requests so far can tell.
func (d *Decider) Health() Health {
	return Health{}
}

// Close gives the store what was counted here while it did not answer, as long as ctx allows, and waits for that to end; what
// remains then is lost, and the error says how much. Decide works on, with nothing given to the store any more. Only a
// Decider with a Shared store needs it.
func (d *Decider) Close(ctx context.Context) error {
	return nil
}
