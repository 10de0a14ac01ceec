// Package docsync keeps the documents of a bulk-sync API in step with a folder. It sends the
// documents that have changed since the last run, in batches as large as allowed, and records those
// that were acknowledged.
//
//	docsync.go    the API: Open, Plan, Push, Close
//	scan.go       compares the folder with the state: changed, unchanged, vanished
//	batch.go      documents as bodies of requests
//	push.go       sends several batches at a time and acts on the answers
//	request.go    one request: retries, bounds, no redirects
//	state.go      the acknowledged documents, in a journal that survives kill -9
//	workspace.go  binds the state to a workspace
//	sender.go     a transport that completes requests in flight after an interruption
//
// The package does not limit its rate: the http.Client passed to it paces the requests.
package docsync

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/folder"
)

// Limits of the bulk-sync API.
const (
	maxItems  = 500
	maxPut    = 8 << 20 // bytes of a body that stores
	maxDelete = 1 << 20 // bytes of a body that deletes
)

// Options configure a Sync. Folder, To, Token, TokenID, Client and State are required.
type Options struct {
	Folder *folder.Folder
	To     *url.URL // base URL of the server, without /v1/wp
	Token  string   // sent as Authorization: Bearer; never stored or printed
	// identifies the token in the state. The state belongs to To and to the workspace that the
	// server reports for the token.
	TokenID string

	// Base is the beginning of the links of documents whose files give none, the same as in
	// Folder's options. The state records it. If it differs from the last run's, all such documents
	// are sent again, and NewBase must be set to confirm that. If Base is empty, it is neither
	// compared nor recorded.
	Base    string
	NewBase bool

	// Client sends the requests. If there is no budget it waits until the request's context ends.
	// Its transport must send through a Sender, or an interruption would abort requests in flight.
	// If its error is a *Failure, the sync ends with it.
	Client *http.Client

	State    string // the file that records acknowledged documents; created if it is missing
	Parallel int    // batches in flight at a time; 0 means 4
	All      bool   // also send unchanged documents, and start a state of another target over
	Prune    Prune  // whether documents whose files have vanished are deleted
	DryRun   bool   // only Plan is called: the state is read, but neither locked nor written

	// Report, if not nil, is called with each event. Calls are serialized.
	Report func(Event)
}

// Prune selects which documents are deleted whose files have vanished.
type Prune int

const (
	Keep Prune = iota // none
	// all, unless so many have vanished that part of the folder may be missing
	PruneSome
	PruneMany // all, unless the folder has no document at all
)

// maxPruned is the number of documents that PruneSome deletes at most if they are more than half of
// those known.
const maxPruned = 10

// An Event is a Read, SameURL, Skipped, Stored, Deleted or Retry.
type Event any

// Read reports the number of files read so far by a scan.
type Read struct{ Files int }

// Skipped reports a file that cannot be a document, or that the server rejected.
type Skipped struct{ Problem folder.Problem }

// Stored reports an acknowledged batch of stored documents.
type Stored struct{ Documents int }

// Deleted reports an acknowledged batch of deletions.
type Deleted struct{ Documents int }

// Retry reports that a request failed for Reason and is sent again after the time After.
type Retry struct {
	Reason string
	After  time.Duration
}

// ErrInterrupted means that the context ended before the sync was complete. Acknowledged batches
// are recorded.
var ErrInterrupted = errors.New("interrupted")

// A Failure is an error that ends a sync, with a hint on how to resolve it.
type Failure struct {
	Err  error
	Hint string
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// A Sync is one run. It is not safe for concurrent use, except Skipped and Result.
type Sync struct {
	o     Options
	state *state
	found *found

	mu      sync.Mutex // guards the fields below, writes of the state and calls of Report
	skipped []folder.Problem
	result  Result
	maxBody int // max bytes of a body; smaller after the server has rejected a larger one
}

// A Result counts what a Push has done.
type Result struct {
	Stored  int // documents acknowledged
	Deleted int
}

// Open opens the state. The error is a *Failure: the state is in use by another sync, belongs to
// another target, or cannot be read or written.
func Open(o Options) (*Sync, error) {
	if o.Parallel == 0 {
		o.Parallel = 4
	}
	s := &Sync{o: o, maxBody: maxPut}
	var err error
	s.state, err = openState(o.State, target{to: o.To.String(), token: o.TokenID, base: o.Base}, stateOptions{startOver: o.All, newBase: o.NewBase, readOnly: o.DryRun})
	return s, err
}

// Close closes and unlocks the state.
func (s *Sync) Close() error { return s.state.close() }

// A Plan is what Push will do.
type Plan struct {
	Send      []string // ids of the documents that are new or changed, in order
	Unchanged int
	Vanished  []string // ids that are in the state and whose files are gone, in order
	Requests  int      // number of requests that store; Deletions more delete
	Deletions int
	Derived   int          // documents whose link begins with the base
	WasBase   string       // the base of the last run if it was another one; else empty
	Passed    folder.Tally // files that are not documents
	Found     int          // files that should be documents, including bad ones
}

// Plan scans the whole folder. The error is ErrInterrupted or a *Failure: the folder cannot be
// read, or must not be pruned.
func (s *Sync) Plan(ctx context.Context) (Plan, error) {
	if err := s.scan(ctx); err != nil {
		return Plan{}, err
	}
	f := s.found
	p := Plan{Unchanged: f.unchanged, Passed: f.passed, Derived: f.derived, Found: len(f.seen) + f.foldersUnread()}
	sizes := make([]int, len(f.changed))
	for i, c := range f.changed {
		p.Send = append(p.Send, c.id)
		sizes[i] = int(c.size)
	}
	p.Requests = requests(sizes, maxPut)
	if was := s.state.was.base; was != "" && was != s.o.Base {
		p.WasBase = was
	}
	p.Vanished = f.vanished(s.state.known)
	p.Deletions = (len(p.Vanished) + maxItems - 1) / maxItems
	return p, s.prunable(p.Vanished)
}

// prunable returns nil if the vanished documents may be deleted. They may have vanished because a
// disk is not mounted.
func (s *Sync) prunable(gone []string) error {
	known := len(s.state.known)
	switch {
	case s.o.Prune == Keep || len(gone) == 0:
		return nil
	case len(s.found.seen) == 0:
		return &Failure{fmt.Errorf("the folder has no documents, and %d are known: it is not pruned", known),
			"is it the right folder, and is it there? To delete them anyway, leave one file in it"}
	case s.o.Prune == PruneSome && len(gone) > maxPruned && len(gone) > known/2:
		return &Failure{fmt.Errorf("%d of %d known documents are gone from the folder: so many are not pruned", len(gone), known),
			"is all of the folder there? To delete them anyway, give --prune-many"}
	}
	return nil
}

// Skipped returns the files that were not sent so far, with the reasons.
func (s *Sync) Skipped() []folder.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.skipped)
}

// Result returns the counts so far.
func (s *Sync) Result() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result
}

// skip records and reports a file that cannot be sent.
func (s *Sync) skip(p folder.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped = append(s.skipped, p)
	s.report(Skipped{p})
}

// report passes an event to Options.Report. mu is held.
func (s *Sync) report(e Event) {
	if s.o.Report != nil {
		s.o.Report(e)
	}
}
