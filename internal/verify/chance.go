package verify

import "context"

// What happens once may be chance: a limiter that now and then admits one too many, a backend that
// now and then fails. Before anything that a request says is blamed, it is sent again, with the
// plain request between, and must have got through each time.

const (
	timesSure   = 4  // how often a request is sent again that got through
	timesCalm   = 3  // how often one is sent that is answered with an error of the server's
	mostRepeats = 48 // of one limiter's requests
)

// isTrouble reports whether an answer is an error of the server's that the endpoint does not
// usually answer.
func (d *driver) isTrouble(a *answer) bool {
	return a.admitted() && a.status >= 500 && (d.served == nil || d.served.status != a.status)
}

// repeat reports whether one more request may be sent to make sure.
func (d *driver) repeat() bool {
	d.repeated++
	return d.repeated <= mostRepeats
}

// sendCalm sends a request again if it is answered with an error of the server's: the last answer
// counts.
func (d *driver) sendCalm(ctx context.Context, r request) (*answer, error) {
	a, err := d.send(ctx, r)
	for n := 1; n < timesCalm && err == nil && d.isTrouble(a) && d.repeat(); n++ {
		a, err = d.send(ctx, r)
	}
	return a, err
}

// confirmEscape makes sure that a request which was admitted is so each time, and that the plain
// one is refused each time.
func (d *driver) confirmEscape(ctx context.Context, t *tally, r request) (try, error) {
	if got, err := d.isSpent(ctx, t); err != nil || got != escaped {
		return got, err
	}
	times := min(timesSure, int(t.limit/d.part.cost)-2) // a budget of its own may be as small
	for range max(times, 1) {
		if !d.repeat() {
			return byChance, nil
		}
		again, err := d.sendCalm(ctx, r)
		switch {
		case err != nil:
			return 0, err
		case d.isTrouble(again):
			return byChance, nil
		case !again.admitted() && again.reset == t.reset:
			return byChance, nil
		case !again.admitted():
			return escaped, nil // by another budget, which is spent now
		}
		if got, err := d.isSpent(ctx, t); err != nil || got != escaped {
			return got, err
		}
	}
	return escaped, nil
}

// isSpent makes sure that the budget is still spent.
func (d *driver) isSpent(ctx context.Context, t *tally) (try, error) {
	still, err := d.ask(ctx)
	for n := 0; n < timesCalm && err == nil && still.admitted() && (still.reset == t.reset || d.isTrouble(still)) && d.repeat(); n++ {
		leak := still
		if still, err = d.ask(ctx); err == nil {
			d.judgeLeak(t, leak, still)
		}
	}
	if err != nil || !still.admitted() && still.reset == t.reset {
		return escaped, err
	}
	return tooLate, nil
}

// judgeLeak judges a plain request that was admitted in a window that had refused; after is the
// answer to the next one.
func (d *driver) judgeLeak(t *tally, leak, after *answer) {
	if leak.admitted() && leak.status < 500 && leak.reset == t.reset && !after.admitted() && after.reset == t.reset {
		d.broken("admitted", leak, "admitted after the window had refused, and refused again after that")
	}
}

// noteChance judges a request of main's own window that was admitted by chance.
func (d *driver) noteChance(t *tally, a *answer) {
	if a.status < 500 && a.reset == t.reset {
		d.broken("admitted", a, "admitted after the window had refused, and refused when it was sent again: more than the limit is admitted now and then")
	}
}
