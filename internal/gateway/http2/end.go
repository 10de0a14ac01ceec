package http2

import (
	"crypto/tls"
	"errors"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// How a connection ends. A client may send requests before it reads that the connection ends, so it
// is announced first, with a PING behind it: when the client has answered that, no stream can come
// any more that is not known (RFC 9113, section 6.8).
type ending struct {
	announced int64  // the tick at which the end was announced; 0: it was not
	final     bool   // the last stream was named, and further ones are refused
	last      uint32 // that stream
	over      bool   // nothing more is read
	takenOver bool   // only websockets are left, see leaveTunnels
}

// announceFor is how long, in ticks, a client may take to answer the PING.
const announceFor = int64(time.Second / lookEvery)

// maxStream is the highest identifier of a stream.
const maxStream = 1<<31 - 1

// farewell is the PING behind the announcement.
var farewell = [8]byte{'f', 'a', 'r', 'e', 'w', 'e', 'l', 'l'}

// leave announces the end of the connection, which comes when its streams have ended.
func (c *conn) leave() {
	c.mu.Lock()
	c.announce()
	c.mu.Unlock()
	c.flush()
}

// announce is leave without the flush. The mutex is held.
func (c *conn) announce() {
	if c.ending.announced != 0 || c.ending.over {
		return
	}
	c.ending.announced = max(c.engine.tick.Load(), 1)
	c.appendGoAway(maxStream, http2.ErrCodeNo)
	c.appendPing(false, farewell)
}

// name names the last stream that is served. The mutex is held.
func (c *conn) name() {
	if c.ending.final || c.ending.over {
		return
	}
	c.ending.announced, c.ending.final, c.ending.last = max(c.ending.announced, 1), true, c.last
	c.appendGoAway(c.last, http2.ErrCodeNo)
	c.endIfDone()
}

// endIfDone ends a connection whose last stream has ended. The mutex is held.
func (c *conn) endIfDone() {
	if c.ending.final && len(c.streams) == 0 && !c.opening && !c.ending.over {
		c.ending.over = true
		c.stop()
	}
	c.leaveTunnels()
}

// isOver reports whether nothing more is to be read.
func (c *conn) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending.over
}

// finish ends the connection after err, which it names to the client if that is the cause.
func (c *conn) finish(err error) {
	code := http2.ErrCodeNo
	var known http2.ConnectionError
	switch {
	case errors.As(err, &known):
		code = http2.ErrCode(known)
	case errors.Is(err, http2.ErrFrameTooLarge):
		code = http2.ErrCodeFrameSize
	default:
		return // the client has gone, or the connection is being closed
	}
	c.engine.Log.Debug("a connection of HTTP/2 ends with an error", "peer", c.peer, "error", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending.over = true
	last := c.last
	if c.ending.final { // RFC 9113, section 6.8: it never rises
		last = c.ending.last
	}
	c.appendGoAway(last, code)
}

// close ends all streams, writes what is ready, and closes the connection.
func (c *conn) close() {
	c.mu.Lock()
	announced := c.ending.over
	c.ending.over = true
	for _, s := range c.streams {
		s.end(errGone)
	}
	for (c.writing || len(c.out) > 0) && c.broken == nil {
		if c.writing {
			c.room.Wait()
			continue
		}
		c.writing = true
		c.mu.Unlock()
		c.write()
		c.mu.Lock()
	}
	whole := c.broken == nil
	c.mu.Unlock()
	if announced && whole {
		c.linger()
	}
	_ = c.raw.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = errStopped
	}
	c.drop()
}

// Closing a connection on which something is unread can destroy what was written on its way (RFC
// 9112, section 9.6, has the same of HTTP/1.1). So it is read for a moment before it is closed.
const (
	lingerPause = 500 * time.Millisecond // nothing came for so long
	maxLinger   = time.Second
)

// linger closes the sending half and reads what the client still sends, up to maxDiscarded.
func (c *conn) linger() {
	if secured, ok := c.Conn.(*tls.Conn); ok {
		_ = secured.CloseWrite()
	}
	if pace.CloseWrite(c.raw) != nil {
		return
	}
	p := c.engine.copies.Borrow()
	defer p.GiveBack()
	until, left := time.Now().Add(maxLinger), maxDiscarded
	for now := time.Now(); now.Before(until) && left > 0; now = time.Now() {
		_ = c.raw.SetReadDeadline(now.Add(lingerPause))
		n, err := c.raw.Read(p.Room())
		if err != nil {
			return
		}
		left -= n
	}
}
