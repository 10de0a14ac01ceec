package pace

import (
	"sync"
	"time"
)

// A Direction is the sum of all streams of one HTTP/2 connection in one direction. They share one
// allowance, because they share one link: any byte on the socket is progress, and the clock runs
// once, however many streams wait. A stream is ended if both its own allowance and the connection's
// are used up. The zero value is ready for use. It is safe for concurrent use.
type Direction struct {
	mu      sync.Mutex
	pace    Allowance
	begun   bool
	waiting int       // streams that wait for the client
	looked  time.Time // when pace was last charged
	moved   int64     // bytes on the socket by then

	// Uploads only: moved-consumed is an upper bound of what the client sent and we have not read.
	open     int // bodies that have not ended
	consumed int64
}

// maxUnread is how much unread data may close the window of an HTTP/2 connection. The window is 1
// MiB; the margin covers window updates that the server sends late.
const maxUnread = 768 << 10

// charge brings the allowance up to date. It does not charge while unread data may fill the window:
// the client may not send then, because some backend does not read.
func (d *Direction) charge(l *Limits, now time.Time, total int64) {
	if !d.begun {
		d.begun = true
		d.pace.Begin(l)
	}
	var waited time.Duration
	if d.waiting > 0 && (d.open == 0 || total-d.consumed < maxUnread) {
		waited = now.Sub(d.looked)
	}
	d.pace.Spend(l, waited, int(total-d.moved))
	d.looked, d.moved = now, total
}

// Await records that a stream starts to wait for the client. total is the number of bytes on the
// socket so far.
func (d *Direction) Await(l *Limits, now time.Time, total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.charge(l, now, total)
	d.waiting++
}

// EndAwait records that the wait is over. It reports whether the client, with all its streams, is
// fast enough.
func (d *Direction) EndAwait(l *Limits, now time.Time, total int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.charge(l, now, total)
	d.waiting--
	return l.Rate <= 0 || d.pace.left > 0
}

// OpenBody records that a request with a body has come.
func (d *Direction) OpenBody() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open++
}

// CloseBody records that a body has ended, or will not be read any more: the server returns its
// window then.
func (d *Direction) CloseBody(total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open--; d.open == 0 {
		d.consumed = total
	}
}

// Read records that n bytes of a body were read, and whether that was all there was.
func (d *Direction) Read(n int, emptied bool, total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.consumed += int64(n)
	if emptied && d.waiting+1 == d.open { // every other body is waited for, so nothing is unread
		d.consumed = total
	}
}
