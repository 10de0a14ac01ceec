package verify

import (
	"context"
	"errors"
	"slices"

	"github.com/weirlimit/weir/internal/wait"
)

// The second half of a slotRound: other callers, and requests that end.

// sparesOthers wants a request of a caller with slots of its own to be admitted.
func (s *slotRound) sparesOthers(ctx context.Context) error {
	other, source := s.another()
	shared := 0 // windows that count the other caller like main
	for i := range s.part.limiter.Windows {
		if !slices.Contains(countedBy(s.part.limiter.Windows[i].Key, s.who.has), source) {
			shared++
		}
	}
	if source == "" || shared > 0 && shared < len(s.part.limiter.Windows) {
		return nil
	}
	a, err := s.send(ctx, s.request(s.endpoint, other))
	if err != nil {
		return err
	}
	if shared > 0 && a.admitted() {
		s.note(a)
		s.admitted++
	} else {
		s.judge(a)
	}
	switch {
	case a.admitted():
		s.others = "; another caller was admitted meanwhile"
	case s.part.isOfSlots(a) && !s.seen.isLost(): // a lost one may hold a slot
		s.broken(a, "another caller was refused while %d requests of this one were under way", len(s.under))
	}
	return nil
}

// another returns a caller that has slots of its own, and the source in which it differs from main;
// "" if there is none.
func (s *slotRound) another() (other caller, source string) {
	for _, source := range countedBy(s.part.limiter.InFlight.Key, s.who.has) {
		switch {
		case s.who.canVary(source):
			return s.who.main.another(source), source
		case s.who.isProven(source) && s.who.anotherCredential(source) != "":
			other = s.who.main
			other.authorization = s.who.anotherCredential(source)
			return other, source
		}
	}
	return caller{}, ""
}

// aloneInFlight reports whether only this verifier can use main's slots.
func (p *probe) aloneInFlight() bool {
	by := countedBy(p.part.limiter.InFlight.Key, p.who.has)
	return slices.ContainsFunc(by, p.who.isFresh) || p.run.own && slices.Contains(by, sourceSession)
}

// endOne ends one held request, and wants its slot to be used once: a request is admitted, and one
// more is held.
func (s *slotRound) endOne(ctx context.Context) error {
	if err := s.stillHeld(); err != nil {
		return err
	}
	h := s.under[0]
	s.under = s.under[1:]
	if err := s.close(h); err != nil {
		return err
	}
	if err := s.awaitFree(ctx, 1); err != nil {
		return err
	}
	if err := wait.For(ctx, letCome); err != nil {
		return err
	}
	return s.holdOne(ctx)
}

// close ends a held request.
func (s *slotRound) close(h *held) error {
	a, err := s.end(h)
	var lost *lostError
	switch {
	case errors.As(err, &lost):
		s.seen.lose()
	case err != nil:
		return err
	case a == nil:
		s.seen.lose()
	case !s.seen.mark(a).admitted():
		return s.judgeTooFew(a)
	default:
		s.note(a)
	}
	return nil
}

// awaitFree wants a request to be admitted after some have ended.
func (s *slotRound) awaitFree(ctx context.Context, ended int) error {
	a, err := s.await(ctx)
	switch {
	case err != nil:
		return err
	case a.admitted():
		s.admitted++
		return nil
	case s.aloneInFlight() && s.part.isOfSlots(a):
		s.broken(a, "refused although %d of the requests under way had ended: the slots do not come back", ended)
	}
	return s.unclear(Shared.because("refused although %d of the requests under way had ended: others may use the same slots", ended))
}

// endAll ends all held requests.
func (s *slotRound) endAll(ctx context.Context) error {
	if err := s.stillHeld(); err != nil {
		return err
	}
	ended := len(s.under)
	if err := s.endHeld(); err != nil {
		return err
	}
	return s.awaitFree(ctx, ended)
}

// endHeld ends what is under way.
func (s *slotRound) endHeld() error {
	for len(s.under) > 0 {
		h := s.under[0]
		s.under = s.under[1:]
		if err := s.close(h); err != nil {
			return err
		}
	}
	return nil
}

// account wants the refused requests to have spent nothing of the window.
func (s *slotRound) account(ctx context.Context) error {
	last := s.seen.last
	if !s.part.hasWindows() || s.part.countsSome() || s.part.light || last == nil || !last.complete() || !last.admitted() ||
		last.reset != s.first.reset || last.limit != s.first.limit || !s.isSure(last.limit) {
		return nil
	}
	spent := s.first.remaining - last.remaining
	if want := s.admitted * s.part.costOf(last.limit); spent > want {
		s.broken(last, "%d units were spent by %d requests while more were refused: a request that the slots refuse spends nothing", spent, s.admitted)
	}
	return nil
}
