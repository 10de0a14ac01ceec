package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// All visitors, in two processes, have seen a use that is left before any of them takes one: the
// write decides.
func TestAUseIsDecidedWhereItIsTaken(t *testing.T) {
	const visitors, most = 12, 5
	d, s := visited(t, Options{BusyTimeout: time.Minute})
	other := opened(t, d.path, Options{BusyTimeout: time.Minute})
	if _, err := d.PutCoupons(t.Context(), "demo", []Coupon{{Code: "X", Percent: 5, MaxUses: most}}, noon); err != nil {
		t.Fatal(err)
	}
	var seen, done sync.WaitGroup
	seen.Add(visitors)
	told := make([]error, visitors)
	for i := range visitors {
		s := s
		s.ID = fmt.Sprintf("ses_of_%d", i/2) // two requests of each session, one to each process
		if i%2 == 0 {
			if err := d.StartSession(t.Context(), s, fmt.Sprintf("cnv_of_%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		done.Go(func() {
			var once sync.Once
			_, told[i] = []*DB{d, other}[i%2].UseCoupon(context.Background(), s, "X", noon, func(Coupon) error {
				once.Do(func() { seen.Done(); seen.Wait() })
				return nil
			})
		})
	}
	done.Wait()
	held := 0
	for i := 0; i < visitors; i += 2 {
		switch {
		case told[i] == nil && told[i+1] == nil:
			held++
		case !errors.Is(told[i], ErrUsedUp) || !errors.Is(told[i+1], ErrUsedUp):
			t.Errorf("a session gets %v and %v, want both times the same: a use, or that it is used up", told[i], told[i+1])
		}
	}
	c, _, err := d.Coupons(t.Context(), "demo", "", 1)
	if err != nil || held != most || c[0].Uses != most {
		t.Errorf("%d of %d sessions hold a use, and %d are counted, %v: want %d", held, visitors/2, c[0].Uses, err, most)
	}
}

// A request that needs no write lock takes none, even if another process holds it.
func TestAnUnlimitedCouponAndAHeldUseNeedNoWrite(t *testing.T) {
	d, s := visited(t, Options{})
	second := Session{ID: "ses_2", Workspace: "demo", Created: noon, Expires: noon.Add(time.Hour)}
	if err := d.StartSession(t.Context(), second, "cnv_2"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.PutCoupons(t.Context(), "demo", []Coupon{{Code: "ANY", Percent: 5}, {Code: "ONE", Percent: 5, MaxUses: 1}, {Code: "TWO", Percent: 5, MaxUses: 2}}, noon); err != nil {
		t.Fatal(err)
	}
	use := func(d *DB, s Session, code string) error {
		_, err := d.UseCoupon(t.Context(), s, code, noon, func(Coupon) error { return nil })
		return err
	}
	for _, code := range []string{"ONE", "TWO"} {
		if err := use(d, s, code); err != nil {
			t.Fatal(err)
		}
	}
	impatient := opened(t, d.path, Options{BusyTimeout: time.Millisecond})
	err := d.WithWriteLock(t.Context(), func() error {
		for _, c := range []struct {
			s    Session
			code string
			want error
		}{
			{s, "ANY", nil}, {s, "ONE", nil}, {s, "TWO", nil}, {second, "ANY", nil}, {second, "ONE", ErrUsedUp},
			{second, "TWO", ErrBusy}, // it would have to store that
		} {
			if err := use(impatient, c.s, c.code); !errors.Is(err, c.want) {
				t.Errorf("session %s gets %v for %s, want %v", c.s.ID, err, c.code, c.want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
