package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"maps"

	"github.com/weirlimit/weir"
)

var _ weir.Keeper = (*plain)(nil)

// Reset implements weir.Keeper.
func (s *plain) Reset(_ context.Context, charges []weir.Charge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range charges {
		delete(s.used, string(c.Key))
		s.reset[string(c.Key)] = s.takes
	}
	return nil
}

// Grant implements weir.Keeper.
func (s *plain) Grant(_ context.Context, charges []weir.Charge, grants []weir.Grant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(charges) != len(grants) {
		return errors.New("not as many grants as charges")
	}
	for _, g := range grants {
		if g.Limit < 0 || g.Limit > weir.MaxLimit || g.Until < 0 || g.Until > 1<<40 {
			return errors.New("this is no grant")
		}
	}
	for i, c := range charges {
		s.grants[string(c.Key)] = grants[i]
	}
	return nil
}

// Granted implements weir.Keeper.
func (s *plain) Granted(charges []weir.Charge, grants []weir.Grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.granted(charges, grants, s.now())
}

func (s *plain) granted(charges []weir.Charge, grants []weir.Grant, now int64) (found bool) {
	for i, c := range charges {
		g := s.grants[string(c.Key)]
		if g.Limit == 0 || g.Until <= now {
			g = weir.Grant{}
		}
		grants[i], found = g, found || g != weir.Grant{}
	}
	return found
}

// A keeper is a plain store with some functions replaced.
type keeper struct {
	*plain
	reset   func([]weir.Charge)
	grant   func([]weir.Charge, []weir.Grant) error
	granted func([]weir.Charge, []weir.Grant) bool
}

func (k keeper) Reset(ctx context.Context, charges []weir.Charge) error {
	if k.reset == nil {
		return k.plain.Reset(ctx, charges)
	}
	k.reset(charges)
	return nil
}

func (k keeper) Grant(ctx context.Context, charges []weir.Charge, grants []weir.Grant) error {
	if k.grant == nil {
		return k.plain.Grant(ctx, charges, grants)
	}
	return k.grant(charges, grants)
}

func (k keeper) Granted(charges []weir.Charge, grants []weir.Grant) bool {
	if k.granted == nil {
		return k.plain.Granted(charges, grants)
	}
	return k.granted(charges, grants)
}

