package docsync

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/weirlimit/weir/internal/folder"
)

// Push carries out the Plan: it stores changed documents, then deletes vanished ones if
// Options.Prune asks for it. Files that cannot be sent are skipped (see Skipped). The error is
// ErrInterrupted or a *Failure. Batches acknowledged before it are recorded.
func (s *Sync) Push(ctx context.Context) error {
	if err := s.Confirm(ctx); err != nil {
		return err
	}
	gone := s.found.vanished(s.state.known)
	u := &supply{s: s, todo: s.found.changed}
	var mu sync.Mutex // guards u and all
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

// parallel sends batches, several at a time, until next returns nil, a batch fails for good, or
// parent ends. After a failure or an interruption it starts no more batches and waits for those in
// flight.
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

// limit returns the max bytes of a body.
func (s *Sync) limit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.maxBody
}

// store stores a batch on the server and records it when it is acknowledged.
func (s *Sync) store(ctx context.Context, b *batch) error {
	return s.send(ctx, http.MethodPut, b, func(b *batch) error {
		if err := s.state.stored(b); err != nil {
			return err
		}
		s.result.Stored += len(b.ids)
		s.report(Stored{len(b.ids)})
		return nil
	})
}

// remove deletes a batch on the server and records that when it is acknowledged.
func (s *Sync) remove(ctx context.Context, b *batch) error {
	return s.send(ctx, http.MethodDelete, b, func(b *batch) error {
		if err := s.state.deleted(b); err != nil {
			return err
		}
		s.result.Deleted += len(b.ids)
		s.report(Deleted{len(b.ids)})
		return nil
	})
}

// send sends a batch. If the server rejects single documents, it sends the others. If the batch is
// too large or too slow to upload, it splits it. remember is called with mu held for each
// acknowledged batch.
func (s *Sync) send(ctx context.Context, method string, b *batch, remember func(*batch) error) error {
	a, err := s.sendBatch(ctx, method, b)
	var slow *slowError
	switch {
	case errors.As(err, &slow):
		return s.splitBatch(ctx, method, b, remember)
	case err != nil:
		return err
	case a.status == http.StatusRequestEntityTooLarge && len(b.ids) == 1:
		s.refused(method, b.ids[0], s.refusal(a), "split the file")
		return nil
	case a.status == http.StatusRequestEntityTooLarge:
		return s.splitBatch(ctx, method, b, remember)
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

// refused skips a document that the server refuses to store or to delete.
func (s *Sync) refused(method, id, reason, hint string) {
	if method == http.MethodDelete {
		reason, hint = "its file is gone, but it was not deleted: "+reason, "run again, or ask the operator of the server"
	}
	s.skip(folder.Problem{Path: id, Reason: reason, Hint: hint})
}

// splitBatch sends a batch in two halves and limits later batches to half its size.
func (s *Sync) splitBatch(ctx context.Context, method string, b *batch, remember func(*batch) error) error {
	if method == http.MethodPut {
		s.mu.Lock()
		s.maxBody = min(s.maxBody, len(b.json())/2)
		s.mu.Unlock()
	}
	middle := len(b.ids) / 2
	if err := s.send(ctx, method, b.only(func(i int) bool { return i < middle }), remember); err != nil {
		return err
	}
	return s.send(ctx, method, b.only(func(i int) bool { return i >= middle }), remember)
}

// withoutBad sends the documents of a batch that a 422 answer does not name.
func (s *Sync) withoutBad(ctx context.Context, method string, b *batch, a answer, remember func(*batch) error) error {
	reasons := itemProblems(a, len(b.ids))
	if len(reasons) == 0 {
		return s.acceptable(method, a, b)
	}
	for i, id := range b.ids {
		if reason, bad := reasons[i]; bad {
			s.refused(method, id, "the server refused it: "+s.printable(reason), "correct the file, and run again")
		}
	}
	rest := b.only(func(i int) bool { _, bad := reasons[i]; return !bad })
	if len(rest.ids) == 0 {
		return nil
	}
	return s.send(ctx, method, rest, remember)
}

// acceptable returns nil for an answer that acknowledges a batch, and otherwise the Failure that
// ends the sync.
func (s *Sync) acceptable(method string, a answer, b *batch) error {
	if a.status == http.StatusOK && acknowledges(method, a, len(b.ids)) {
		return nil
	}
	return s.unacceptable(method, documents, a)
}

// unacceptable returns the Failure for an answer that ends the sync.
func (s *Sync) unacceptable(method, path string, a answer) error {
	text, hint := s.refusal(a), "run the same command again to go on"
	switch {
	case a.status/100 == 2:
		text = fmt.Sprintf("the server answered %d, but not as the bulk-sync API does, with a count of the documents sent: none of them is recorded as done", a.status)
		hint = "is --to the address of the server itself, without the path of a page?"
	case a.status/100 == 3:
		text = fmt.Sprintf("the server redirects to %s, which is not followed", s.printable(a.header.Get("Location")))
		hint = "give --to the address that it moved to, if you trust it with the token"
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		hint = "is WEIR_TOKEN a token of this server that is in force? 'weir token create --workspace NAME' makes one"
	case a.status == http.StatusNotFound || a.status == http.StatusMethodNotAllowed:
		hint = "is --to the address of the server, without /v1/wp/documents at its end?"
	case a.status == http.StatusTooManyRequests:
		hint = "other clients use up the budget of the token: run the same command again when they are done, or share the budget with them, see --share"
	case a.status == http.StatusUnprocessableEntity:
		hint = "the answer does not name the document: ask the operator of the server, or sync the folders below one by one to find it"
	case a.status == http.StatusInsufficientStorage:
		hint = "when there is room, run the same command again to go on"
	}
	return &Failure{fmt.Errorf("%s %s: %s", method, s.endpoint(path), text), hint}
}
