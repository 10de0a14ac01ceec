package verify

import (
	"fmt"
	"sync"

	"github.com/weirlimit/weir"
)

// A book keeps the verdicts. It is safe for concurrent use.
type book struct {
	mu      sync.Mutex
	found   map[place]Result
	exhibit func(*answer) *Exchange
	hide    func(string) string // removes credentials from a text
}

type place struct{ clause, limiter string }

func newBook(exhibit func(*answer) *Exchange, hide func(string) string) *book {
	return &book{found: make(map[place]Result), exhibit: exhibit, hide: hide}
}

// kept records that a clause was seen to hold. A broken clause stays broken.
func (b *book) kept(clause, limiter, format string, args ...any) {
	b.note(Result{Clause: clause, Limiter: limiter, Verdict: Kept, Detail: fmt.Sprintf(format, args...)})
}

// untested records why a clause could not be tested. An earlier verdict stays.
func (b *book) untested(clause, limiter string, why gap) {
	b.note(Result{Clause: clause, Limiter: limiter, Verdict: Untested, Reason: why.reason, Inherent: why.inherent, Detail: why.text})
}

// broken records that a clause does not hold, with the answer that shows it. The first record
// stays.
func (b *book) broken(clause, limiter string, a *answer, format string, args ...any) {
	r := Result{Clause: clause, Limiter: limiter, Verdict: Broken, Detail: fmt.Sprintf(format, args...)}
	if a != nil {
		r.Exchange = b.exhibit(a)
	}
	b.note(r)
}

func (b *book) note(r Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := place{r.Clause, r.Limiter}
	before, ok := b.found[at]
	if ok && (weight(before.Verdict) > weight(r.Verdict) || before.Verdict == r.Verdict && r.Verdict != Kept) {
		return
	}
	r.Detail = b.hide(r.Detail)
	b.found[at] = r
}

// weight orders verdicts: the heavier one stays.
func weight(v Verdict) int {
	switch v {
	case Broken:
		return 2
	case Kept:
		return 1
	}
	return 0
}

// verdict returns the verdict so far, or "" before there is one.
func (b *book) verdict(clause, limiter string) Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.found[place{clause, limiter}].Verdict
}

// results returns the verdicts in the order of Clauses, then of the policy's limiters.
func (b *book) results(p weir.Policy) []Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Result
	for _, c := range Clauses {
		for i := range p.Limiters {
			if r, ok := b.found[place{c.ID, p.Limiters[i].Name}]; ok {
				all = append(all, r)
			}
		}
	}
	return all
}
