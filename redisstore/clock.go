package redisstore

import (
	"sync/atomic"
	"time"
)

// A clock is how far the server's clock is ahead of this process's, or a little less. It serves where no answer says what time it is: while the
// server does not answer, and to tell which of the resets 48 days apart is written. The zero value knows no difference.
type clock struct{ ahead atomic.Int64 }

// at returns what the server's clock says when this process's says local; both in Unix ns.
func (c *clock) at(local int64) int64 { return local + c.ahead.Load() }

// clockSlack is how much later than expected an answer may find the server's clock without being believed: answers that
// were under way for long find it late too.
const clockSlack = 100 * time.Millisecond

// correct notes that the server's clock was read between asked and now, by which this process's
// clock says what it does now. A question can hang on its way, so it keeps the least difference that
// can be true: with a larger one the server would take what was given up for what is in time.
func (c *clock) correct(asked, server int64, now func() int64) {
	d, ahead := server-asked, c.ahead.Load()
	if d < ahead || d > ahead+int64(clockSlack) {
		c.ahead.Store(server - now())
	}
}
