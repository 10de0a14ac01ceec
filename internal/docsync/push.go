package docsync

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/weirlimit/weir/internal/folder"
)

// Push does what Plan has said: it stores what has changed, then, with prune, deletes what has vanished. Files that cannot be
// sent are skipped, see Skipped. The error is ErrInterrupted or a *Failure; what was acknowledged before is remembered.
func (s *Sync) Push(ctx context.Context, prune bool) error {
	gone := s.found.vanished(s.state.known)
	if prune && len(gone) > 0 && len(s.found.seen) == 0 {
		return &Failure{fmt.Errorf("the folder has no document at all, and %d are known: it is not pruned", len(gone)),
			"is it the right folder, and is it there? To delete them nevertheless, leave one file in it"}
	}
	u := &supply{s: s, todo: s.found.changed}
	var mu sync.Mutex // of u
	err := s.parallel(ctx, func() *batch {
		mu.Lock()
		defer mu.Unlock()
		return u.next(ctx, s.limit())
	}, s.store)
	if err != nil || !prune {
		return err
	}
	all := deletions(gone)
	return s.parallel(ctx, func() (b *batch) {
		mu.Lock()
		defer mu.Unlock()
		if len(all) > 0 {
			b, all = all[0], all[1:]
		}
		return b
	}, s.remove)
}

// parallel sends batches, several at a time, until there are none left, one fails for good, or ctx ends: then no new one is
// begun, and those in flight end.
func (s *Sync) parallel(parent context.Context, next func() *batch, send func(context.Context, *batch) error) error {
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	var workers sync.WaitGroup
	for range s.o.Parallel {
		workers.Go(func() {
			for ctx.Err() == nil {
				b := next()
				if b == nil {
					return
				}
				if err := send(ctx, b); err != nil {
					stop(err) // the first is the cause
					return
				}
			}
		})
	}
	workers.Wait()
	var f *Failure
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &f):
		return f
	case ctx.Err() != nil:
		return ErrInterrupted
	}
	return nil
}

// limit returns how many bytes a body may have.
func (s *Sync) limit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.largest
}

// store puts a batch, without the documents that the server names as bad, in halves where it is too large.
func (s *Sync) store(ctx context.Context, b *batch) error {
	a, err := s.ask(ctx, http.MethodPut, b.json())
	switch {
	case err != nil:
		return err
	case a.status == http.StatusRequestEntityTooLarge && len(b.ids) == 1:
		s.skip(folder.Problem{Path: b.ids[0], Reason: s.refusal(a), Hint: "split the file"})
		return nil
	case a.status == http.StatusRequestEntityTooLarge:
		return s.halves(ctx, b)
	case a.status == http.StatusUnprocessableEntity:
		return s.withoutBad(ctx, b, a)
	}
	if err := s.acceptable(http.MethodPut, a, b); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.state.stored(b); err != nil {
		return err
	}
	s.result.Stored += len(b.ids)
	s.tell(Stored{len(b.ids)})
	return nil
}

// halves stores a batch that is too large for the server, and has the next ones made smaller.
func (s *Sync) halves(ctx context.Context, b *batch) error {
	s.mu.Lock()
	s.largest = min(s.largest, len(b.json())/2)
	s.mu.Unlock()
	middle := len(b.ids) / 2
	if err := s.store(ctx, b.only(func(i int) bool { return i < middle })); err != nil {
		return err
	}
	return s.store(ctx, b.only(func(i int) bool { return i >= middle }))
}

// withoutBad stores the documents of a batch that a 422 does not name.
func (s *Sync) withoutBad(ctx context.Context, b *batch, a answer) error {
	reasons := itemProblems(a, len(b.ids))
	if len(reasons) == 0 {
		return s.acceptable(http.MethodPut, a, b)
	}
	for i, id := range b.ids {
		if reason, bad := reasons[i]; bad {
			s.skip(folder.Problem{Path: id, Reason: "the server refused it: " + s.shown(reason), Hint: "correct the file, and run again"})
		}
	}
	rest := b.only(func(i int) bool { _, bad := reasons[i]; return !bad })
	if len(rest.ids) == 0 {
		return nil
	}
	return s.store(ctx, rest)
}

// remove deletes a batch.
func (s *Sync) remove(ctx context.Context, b *batch) error {
	a, err := s.ask(ctx, http.MethodDelete, b.json())
	if err != nil {
		return err
	}
	if err := s.acceptable(http.MethodDelete, a, b); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.state.deleted(b); err != nil {
		return err
	}
	s.result.Deleted += len(b.ids)
	s.tell(Deleted{len(b.ids)})
	return nil
}

// acceptable is nil for an answer that acknowledges a batch, else why the sync cannot go on.
func (s *Sync) acceptable(method string, a answer, b *batch) error {
	text, hint := s.refusal(a), "run the same command again to go on"
	switch {
	case a.status == http.StatusOK && acknowledges(method, a, len(b.ids)):
		return nil
	case a.status/100 == 2:
		text = fmt.Sprintf("the server answered %d, but not as the bulk-sync surface does, with what became of all that was sent: nothing of it counts as done", a.status)
		hint = "is --to the address of the server, without a path of a page, and is what answers there the server itself?"
	case a.status/100 == 3:
		text = fmt.Sprintf("the server sends to %s, which is not followed", s.shown(a.header.Get("Location")))
		hint = "give --to the address that it moved to, if you trust it with the token"
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		hint = "is WEIR_TOKEN a token of this server that is in force? 'weir token create --workspace NAME' makes one"
	case a.status == http.StatusNotFound || a.status == http.StatusMethodNotAllowed:
		hint = "is --to the address of the server, without /v1/wp/documents?"
	case a.status == http.StatusInsufficientStorage:
		hint = "when there is room, run the same command again to go on"
	}
	return &Failure{fmt.Errorf("%s %s: %s", method, s.endpoint(), text), hint}
}
