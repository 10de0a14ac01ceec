// Package docsync keeps the documents of a bulk-sync surface in step with a folder: it sends what has changed since the last
// time, in batches as large as allowed, and remembers what was acknowledged.
//
//	docsync.go   what people call: Open, Plan, Push, Close
//	scan.go      the folder against what is known: changed, unchanged, vanished
//	batch.go     documents as bodies of requests
//	push.go      several batches in flight; what their answers mean
//	request.go   one request: tried again, bounded, never followed
//	state.go     what was acknowledged: a journal that survives kill -9
//	whose.go     which workspace it belongs to
//	sender.go    what is in flight when the sync is interrupted ends in peace
//
// How fast it may go is not decided here: the http.Client that it is given paces the requests.
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

// The surface's limits.
const (
	maxItems  = 500
	maxPut    = 8 << 20 // bytes of a body
	maxDelete = 1 << 20
)

// Options say what is synced, where to, and what is kept of it. Folder, To, Token, TokenID, Client and State are required.
type Options struct {
	Folder  *folder.Folder
	To      *url.URL // of the server, above /v1/wp
	Token   string   // sent as Authorization: Bearer; never stored, never told
	TokenID string   // by which the token is known in the state, which belongs to To and to the workspace that the server says it is for

	// Base is what links that no file gives itself begin with, as Folder has it. The state remembers it; where it is another
	// than the last time, all such documents are sent again, which NewBase says is meant. Empty, it is neither compared nor kept.
	Base    string
	NewBase bool

	// Client sends the requests. It waits where there is no budget, until the request's context ends. Its transport sends
	// through a Sender, or an interruption would cut what is in flight. Where its error is a *Failure, that ends the sync.
	Client *http.Client

	State    string // the file that remembers what was acknowledged; it is made where it is missing
	Parallel int    // batches in flight; 0 means 4
	All      bool   // send what is unchanged, too; a state of another target is begun anew
	Prune    Prune  // whether what has vanished is deleted
	DryRun   bool   // only Plan: the state is read, not locked, and not written

	// Report, if set, is told how it goes, by one goroutine at a time.
	Report func(Event)
}

// Prune says what becomes of documents whose files have vanished.
type Prune int

const (
	Keep      Prune = iota // they stay
	PruneSome              // they are deleted, unless so many have vanished that a part of the folder may be missing
	PruneMany              // they are deleted, unless the folder has no document at all
)

// mostPruned is how many documents PruneSome deletes, where they are more than half of those known.
const mostPruned = 10

// An Event is a Read, Alike, Skipped, Stored, Deleted or Trouble.
type Event any

// Read: that many files were read so far, to see what has changed.
type Read struct{ Files int }

// Skipped: a file cannot be a document, or the server refused it.
type Skipped struct{ Problem folder.Problem }

// Stored: a batch of so many documents was acknowledged.
type Stored struct{ Documents int }

// Deleted: a batch of so many deletions was acknowledged.
type Deleted struct{ Documents int }

// Trouble: a request failed, and is sent again.
type Trouble struct {
	Reason string
	Again  time.Duration
}

// ErrInterrupted means that the context ended before all was done. What was acknowledged is remembered.
var ErrInterrupted = errors.New("interrupted")

// A Failure is why a sync cannot go on, and what to do about it.
type Failure struct {
	Err  error
	Hint string
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// A Sync is one run. Its methods are called one after the other.
type Sync struct {
	o     Options
	state *state
	found *found

	mu      sync.Mutex // guards what follows, the state's writing and calls of Report
	skipped []folder.Problem
	result  Result
	largest int // bytes that a body may have, since a server has refused a larger one
}

// A Result counts what a Push has done.
type Result struct {
	Stored  int // documents acknowledged
	Deleted int
}

// Open opens the state. The error is a *Failure: another sync uses it, it is another target's, it cannot be written.
func Open(o Options) (*Sync, error) {
	if o.Parallel == 0 {
		o.Parallel = 4
	}
	s := &Sync{o: o, largest: maxPut}
	var err error
	s.state, err = openState(o.State, target{to: o.To.String(), token: o.TokenID, base: o.Base}, terms{anew: o.All, rebase: o.NewBase, readOnly: o.DryRun})
	return s, err
}

// Close lets go of the state.
func (s *Sync) Close() error { return s.state.close() }

// A Plan is what Push will do.
type Plan struct {
	Send      []string // ids of the documents that are new or changed, in order
	Unchanged int
	Vanished  []string // ids that this state knows and whose files are gone, in order
	Requests  int      // to send; deleting takes Deletions more
	Deletions int
	Derived   int          // documents whose link was made from the base
	WasBase   string       // the base of the last time, where it was another; else empty
	Passed    folder.Tally // what is no document
	Found     int          // files that should be documents, bad ones too
}

// Plan reads the whole folder. The error is ErrInterrupted or a *Failure: the folder cannot be read, or must not be pruned.
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

// prunable is nil where what has vanished may be deleted. What has vanished may be a disk that is not mounted.
func (s *Sync) prunable(gone []string) error {
	known := len(s.state.known)
	switch {
	case s.o.Prune == Keep || len(gone) == 0:
		return nil
	case len(s.found.seen) == 0:
		return &Failure{fmt.Errorf("the folder has no document at all, and %d are known: it is not pruned", known),
			"is it the right folder, and is it there? To delete them nevertheless, leave one file in it"}
	case s.o.Prune == PruneSome && len(gone) > mostPruned && len(gone) > known/2:
		return &Failure{fmt.Errorf("%d of %d known documents are gone from the folder: so many are not pruned", len(gone), known),
			"is all of the folder there? To delete them nevertheless, give --prune-many"}
	}
	return nil
}

// Skipped returns the files that were not sent, and why, so far.
func (s *Sync) Skipped() []folder.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.skipped)
}

// Result returns what was done so far.
func (s *Sync) Result() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result
}

// skip notes a problem, once a path.
func (s *Sync) skip(p folder.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped = append(s.skipped, p)
	s.tell(Skipped{p})
}

// tell is called with mu held.
func (s *Sync) tell(e Event) {
	if s.o.Report != nil {
		s.o.Report(e)
	}
}
