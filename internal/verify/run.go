package verify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A runner is one verification under way.
type runner struct {
	plan    *Plan
	options *Options
	wire    *wire
	book    *book
	secrets *secrets

	tried map[*part][]tried // the given credentials, at the limiters where they were tried

	sessions []string // tokens of visitors' sessions; the first one's budget is used up
	own      bool     // the verifier created them, so no other caller uses them
	why      string   // why there are none

	mu      sync.Mutex
	remarks []string
	doing   map[string]*doing
}

// Doing is the present step of one limiter's verification.
type doing struct {
	what  string
	until time.Time // the end of a wait; zero: none
}

// Run carries out the plan, and never sends more than Plan.Requests requests. It returns an error
// if the deployment cannot be reached or ctx ends, and the verdicts so far as well. A plan may be
// run several times, one after another.
func (p *Plan) Run(ctx context.Context) (*Report, error) {
	r := &runner{plan: p, options: &p.options, secrets: &secrets{sessionAt: p.options.SessionAt}, doing: make(map[string]*doing), tried: make(map[*part][]tried)}
	for _, credential := range slices.Concat(p.options.Sessions, p.options.Tokens) {
		r.secrets.addCredential(credential)
		r.secrets.add(spelledIn(p.options.TokenPlaces, credential)...)
	}
	for name, values := range p.options.Header {
		for _, v := range values {
			r.secrets.addField(name, v)
		}
	}
	base := strings.TrimSuffix(p.options.URL.EscapedPath(), "/")
	r.book = newBook(func(a *answer) *Exchange { return r.secrets.shown(a, p.options.Header, base) }, r.secrets.hide)
	r.wire = newWire(&p.options, p.Requests)
	defer r.wire.close()
	report := &Report{URL: p.options.URL.String(), Started: time.Now(), Planned: p.Requests}
	for _, s := range p.Skipped {
		r.book.note(s)
	}
	err := r.all(ctx)
	report.Ended = time.Now()
	report.Sent = int(r.wire.sent.Load())
	report.Notes = r.remarks
	report.Results = r.book.results(p.options.Policy)
	return report, err
}

// remark adds a note to the report, once.
func (r *runner) remark(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.remarks, text) {
		r.remarks = append(r.remarks, text)
	}
}

// all verifies every limiter: those that others disturb come last.
func (r *runner) all(ctx context.Context) error {
	stop := r.reportProgress(ctx)
	defer stop()
	if len(r.plan.parts) == 0 {
		return nil
	}
	for _, step := range []func(context.Context) error{r.checkCredentials, r.begin} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	errs := make(chan error, len(r.plan.parts))
	var running sync.WaitGroup
	for _, w := range r.plan.parts {
		if !w.late {
			running.Go(func() { errs <- r.one(ctx, w) })
		}
	}
	running.Wait()
	for _, w := range r.plan.parts {
		if w.late {
			errs <- r.one(ctx, w)
		}
	}
	close(errs)
	var failures []error
	for err := range errs {
		if err != nil {
			failures = append(failures, err)
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	switch len(failures) {
	case 0:
		return nil
	case len(r.plan.parts):
		return failures[0]
	}
	return fmt.Errorf("%d of %d limiters could not be verified: %w", len(failures), len(r.plan.parts), failures[0])
}

// one verifies one limiter.
func (r *runner) one(ctx context.Context, w *part) error {
	err := verifyPart(ctx, r, w)
	r.mu.Lock()
	delete(r.doing, w.limiter.Name)
	r.mu.Unlock()
	if errors.Is(err, errGivenUp) {
		return fmt.Errorf("%s: %w", w.limiter.Name, err)
	}
	return nil
}

// begin creates sessions if a limiter needs them and none were given.
func (r *runner) begin(ctx context.Context) error {
	r.sessions = r.options.Sessions
	if len(r.sessions) > 0 {
		return nil
	}
	if !r.plan.sessions {
		r.why = "no session was given, and no agent to create one"
		return nil
	}
	r.own = true
	visitor := caller{agent: r.options.Agent}
	ask := visitor.request(r.options, endpoint{method: "POST", path: initPath})
	ask.body = strings.ReplaceAll(knownEndpoints[0].valid, "AGENT", r.options.Agent)
	for tries := 0; tries < forSessions && len(r.sessions) < 2; tries++ {
		a, err := r.wire.send(ctx, ask, func() bool { return true })
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if lost, ok := errors.AsType[*lostError](err); ok && lost.unsent {
				return fmt.Errorf("verify %s: %w", r.options.URL.Redacted(), err)
			}
			r.why = "no session: " + err.Error()
			continue
		}
		if a.status/100 != 2 {
			r.why = fmt.Sprintf("no session: %s %s as agent %s was answered %d %s", ask.method, ask.path, r.options.Agent, a.status, http.StatusText(a.status))
			if a.status != refusedStatus(&r.options.Policy.Responses) {
				return nil
			}
			continue
		}
		token, err := tokenIn(a.body, r.options.SessionAt)
		if err != nil {
			r.why = "no session: " + err.Error()
			return nil
		}
		r.secrets.addCredential(token)
		if !slices.Contains(r.sessions, token) {
			r.sessions = append(r.sessions, token)
		}
	}
	return nil
}

// reportProgress reports progress until the returned function is called.
func (r *runner) reportProgress(ctx context.Context) (stop func()) {
	if r.options.Progress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() {
		ticks := time.NewTicker(200 * time.Millisecond)
		defer ticks.Stop()
		for {
			r.options.Progress(r.progress())
			select {
			case <-ticks.C:
			case <-ctx.Done():
				r.options.Progress(r.progress())
				return
			}
		}
	})
	return func() {
		cancel()
		reporting.Wait()
	}
}

func (r *runner) progress() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{Sent: int(r.wire.sent.Load()), Planned: r.plan.Requests}
	var next time.Time
	for _, w := range r.plan.parts {
		d := r.doing[w.limiter.Name]
		if d == nil {
			continue
		}
		p.Doing = append(p.Doing, w.limiter.Name+": "+d.what)
		if !d.until.IsZero() && (next.IsZero() || d.until.Before(next)) {
			next = d.until
		}
	}
	if !next.IsZero() {
		p.Waiting = max(time.Until(next), 0)
	}
	return p
}

func (r *runner) does(limiter, what string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doing[limiter] = &doing{what: what, until: until}
}
