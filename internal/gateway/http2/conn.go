package http2

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/wire"
)

// A conn is one client's connection. One goroutine reads it, and owns what is not under mu; none
// does during a long wait for a frame (park). Streams that are forwarded are served by workers.
type conn struct {
	engine   *Engine
	net.Conn            // what is spoken through: TLS, or raw
	raw      net.Conn   // under TLS
	paced    *pace.Conn // under all layers; nil: there is none
	peer     string
	addr     netip.Addr // of the peer
	ctx      callContext

	secure     bool
	serverName string                // TLS: the name that the client asked for
	chains     [][]*x509.Certificate // TLS: of the client's certificate, as they verified
	cert       *identity.Certificate // TLS: that certificate

	in      wire.Reader   // of the connection itself, see Read
	framer  *http2.Framer // reads from in; nil while the connection rests
	decoder *hpack.Decoder
	block   block // the head, or trailers, that are being read
	begun   bool  // the client's preface has come
	greeted bool  // the client's settings have come
	ahead   []byte
	first   [1]byte // of ahead
	rests   bool    // the read loop waits for the first byte

	// What the engine's look sees of the read loop.
	waits    atomic.Int64 // the tick at which it began to wait between two frames; 0: it does not
	midway   atomic.Int64 // the tick at which a frame, or a head, began that has not come whole
	received atomic.Int64 // bytes on the socket when the wait began
	resting  atomic.Bool  // the wait is to continue without a buffer
	stopping atomic.Bool  // reads end at once
	looked   look

	mu      sync.Mutex         // guards what follows
	streams map[uint32]*stream // nil: none was open since the last long wait
	spare   []*stream          // that have ended, for the next ones
	last    uint32             // the highest stream that the client has opened
	opening bool               // its head is being read, see open
	resets  resetSet           // streams that were reset here
	running sync.WaitGroup
	tunnels int   // streams that are websockets
	idle    int64 // the tick since which there is no stream; 0: there is one
	bounds  bounds
	ending  ending

	sending
	receiving
}

// newConn returns the connection that is spoken over c.
func newConn(e *Engine, c net.Conn) *conn {
	h := &conn{engine: e, Conn: c, raw: pace.UnderTLS(c), paced: pace.Under(c), peer: c.RemoteAddr().String()}
	if h.paced != nil {
		h.raw = h.paced
	}
	h.addr = identity.ParsePeer(h.peer)
	h.ctx.base = e.base
	if secured, ok := c.(*tls.Conn); ok {
		state := secured.ConnectionState()
		h.secure, h.serverName, h.chains = true, state.ServerName, state.VerifiedChains
		h.cert = identity.NewCertificate(h.chains)
	}
	h.idle = max(e.tick.Load(), 1)
	h.sending.begin(h)
	h.receiving.begin()
	h.decoder = hpack.NewDecoder(tableSize, h.emit)
	h.decoder.SetMaxStringLength(2 * e.Limits.HeaderBytes)
	h.in.Reset(h)
	return h
}

// tableSize is of HPACK's table for what the client sends.
const tableSize = 4 << 10

// serve begins to serve the connection. It returns when that has ended, or is parked.
func (c *conn) serve() {
	c.engine.ServePart(&c.peer, func() (over bool) {
		c.greet()
		c.engine.add(c)
		if c.engine.ending.Load() {
			c.leave()
		}
		return c.readAll(c.await())
	}, c.end)
}

// wake serves a connection that was parked.
func (c *conn) wake() {
	c.engine.ServePart(&c.peer, func() (over bool) {
		c.resting.Store(false)
		return c.readAll(c.awaitMore())
	}, c.end)
}

// readAll reads what comes, after a wait of that outcome. It reports false if the connection is
// parked.
func (c *conn) readAll(now outcome) (over bool) {
	for now == hasCome {
		if !c.begun {
			if c.begun = c.readPreface(); !c.begun {
				return true
			}
		} else if err := c.readFrame(); err != nil {
			c.finish(err)
			return true
		}
		if c.isOver() {
			return true
		}
		if c.in.Len() == 0 {
			now = c.await()
		}
	}
	return now == hasEnded
}

