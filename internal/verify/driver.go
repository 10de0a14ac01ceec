package verify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A driver verifies one limiter: it looks, uses the budget up, tries to get more, waits for it to be restored, and looks again.
type driver struct {
	run  *runner
	part *part
	name string

	main, other caller // other has a budget of its own; zero: there is no such caller
	credential  string // what main is counted by where that is a credential: session or token
	stands      gap    // why there is no credential where the limiter counts by one
	apart       string // the source that tells main and other apart
	stranger    string // the agent of requests with credentials that do not verify
	second      gap    // why there is no other; zero: there is
	alone       bool   // nobody else can use main's budget

	suspicions struct {
		sync.Mutex
		by        map[string]suspicion
		clocks    clocks
		date      lead       // of Date before the verifier's clock
		ownWindow *suspicion // of the clause window, by the verifier's clock
	}

	parts parts

	latest time.Time // until when the present window may be waited for

	mu         sync.Mutex
	longest    time.Duration // of the windows that the answers described
	flooded    int           // how many of main's requests had been counted when the budget began to be used up
	counted    int           // how many have been
	steady     bool          // Remaining goes down by one from request to request
	step       int64         // by how much it does; 0: that could not be seen
	otherLast  *answer       // the first to other
	left       int           // requests that it may still send
	lost       int           // requests whose answers never came, and that may have been counted all the same
	statuses   map[string][]int
	tallies    []*tally // main's windows, in the order in which they were seen
	resets     map[int64]map[int64]*answer
	unverified *answer     // the last to a credential that does not verify
	served     *answer     // the last of main's that was admitted with the status that these usually have
	usual      map[int]int // how many were admitted, by status
	last       *answer     // the last of main's
	oddities   []string
	twice      bool        // the budget was used up a second time, or what was kept for that is spent
	refusal    int         // the status other than 429 that refuses; 0: none does
	strange    map[int]int // how many answers may have refused, by such a status
	repeated   int         // requests that were sent again to make sure; only the driver itself counts them
	hammered   int         // main's requests that were refused
}

// errDone ends a verification early with nothing wrong: what follows has nothing to stand on.
var errDone = errors.New("done")

var errGivenUp = errors.New("too many requests in a row had no answer")

func newDriver(r *runner, w *part) *driver {
	d := &driver{run: r, part: w, name: w.limiter.Name, left: w.most(r.options.Quick), statuses: make(map[string][]int), usual: make(map[int]int), strange: make(map[int]int), resets: make(map[int64]map[int64]*answer)}
	d.choose()
	return d
}

// choose finds out who is to be counted.
func (d *driver) choose() {
	o, l := d.run.options, d.part.limiter
	by := countedBy(d.part.window.Key, d.has)
	agent := freshAgent()
	if o.Real && o.Agent != "" && d.part.endpoints[0].path == initPath {
		agent = o.Agent
	}
	if a := d.begun(); a != nil {
		agent = a.request.fields["X-Agent-Id"]
	}
	d.main.agent, d.stranger = agent, freshAgent()
	switch kind := credentialOf(l); {
	case kind == "" && len(d.run.sessions) > 0:
		d.main.authorization = d.run.sessions[0] // some endpoints that are counted by address want one
	case kind != "" && !d.has(kind):
		d.stands = d.noCredential(kind)
	case kind != "":
		d.credential = kind
	}
	d.other = d.main
	if d.credential != "" {
		d.main.authorization = d.credentials()[0]
		d.other.authorization = d.main.authorization
	}
	switch {
	case d.credential != "" && slices.Contains(by, d.credential):
		all := d.credentials()
		d.apart = d.credential
		d.other.authorization = ""
		if len(all) > 1 {
			d.other.authorization = all[1]
		} else {
			d.second = NeedsInput.because("one %s was given: a second one shows it", d.credential)
		}
		d.alone = d.credential == sourceSession && d.run.own
	case slices.Contains(by, sourceAgent):
		d.apart = sourceAgent
		d.other.agent = freshAgent()
		d.alone = agent != o.Agent
	default:
		d.second = inherently("it counts by address, and a caller here has one")
		if slices.Contains(by, sourceEveryone) {
			d.second = inherently("all share its budget")
		}
		if !d.stands.isZero() {
			d.second = d.stands
		}
	}
}

// credentials are those of the kind that the limiter counts by.
func (d *driver) credentials() []string {
	if d.credential == sourceSession {
		return d.run.sessions
	}
	return d.run.options.Tokens
}

// isApart reports whether windows of a limit are counted by what tells main and other apart, so that they share none.
func (d *driver) isApart(limit int64) bool {
	if d.apart == "" {
		return false
	}
	for i := range d.part.limiter.Windows {
		w := &d.part.limiter.Windows[i]
		if by := countedBy(w.Key, d.has); !slices.Contains(by, d.apart) && (slices.Contains(d.lengthsOf(limit), w.Per) || !slices.Contains(d.lengthsOf(limit), d.part.window.Per)) {
			return false
		}
	}
	return true
}

