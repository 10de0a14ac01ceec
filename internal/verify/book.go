package verify

import (
	"fmt"
	"sync"

	"github.com/weirlimit/weir"
)

// A book keeps what was found so far. It is safe for concurrent use.
type book struct {
	mu      sync.Mutex
	found   map[place]Result
	exhibit func(*answer) *Exchange
	hide    func(string) string // leaves credentials out of a text
}

type place struct{ clause, limiter string }

func newBook(exhibit func(*answer) *Exchange, hide func(string) string) *book {
	return &book{found: make(map[place]Result), exhibit: exhibit, hide: hide}
}

// kept notes that a clause was seen to hold. What was found broken stays so.
func (b *book) kept(clause, limiter, format string, args ...any) {
	b.note(Result{Clause: clause, Limiter: limiter, Verdict: Kept, Detail: fmt.Sprintf(format, args...)})
}

// untested notes why a clause could not be tested. What was found before stays.
func (b *book) untested(clause, limiter string, why gap) {
	b.note(Result{Clause: clause, Limiter: limiter, Verdict: Untested, Reason: why.reason, Inherent: why.inherent, Detail: why.text})
}

// broken notes that a clause does not hold, as a shows. The first that shows it stays.
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

// weight orders verdicts: the heavier stays.
func weight(v Verdict) int {
	switch v {
	case Broken:
		return 2
	case Kept:
		return 1
	}
	return 0
}

// verdict returns what was found of a clause so far; empty: nothing.
func (b *book) verdict(clause, limiter string) Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.found[place{clause, limiter}].Verdict
}

// results returns what was found, in the order of Clauses, then of the policy's limiters.
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