// end closes the connection when nothing of it is under way any more.
func (c *conn) end() {
	defer c.engine.serving.Done()
	c.close()
	c.running.Wait()
	c.ctx.cancel()
	c.engine.remove(c)
	c.in.Reset(nil)
	if c.ending.takenOver {
		c.engine.TakenOver.Remove(c.raw)
		return
	}
	c.engine.Open.Add(-1)
}

// readPreface reads what a client's connection begins with (RFC 9113, section 3.4). It reports
// false if that is something else.
func (c *conn) readPreface() bool {
	var begin [len(http2.ClientPreface)]byte
	c.midway.Store(c.engine.tick.Load() + 1)
	if _, err := io.ReadFull(&c.in, begin[:]); err != nil {
		return false
	}
	c.midway.Store(0)
	if string(begin[:]) != http2.ClientPreface {
		c.finish(http2.ConnectionError(http2.ErrCodeProtocol))
		return false
	}
	return true
}

// An outcome is how a wait for the next frame ends.
type outcome uint8

const (
	hasEnded outcome = iota // the connection has
	hasCome                 // something has come
	isParked                // the wait goes on without this goroutine
)

// await waits for the next frame, when everything that has come was read. It writes what is ready
// to be written.
func (c *conn) await() outcome {
	c.flushRead()
	c.resting.Store(false)
	if c.paced != nil {
		c.received.Store(c.paced.Received())
	}
	c.waits.Store(max(c.engine.tick.Load(), 1))
	return c.awaitMore()
}

// awaitMore continues the wait. One that lasts is parked, or holds no buffer at least.
func (c *conn) awaitMore() outcome {
	err := c.in.Fill(readAhead)
	if c.resting.Load() && pace.IsTimeout(err) {
		c.shed()
		if pace.Park(c.raw, c.wake) {
			return isParked
		}
		err = c.rest()
	}
	c.waits.Store(0)
	if err != nil {
		return hasEnded
	}
	return hasCome
}

// readAhead is how much is buffered of what the client sends.
const readAhead = 16 << 10

// shed gives up memory that a wait does not need.
func (c *conn) shed() {
	c.framer = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.encoder, c.fields.block, c.spare = nil, nil, nil, nil
	if len(c.streams) == 0 {
		c.streams = nil
	}
}

// rest continues a wait that the next byte ends.
func (c *conn) rest() error {
	c.rests = true
	n, err := c.Read(c.first[:])
	c.rests = false
	c.resting.Store(false)
	if n == 0 {
		return err
	}
	c.ahead = c.first[:n]
	return nil
}

var errStopped = errors.New("the connection is being closed")

// Read is what the connection's wire.Reader reads from. A read that waits ends with a time-out if
// the connection is to rest, and with an error if it is to stop.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	for {
		n, err := c.Conn.Read(p)
		if n > 0 || err == nil || !pace.IsTimeout(err) {
			return n, err
		}
		if c.stopping.Load() {
			return 0, errStopped
		}
		_ = c.raw.SetReadDeadline(time.Time{})
		if c.stopping.Load() { // it may have been interrupted a moment before
			return 0, errStopped
		}
		// In a head it does not rest: the Framer knows what has to come. Nor does it twice.
		if c.resting.Load() && c.waits.Load() != 0 && c.block.id == 0 && !c.rests {
			return 0, err
		}
	}
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// stop ends the read loop, which closes the connection.
func (c *conn) stop() {
	c.stopping.Store(true)
	_ = c.raw.SetReadDeadline(longAgo)
}

// fail ends a connection that cannot be written to any more. The mutex is held.
func (c *conn) fail(err error) {
	if c.broken == nil {
		c.broken = err
	}
	c.wakeAll()
	c.room.Broadcast()
	c.stop()
}
