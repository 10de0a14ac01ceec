// Package paced runs a sync of internal/docsync with a client that waits for its budget, and sums
// up what it has done.
package paced

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/docsync"
	"github.com/weirlimit/weir/internal/folder"
	"github.com/weirlimit/weir/internal/plaintext"
	"github.com/weirlimit/weir/pacer"
)

// Options configure a Run. Dir, To, Base and Token are required.
type Options struct {
	Dir  string   // the folder
	To   *url.URL // base URL of the server, without /v1/wp, normalized (Normalize)
	Base *url.URL // the beginning of the links of documents, normalized
	// NewBase means that the user chose Base, so documents with another one may be sent again.
	NewBase bool
	Token   string // never stored or printed

	State string            // the file that records acknowledged documents; empty: see StateFile
	Env   map[string]string // the process's variables; only read if State is empty
	// Share is the file that keeps what is known of the budget; empty means beside State.
	Share   string
	Exclude []string // patterns of paths to leave out
	Prune   docsync.Prune
	All     bool          // also send unchanged documents
	DryRun  bool          // only plan
	MaxWait time.Duration // for one window; 0: a request that would have to wait ends the run

	// The functions are called from several goroutines, and may be nil, except Planned.
	Event   func(docsync.Event)
	Wait    func(pacer.Wait)
	Lost    func(error) // the budget cannot be kept in Share; called once at most
	Planned func(Work)  // called before anything is sent
}

// Work is what a Run is about to do.
type Work struct {
	docsync.Plan
	Documents  int  // to send and delete
	Requests   int  // that this takes
	OtherToken bool // the last run had another token, and it was not asked whose this one is
}

// A Run is one sync. Estimate may be called from when Options.Planned is called, from several
// goroutines; the others report what Do has done, once that has returned.
type Run struct {
	o       Options
	started time.Time
	sender  *docsync.Sender
	pacer   *pacer.Transport
	sync    *docsync.Sync // nil: not open
	plan    docsync.Plan
	planned bool

	refusals atomic.Int64
	waits    waits
}

// New returns a Run that has done nothing yet.
func New(o Options) *Run { return &Run{o: o, started: time.Now()} }

// Do plans and, unless it is a dry run, sends and deletes. If the error can be resolved it is a
// *docsync.Failure, or wraps docsync.ErrInterrupted.
func (r *Run) Do(ctx context.Context) (err error) {
	docs, err := folder.Open(r.o.Dir, folder.Options{Base: r.o.Base, Skip: absolute(r.o.State, r.o.Share), Exclude: r.o.Exclude})
	if err != nil {
		return failure(err, folderHint)
	}
	defer docs.Close()
	if r.o.State == "" {
		if err := r.defaultState(); err != nil {
			return err
		}
	}
	client := &http.Client{}
	r.sync, err = docsync.Open(docsync.Options{
		Folder: docs, To: r.o.To, Token: r.o.Token, TokenID: cli.TokenID(r.o.Token), Base: r.o.Base.String(), NewBase: r.o.NewBase,
		Client: client, State: r.o.State, All: r.o.All, DryRun: r.o.DryRun, Prune: r.o.Prune, Report: r.o.Event,
	})
	if err != nil {
		r.sync = nil
		return err
	}
	defer func() { err = errors.Join(err, r.sync.Close()) }()
	closeView, err := r.connect(client)
	if err != nil {
		return err
	}
	defer closeView()
	if r.sync.OtherToken() {
		if err := r.sync.Confirm(ctx); err != nil {
			return err
		}
	}
	if r.plan, err = r.sync.Plan(ctx); err != nil {
		return err
	}
	r.planned = true
	work := r.work()
	r.o.Planned(work)
	if r.o.DryRun || work.Documents == 0 {
		return nil
	}
	return r.sync.Push(ctx)
}

// failure returns an error whose text a terminal can show.
func failure(err error, hint string) error {
	return &docsync.Failure{Err: errors.New(plaintext.Line(err.Error(), 500)), Hint: hint}
}

// defaultState sets the file of the state and makes its directory.
func (r *Run) defaultState() (err error) {
	if r.o.State, err = StateFile(r.o.Env, r.o.Dir, r.o.To); err != nil || r.o.DryRun {
		return err
	}
	return makeStateHome(r.o.State)
}

// absolute returns the paths that are not empty from the root.
func absolute(paths ...string) (all []string) {
	for _, path := range paths {
		if to, err := filepath.Abs(path); path != "" && err == nil {
			all = append(all, to)
		}
	}
	return all
}

// connect gives the client a transport that waits for its budget.
func (r *Run) connect(client *http.Client) (closeView func(), err error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 8
	r.sender = &docsync.Sender{Base: base}
	var lost sync.Once
	o := &pacer.Options{
		Base:      r.sender,
		MaxWait:   cmp.Or(r.o.MaxWait, pacer.NoWait),
		OnWait:    r.onWait,
		OnRefused: func(pacer.Refusal) { r.refusals.Add(1) },
		OnSharedFailure: func(err error) {
			if r.o.Lost != nil {
				lost.Do(func() { r.o.Lost(err) })
			}
		},
	}
	closeView = func() {}
	if !r.o.DryRun { // a dry run writes nothing, and sends nothing that depends on the budget
		// It holds what is left of the budget since the last run.
		view, err := pacer.OpenFile(cmp.Or(r.o.Share, r.o.State+".budget"))
		if err != nil {
			return nil, failure(err, "give your own file with --share, the same for all syncs with the token")
		}
		closeView = func() { _ = view.Close() } // it was read or written, or it did not matter
		o.Shared = view
	}
	r.pacer = pacer.New(o)
	client.Transport = bounded{r.pacer}
	return closeView, nil
}

func (r *Run) onWait(w pacer.Wait) {
	r.waits.add(w, time.Now())
	if r.o.Wait != nil {
		r.o.Wait(w)
	}
}

// A bounded transport ends the sync if the wait for a budget would be too long.
type bounded struct{ http.RoundTripper }

func (t bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	var w *pacer.WaitError
	if errors.As(err, &w) && r.Context().Err() == nil {
		err = &docsync.Failure{
			Err:  fmt.Errorf("%s, next window in %s: longer than --max-wait allows", w.Reason, cli.TimeLeft(w.Wait)),
			Hint: fmt.Sprintf("run the same command again after %s to go on, or allow more with --max-wait", w.Until.Format(time.DateTime)),
		}
	}
	return response, err
}

func (r *Run) work() Work {
	w := Work{Plan: r.plan, Documents: len(r.plan.Send), Requests: r.plan.Requests, OtherToken: r.o.DryRun && r.sync.OtherToken()}
	if r.o.Prune != docsync.Keep {
		w.Documents += len(r.plan.Vanished)
		w.Requests += r.plan.Deletions
	}
	return w
}

// Estimate returns how long the budget makes n more requests take; 0 if nothing is known of it.
func (r *Run) Estimate(n int) time.Duration {
	request, err := r.request()
	if err != nil {
		return 0
	}
	return r.pacer.Estimate(request, n)
}

// request returns a request like those that are sent, to ask the pacer about.
func (r *Run) request() (*http.Request, error) {
	request, err := http.NewRequest(http.MethodPut, r.o.To.JoinPath("v1/wp/documents").String(), nil)
	if err == nil {
		request.Header.Set("Authorization", "Bearer "+r.o.Token)
	}
	return request, err
}
