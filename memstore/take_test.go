package memstore_test

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// Lengths in seconds.
const day, week = 86400, 7 * 86400

// charge returns a charge of one unit to the window of per seconds that is named
// kind. Its key has the parts of who, the first of which is the subject.
func charge(kind string, limit, per int64, who ...string) weir.Charge {
	c := weir.Charge{Limit: limit, Per: per, Cost: 1}
	c.Key = binary.BigEndian.AppendUint32(append([]byte{byte(len(kind))}, kind...), uint32(per))
	c.Scope, c.Subject = len(c.Key), len(c.Key)
	for i, part := range who {
		c.Key = append(append(c.Key, byte(len(part))), part...)
		if i == 0 {
			c.Subject = len(c.Key)
		}
	}
	return c
}

// take takes, and fails the test if the store returns an error or an invalid
// result.
func take(t testing.TB, s *memstore.Store, charges ...weir.Charge) weir.Receipt {
	t.Helper()
	var r weir.Receipt
	if err := s.Take(context.Background(), charges, &r); err != nil {
		t.Fatalf("take: %v", err)
	}
	short := false
	for i, c := range charges {
		u := r.Used[i]
		if (u.Count == 0) != (u.Reset == 0) || u.Reset != 0 && (u.Reset <= r.Now || u.Reset > r.Now+c.Per) ||
			r.Allowed && c.Cost > 0 && (u.Count < c.Cost || u.Count > c.Limit) {
			t.Fatalf("take of %+v answered %+v", charges, r)
		}
		short = short || !u.Fits(c.Cost, c.Limit)
	}
	if !r.Allowed && !short {
		t.Fatalf("take of %+v was refused with everything left: %+v", charges, r)
	}
	return r
}

// count reads how much of a window is spent.
func count(t testing.TB, s *memstore.Store, c weir.Charge) weir.Used {
	t.Helper()
	c.Cost = 0
	return take(t, s, c).Used[0]
}
