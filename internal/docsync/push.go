package docsync

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/weirlimit/weir/internal/folder"
)

// Push does what Plan has said: it stores what has changed, then, where that is asked for, deletes what has vanished. Files that
// cannot be sent are skipped, see Skipped. The error is ErrInterrupted or a *Failure; what was acknowledged before is remembered.
func (s *Sync) Push(ctx context.Context) error {
	if err := s.Confirm(ctx); err != nil {
		return err
	}
	gone := s.found.vanished(s.state.known)
	u := &supply{s: s, todo: s.found.changed}
	var mu sync.Mutex // of u
	err := s.parallel(ctx, func() *batch {
		mu.Lock()
		defer mu.Unlock()
		return u.next(ctx, s.limit())
	}, s.store)
	if err != nil || s.o.Prune == Keep {
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

// store puts a batch, and remembers what is acknowledged.
func (s *Sync) store(ctx context.Context, b *batch) error {
	return s.send(ctx, http.MethodPut, b, func(b *batch) error {
		if err := s.state.stored(b); err != nil {
			return err
		}
		s.result.Stored += len(b.ids)
		s.tell(Stored{len(b.ids)})
		return nil
	})
}

// remove deletes a batch, and forgets what is acknowledged.
func (s *Sync) remove(ctx context.Context, b *batch) error {
	return s.send(ctx, http.MethodDelete, b, func(b *batch) error {
		if err := s.state.deleted(b); err != nil {
			return err
		}
		s.result.Deleted += len(b.ids)
		s.tell(Deleted{len(b.ids)})
		return nil
	})
}

// send sends a batch, without the documents that the server names as bad, in halves where it is too large, or too long under way. What is acknowledged
// is remembered with mu held.
func (s *Sync) send(ctx context.Context, method string, b *batch, remember func(*batch) error) error {
	a, err := s.ask(ctx, method, b)
	var slow *slowError
	switch {
	case errors.As(err, &slow):
		return s.halves(ctx, method, b, remember)
	case err != nil:
		return err
	case a.status == http.StatusRequestEntityTooLarge && len(b.ids) == 1:
		s.refused(method, b.ids[0], s.refusal(a), "split the file")
		return nil
	case a.status == http.StatusRequestEntityTooLarge:
		return s.halves(ctx, method, b, remember)
	case a.status == http.StatusUnprocessableEntity:
		return s.withoutBad(ctx, method, b, a, remember)
	}
	if err := s.acceptable(method, a, b); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return remember(b)
}

// refused skips a document that the server does not take, or does not delete.
func (s *Sync) refused(method, id, reason, hint string) {
	if method == http.MethodDelete {
		reason, hint = "its file is gone, but it was not deleted: "+reason, "run again, or ask who runs the server"
	}
	s.skip(folder.Problem{Path: id, Reason: reason, Hint: hint})
}

// halves sends a batch that is too large for the server or the way there, and has the next ones made smaller.
func (s *Sync) halves(ctx context.Context, method string, b *batch, remember func(*batch) error) error {
	if method == http.MethodPut {
		s.mu.Lock()
		s.largest = min(s.largest, len(b.json())/2)
		s.mu.Unlock()
	}
	middle := len(b.ids) / 2
	if err := s.send(ctx, method, b.only(func(i int) bool { return i < middle }), remember); err != nil {
		return err
	}
	return s.send(ctx, method, b.only(func(i int) bool { return i >= middle }), remember)
}

// withoutBad sends the documents of a batch that a 422 does not name.
func (s *Sync) withoutBad(ctx context.Context, method string, b *batch, a answer, remember func(*batch) error) error {
	reasons := itemProblems(a, len(b.ids))
	if len(reasons) == 0 {
		return s.acceptable(method, a, b)
	}
	for i, id := range b.ids {
		if reason, bad := reasons[i]; bad {
			s.refused(method, id, "the server refused it: "+s.shown(reason), "correct the file, and run again")
		}
	}
	rest := b.only(func(i int) bool { _, bad := reasons[i]; return !bad })
	if len(rest.ids) == 0 {
		return nil
	}
	return s.send(ctx, method, rest, remember)
}

// acceptable is nil for an answer that acknowledges a batch, else why the sync cannot go on.
func (s *Sync) acceptable(method string, a answer, b *batch) error {
	if a.status == http.StatusOK && acknowledges(method, a, len(b.ids)) {
		return nil
	}
	return s.unacceptable(method, documents, a)
}

// unacceptable is why the sync cannot go on after an answer, and what to do.
func (s *Sync) unacceptable(method, path string, a answer) error {
	text, hint := s.refusal(a), "run the same command again to go on"
	switch {
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
	case a.status == http.StatusTooManyRequests:
		hint = "others use up what the token may do: run the same command again when they are done, or share the budget with them, see --share"
	case a.status == http.StatusUnprocessableEntity:
		hint = "it does not say which document it means: ask who runs the server, or sync the folders below one by one to find it"
	case a.status == http.StatusInsufficientStorage:
		hint = "when there is room, run the same command again to go on"
	}
	return &Failure{fmt.Errorf("%s %s: %s", method, s.endpoint(path), text), hint}
}
