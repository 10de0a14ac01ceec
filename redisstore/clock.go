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

// clockSlack is how far the server's clock may be ahead of the known difference without changing
// it: the machines of a cluster have clocks that differ by some milliseconds, and the smallest
// difference serves for all of them.
const clockSlack = 100 * time.Millisecond

// correct records that the server read its clock as server, rounded down to a multiple of
// precision, after asked and before now by this process's clock. A reply that was long under way,
// or that was read late, shows little about the difference, and then it stays as it is: a clock
// that is set back tells callers of a window that has ended. If the difference is impossible, it
// becomes the smallest possible one: with a larger one the server would accept a take that its
// caller has given up.
func (c *clock) correct(asked, now, server, precision int64) {
	ahead := c.ahead.Load()
	if server+precision-asked < ahead || server-now > ahead+int64(clockSlack) {
		c.ahead.Store(server - now)
	}
}