// keeperFaults are wrong keepers. Each has one error, and the subtests that detect
// it.
var keeperFaults = map[string]fault{
	"resets one window after the other": {func(s *plain) weir.Store {
		return keeper{plain: s, reset: func(charges []weir.Charge) {
			for i := range charges {
				_ = s.Reset(context.Background(), charges[i:i+1])
				yield()
			}
		}}
	}, []string{"windows are reset together or not"}},
	"resets twice": {func(s *plain) weir.Store {
		return keeper{plain: s, reset: func(charges []weir.Charge) {
			_ = s.Reset(context.Background(), charges)
			yield()
			_ = s.Reset(context.Background(), charges)
		}}
	}, []string{"between two resets exactly the limit is admitted"}},
	"resets everything": {func(s *plain) weir.Store {
		return keeper{plain: s, reset: func([]weir.Charge) {
			s.mu.Lock()
			defer s.mu.Unlock()
			clear(s.used)
		}}
	}, []string{"a reset leaves other windows alone"}},
	"resets nothing": {func(s *plain) weir.Store {
		return keeper{plain: s, reset: func([]weir.Charge) {}}
	}, []string{"a window that was reset begins anew", "between two resets exactly the limit is admitted", "windows are reset together or not"}},
	"resets the count and not the end": {func(s *plain) weir.Store {
		return keeper{plain: s, reset: func(charges []weir.Charge) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, c := range charges {
				s.used[string(c.Key)] = weir.Used{Reset: s.used[string(c.Key)].Reset}
			}
		}}
	}, []string{"a window that was reset begins anew"}},
	"opens what it resets": {func(s *plain) weir.Store {
		return keeper{plain: s, reset: func(charges []weir.Charge) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, c := range charges {
				s.used[string(c.Key)] = weir.Used{Count: 1, Reset: s.now() + c.Per}
			}
		}}
	}, []string{"a reset of nothing changes nothing"}},
	"ends grants a second late": {func(s *plain) weir.Store {
		return keeper{plain: s, granted: func(charges []weir.Charge, grants []weir.Grant) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.granted(charges, grants, s.now()-1)
		}}
	}, []string{"a grant ends at its very second"}},
	"ends grants a second early": {func(s *plain) weir.Store {
		return keeper{plain: s, granted: func(charges []weir.Charge, grants []weir.Grant) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.granted(charges, grants, s.now()+1)
		}}
	}, []string{"a grant ends at its very second"}},
	"grants the first window of all": {func(s *plain) weir.Store {
		return keeper{plain: s, granted: func(charges []weir.Charge, grants []weir.Grant) bool {
			found := s.Granted(charges, grants)
			for i := range grants {
				grants[i] = grants[0]
			}
			return found
		}}
	}, []string{"a grant is its window's alone"}},
	"grants by the caller": {func(s *plain) weir.Store {
		return s.underNames(func(c weir.Charge) []byte { return c.Key[c.Subject:] })
	},
		[]string{"a grant is its window's alone"}},
	"ends keys at a NUL": {func(s *plain) weir.Store {
		return s.underNames(func(c weir.Charge) []byte {
			who, _, _ := bytes.Cut(c.Key[c.Subject+1:], []byte{0})
			return append(bytes.Clone(c.Key[:c.Subject]), who...)
		})
	}, []string{"keys with grants are bytes"}},
	"keeps the higher of two grants": {func(s *plain) weir.Store {
		return keeper{plain: s, grant: func(charges []weir.Charge, grants []weir.Grant) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			for i, c := range charges {
				if grants[i].Limit == 0 || grants[i].Limit > s.grants[string(c.Key)].Limit {
					s.grants[string(c.Key)] = grants[i]
				}
			}
			return nil
		}}
	}, []string{"a grant is replaced and taken back", "a grant that cannot be one changes nothing"}},
	"takes no grant back": {func(s *plain) weir.Store {
		return keeper{plain: s, grant: func(charges []weir.Charge, grants []weir.Grant) error {
			for i := range grants {
				if grants[i].Limit != 0 {
					_ = s.Grant(context.Background(), charges[i:i+1], grants[i:i+1])
				}
			}
			return nil
		}}
	}, []string{"a grant is replaced and taken back", "keys with grants are bytes"}},
	"gives what comes before what cannot be": {func(s *plain) weir.Store {
		return keeper{plain: s, grant: func(charges []weir.Charge, grants []weir.Grant) error {
			for i := range min(len(charges), len(grants)) {
				if err := s.Grant(context.Background(), charges[i:i+1], grants[i:i+1]); err != nil {
					return err
				}
			}
			if len(charges) != len(grants) {
				return errors.New("not as many grants as charges")
			}
			return nil
		}}
	}, []string{"a grant that cannot be one changes nothing"}},
	"keeps a thousand grants": {func(s *plain) weir.Store {
		return keeper{plain: s, grant: func(charges []weir.Charge, grants []weir.Grant) error {
			before := maps.Clone(s.grants)
			err := s.Grant(context.Background(), charges, grants)
			if len(s.grants) > 1000 {
				s.grants = before
				return errors.New("too many")
			}
			return err
		}}
	}, []string{"as many grants as every keeper keeps"}},
	"spends a unit for a grant": {func(s *plain) weir.Store {
		return keeper{plain: s, grant: func(charges []weir.Charge, grants []weir.Grant) error {
			var r weir.Receipt
			for i := range charges {
				_ = s.Take(context.Background(), charges[i:i+1], &r)
			}
			return s.Grant(context.Background(), charges, grants)
		}}
	}, []string{"grants spend nothing"}},
}

// underNames keeps grants under a name that is derived from the key.
func (s *plain) underNames(of func(weir.Charge) []byte) weir.Store {
	named := func(charges []weir.Charge) (all []weir.Charge) {
		for _, c := range charges {
			all = append(all, weir.Charge{Key: of(c)})
		}
		return all
	}
	return keeper{
		plain: s,
		grant: func(charges []weir.Charge, grants []weir.Grant) error {
			return s.Grant(context.Background(), named(charges), grants)
		},
		granted: func(charges []weir.Charge, grants []weir.Grant) bool { return s.Granted(named(charges), grants) },
	}
}
