package weir

import (
	"iter"
	"time"
)

// Anew returns the windows of p that count from zero once p has replaced old (Decider.Swap), and
// their limiters: those that old does not have. All others keep their counts. The limit in flight
// is one of the windows. They are in the policy's order.
func (p Policy) Anew(old Policy) iter.Seq2[*Limiter, Window] {
	return func(yield func(*Limiter, Window) bool) {
		had := make(map[string]bool)
		for i := range old.Limiters {
			for _, w := range old.Limiters[i].Rows() {
				had[string(old.Limiters[i].scope(&w))] = true
			}
		}
		for i := range p.Limiters {
			l := &p.Limiters[i]
			for _, w := range l.Rows() {
				if !had[string(l.scope(&w))] && !yield(l, w) {
					return
				}
			}
		}
	}
}

// scope returns what identifies a window of l, which is how its keys begin. Two policies count in
// one window if its scope is the same (D5).
func (l *Limiter) scope(w *Window) []byte {
	return appendScope(nil, l.Name, int64(w.Per/time.Second)|w.mark(), l.endsText(*w), w.Key)
}
