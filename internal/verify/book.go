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

// excuses say of clauses why nothing was found of them, where that is not told elsewhere.
var excuses = map[string]string{
	"fields-served":            "no request was served",
	"fields-error":             "no error was answered",
	"fields-5xx":               "no server error was answered",
	"refused-status":           "nothing was refused",
	"fields-refused":           "nothing was refused",
	"retry-after-only-refused": "nothing else than 429s was answered",
	"limit":                    "no answer had the three fields",
	"window":                   "no answer had the three fields",
	"retry-after":              "no 429 had a Retry-After to be held against what happened",
	"restored":                 "no window was seen to end",
	"refused-free":             "no window was seen to end",
	"reset-constant":           "no two answers of one window had a Reset",
	"exposed":                  "no answer to a request of another origin was seen",
}

// takesAnError are the clauses about errors, which a server without a fault need not answer.
var takesAnError = map[string]bool{"fields-error": true, "fields-5xx": true}

// excuse says of every clause of which nothing was found why that is. err is why the verification of the limiter ended early; nil: it did
// not.
func (d *driver) excuse(err error) {
	spent := d.last != nil && d.served == nil
	for _, c := range Clauses {
		why := gap{reason: Unobservable, text: excuses[c.ID], inherent: takesAnError[c.ID]}
		switch {
		case d.run.book.verdict(c.ID, d.name) != "":
			continue
		case err != nil:
			why = endedEarly(err)
		case !d.parts.why.isZero() && c.ID == "fixed-window":
			why = d.parts.why
		case !d.second.isZero() && c.ID == "separate":
			why = d.second
		case d.credential == "" && c.ID == "unverified":
			why = d.noneToDoubt()
		case spent:
			why = Shared.because("every request was refused: its budget was spent when it began")
		case why.text == "":
			why.text = "no answer was seen that would show it"
		}
		d.untested(c.ID, why)
	}
}
