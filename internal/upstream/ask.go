package upstream

import (
	"errors"
	"net"
	"time"

	"github.com/weirlimit/weir/internal/poller"
)

// ErrStale is returned for a kept connection that has ended, or has received something unsolicited.
// Nothing was written to it.
var ErrStale = errors.New("the kept upstream connection has ended, or received something unsolicited")

// An inquiry is a request that the next read sends first: one call of the runtime's poller instead
// of three.
type inquiry struct {
	request []byte // nil: none
	sent    int    // how much of it, or of the last one, went out
	// does what needs no wait; false: the answer has to be waited for; nil: not possible here
	step func(fd uintptr) bool

	// Between the steps of one:
	asked bool   // the connection was checked and written to
	into  []byte // receives the beginning of the answer
	read  int    // how much of it came
	err   error

	mark  poller.Mark // of the last read of this kind
	whole bool        // it took all that had come
	fresh bool        // that was just now
}

// freshFor is for how long after a read the poller's word is enough that nothing has come since. An
// address that ends idle connections does so later, and one that ends them at once does so with its
// answer. Else the socket is asked, which finds what has come since the poller looked.
const freshFor = 100 * time.Millisecond

// Ask makes the next read from Reader check the connection, send the whole request and wait for the
// beginning of the answer, in one operation. That read fails with ErrStale if the connection was
// kept and is not as it was left. The request's bytes must not change until it has returned. Call
// AwaitHead before it.
func (c *Conn) Ask(request []byte) { c.ask.request, c.ask.sent = request, 0 }

// Asked returns how many bytes of Ask's request have gone out. Call it after the read.
func (c *Conn) Asked() int { return c.ask.sent }

// answers is what a connection's Reader reads from.
type answers struct{ c *Conn }

func (a answers) Read(p []byte) (int, error) {
	c := a.c
	if c.ask.request == nil {
		return c.Conn.Read(p)
	}
	request := c.ask.request
	c.ask.request = nil
	if c.ask.step == nil || c.turn.at.tls != nil {
		return c.askInTurn(request, p)
	}
	return c.askAtOnce(request, p)
}

// askInTurn does what Ask promises one thing after the other.
func (c *Conn) askInTurn(request, p []byte) (int, error) {
	if c.turn.reused && !c.quiet() {
		return 0, ErrStale
	}
	n, err := c.Write(request)
	c.ask.sent = n
	if err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// askAtOnce does it while it holds the socket for reading.
func (c *Conn) askAtOnce(request, p []byte) (int, error) {
	k := &c.ask
	k.request, k.into, k.asked, k.read, k.err = request, p, false, 0, nil
	err := c.raw.Read(k.step)
	k.request, k.into = nil, nil
	switch {
	case err != nil:
		return 0, renameRawRead(err)
	case k.err != nil:
		return 0, k.err
	case k.read > 0:
		return k.read, nil
	}
	// The socket did not take the whole request.
	n, err := c.Write(request[k.sent:])
	k.sent += n
	if err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// renameRawRead changes the operation in an error of a syscall.RawConn from raw-read to read.
func renameRawRead(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		op.Op = "read"
	}
	return err
}
