package fast

import (
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/rules"
)

// A gatheringConn writes in one system call what net/http's HTTP/2 server flushes in several. That
// server flushes the head of an answer and its body apart, and writes nothing else meanwhile. Here
// a flush is over when its bytes are in a buffer, and a goroutine writes the buffer out after
// those that are ready have run: most often they have added a body to its head, and answers of
// other streams. This saves a fifth of the processor time of a request.
//
// Bytes that the socket does not take wait in the buffer as they would in the server, under the
// times of the pace.Conn below. If these are over, the connection ends.
type gatheringConn struct {
	net.Conn
	rules *rules.Rules

	mu      sync.Mutex
	changed sync.Cond // of mu: the buffer was taken, or writing has ended
	buffer  []byte    // to be written; nil: nothing
	writing bool      // a goroutine writes
	closing bool      // it closes the connection after that
	err     error     // why it has failed
}

// maxUnwritten is how much may be buffered: two TLS records of the largest size. More waits.
const maxUnwritten = 33 << 10

var unwritten = sync.Pool{New: func() any { return new([maxUnwritten]byte) }}

func newGatheringConn(r *rules.Rules, c net.Conn) *gatheringConn {
	g := &gatheringConn{Conn: c, rules: r}
	g.changed.L = &g.mu
	return g
}

// NetConn returns the connection below.
func (g *gatheringConn) NetConn() net.Conn { return g.Conn }

// Write is net.Conn's. Its error may be that of an earlier write.
func (g *gatheringConn) Write(p []byte) (n int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n < len(p) {
		for len(g.buffer) == maxUnwritten && g.err == nil && !g.closing {
			g.changed.Wait()
		}
		switch {
		case g.err != nil:
			return n, g.err
		case g.closing:
			return n, net.ErrClosed
		case g.buffer == nil:
			g.buffer = unwritten.Get().(*[maxUnwritten]byte)[:0]
		}
		more := min(len(p)-n, maxUnwritten-len(g.buffer))
		g.buffer = append(g.buffer, p[n:n+more]...)
		n += more
		if !g.writing {
			g.writing = true
			go g.writeOut()
		}
	}
	return n, nil
}

// writeOut writes what is buffered until nothing is.
func (g *gatheringConn) writeOut() {
	runtime.Gosched()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.buffer != nil && g.err == nil {
		out := g.buffer
		g.buffer = nil
		g.changed.Broadcast()
		g.mu.Unlock()
		_, err := g.Conn.Write(out)
		unwritten.Put((*[maxUnwritten]byte)(out[:maxUnwritten]))
		g.mu.Lock()
		g.err = err
	}
	g.writing = false
	g.changed.Broadcast()
	switch {
	case g.closing:
		_ = g.Conn.Close()
		g.rules.TakenOver.Remove(g.Conn)
		g.rules.Open.Add(-1)
	case g.err != nil:
		_ = g.Conn.Close() // so that reads end too
	}
}

// SetWriteDeadline is net.Conn's, and does nothing: the pace.Conn below has times of its own, and
// crypto/tls, which sets one when it is closed, would end the write of what is buffered.
func (g *gatheringConn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline is net.Conn's. It is SetReadDeadline.
func (g *gatheringConn) SetDeadline(t time.Time) error { return g.SetReadDeadline(t) }

// Close is net.Conn's. It ends reads and further writes, and does not wait for what is buffered:
// the connection is closed when that is written, and counts as open until then. A drain waits for
// it, and closes it when its time is over.
func (g *gatheringConn) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.writing {
		g.closing = true
		return g.Conn.Close()
	}
	if g.closing {
		return nil
	}
	g.closing = true
	g.changed.Broadcast()
	g.rules.Open.Add(1)
	g.rules.TakenOver.Add(g.Conn)
	return g.Conn.SetReadDeadline(longAgo)
}

// CloseWrite closes the sending half, if the connection has halves, after what is buffered.
func (g *gatheringConn) CloseWrite() error {
	g.mu.Lock()
	for g.writing {
		g.changed.Wait()
	}
	g.mu.Unlock()
	return pace.CloseWrite(g.Conn)
}