// has reports whether main can be counted by a source.
func (d *driver) has(source string) bool {
	switch source {
	case sourceSession:
		return len(d.run.sessions) > 0
	case sourceToken:
		return len(d.run.options.Tokens) > 0
	}
	return true
}

func (d *driver) noCredential(kind string) gap {
	if kind == sourceSession {
		return NeedsInput.because("%s; what was tested is the budget of the address", d.run.why)
	}
	return NeedsInput.because("no API token was given; what was tested is the budget of the address")
}

// drive is the whole verification of the limiter. The error says why it ended early.
func (d *driver) drive(ctx context.Context) error {
	defer d.settle()
	d.adopt()
	for _, step := range []func(context.Context) error{d.look, d.makeRoom, d.drain, d.spent, d.restored, d.confirmMoving, d.provoke, d.again} {
		var far *farError
		switch err := step(ctx); {
		case errors.As(err, &far):
			for _, clause := range []string{"restored", "refused-free", "retry-after", "fixed-window"} {
				d.untested(clause, NeedsMore.because("%s", far))
			}
		case errors.Is(err, errDone):
			d.conclude()
			return nil
		case err != nil:
			return err
		}
	}
	d.conclude()
	return nil
}

// send sends one request; where its answer is lost it tries again, some times. It is not judged.
func (d *driver) send(ctx context.Context, r request) (*answer, error) {
	for tries := 1; ; tries++ {
		a, err := d.run.wire.send(ctx, r, d.take)
		var lost *lostError
		switch {
		case err == nil && (r.beside || !d.isOfNothing(a) || d.is503(a)):
			return d.mark(a), nil
		case err == nil:
			d.checkFields("fields-5xx", a)
			d.lose()
			if a.isOfSomethingElse() {
				err = fmt.Errorf("%s %s was answered %d, without the fields", r.method, r.path, a.status)
			}
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.As(err, &lost):
			return nil, err
		case !lost.unsent:
			d.lose()
		}
		if tries == mostTries && err == nil {
			return a, nil
		}
		if tries == mostTries {
			return nil, fmt.Errorf("%w: %w", errGivenUp, err)
		}
	}
}

// mostTries is how often a request is sent whose answer is lost.
const mostTries = 4

// isOfSomethingElse reports whether an answer seems to be the word of a proxy about a deployment that did not answer it.
func (a *answer) isOfSomethingElse() bool {
	return a.status >= http.StatusBadGateway && a.status <= http.StatusGatewayTimeout && !a.complete()
}

// isOfNothing reports whether an answer is an error of the server's that says nothing about the budget, though the request may have been counted.
func (d *driver) isOfNothing(a *answer) bool {
	if a.isOfSomethingElse() {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return a.status >= 500 && !a.complete() && d.served != nil && d.served.complete() && d.served.status != a.status
}

// take takes one request from the limiter's share.
func (d *driver) take() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == 0 {
		return false
	}
	d.left--
	return true
}

// ask sends one of main's requests to the endpoint that is used up, judges the answer and counts it.
func (d *driver) ask(ctx context.Context) (*answer, error) { return d.askWith(ctx, d.plain()) }

func (d *driver) askWith(ctx context.Context, r request) (*answer, error) {
	a, err := d.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if d.isHeld(a) {
		return a, nil
	}
	d.check(a)
	d.checkStanding(a)
	d.count(a)
	return a, nil
}

func (d *driver) plain() request { return d.main.request(d.run.options, d.part.endpoints[0]) }

func (d *driver) does(format string, args ...any) {
	d.run.does(d.name, fmt.Sprintf(format, args...), time.Time{})
}

// A farError says that a window ends later than it may be waited for.
type farError struct{ left, most time.Duration }

func (e *farError) Error() string {
	return fmt.Sprintf("the window ends in %s, and %v is the longest wait", seconds(e.left), e.most)
}

// tooFar begins the wait for a window, all of which may take no longer than one may; it errs where its end is further off.
func (d *driver) tooFar(end time.Time) error {
	most := d.run.options.MaxWait
	d.latest = time.Now().Add(most)
	if end = end.Add(soon); end.After(d.latest) {
		return &farError{time.Until(end), most}
	}
	return nil
}

// wait waits until a time by the local clock, and errs where that is later than the window may be waited for: its end may have moved, with
// what Date says.
func (d *driver) wait(ctx context.Context, until time.Time, what string) error {
	length := time.Until(until)
	if length <= 0 {
		return nil
	}
	if until.After(d.latest) {
		return &farError{length, d.run.options.MaxWait}
	}
	d.run.does(d.name, what, until)
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		d.run.does(d.name, what, time.Time{})
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *driver) kept(clause, format string, args ...any) {
	d.run.book.kept(clause, d.name, format, args...)
}

func (d *driver) untested(clause string, why gap) {
	d.run.book.untested(clause, d.name, why)
}

func (d *driver) broken(clause string, a *answer, format string, args ...any) {
	d.run.book.broken(clause, d.name, a, format, args...)
}
