package redisstore

import (
	"sync/atomic"
	"time"
)

// A clock is how far the server's clock is ahead of this process's, rounded down. It is used while
// the server does not answer, and to unwrap a reset that is written modulo 48 days. The zero value
// means no difference.
type clock struct{ ahead atomic.Int64 }

// at returns the server's time when this process's clock reads local; both in Unix ns.
func (c *clock) at(local int64) int64 { return local + c.ahead.Load() }

// clockSlack is how far a reply may put the server's clock ahead of the known difference without
// changing it: a slow reply has the same effect.
const clockSlack = 100 * time.Millisecond

// correct records that the server read its clock as server after asked, by this process's clock,
// and before now. A command can hang on its way, so correct keeps the smallest difference that is
// possible: with a larger one the server would accept a take that its caller has given up.
func (c *clock) correct(asked, server int64, now func() int64) {
	d, ahead := server-asked, c.ahead.Load()
	if d < ahead || d > ahead+int64(clockSlack) {
		c.ahead.Store(server - now())
	}
}
