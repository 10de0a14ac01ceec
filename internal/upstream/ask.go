package upstream

import (
	"errors"
	"net"
)

// ErrStale says that a kept connection has ended, or has brought what nobody asked for. Nothing was written to it.
var ErrStale = errors.New("the kept upstream connection has ended, or said something unasked")

// An inquiry is a request that the next read sends first: one visit to the runtime's poller instead of three.
type inquiry struct {
	request []byte                // nil: none
	sent    int                   // how much of it, or of the last one, went out
	step    func(fd uintptr) bool // what can be done without waiting; false: an answer must be waited for; nil: not possible here

	// Between the steps of one:
	asked bool   // the connection was tried and written to
	into  []byte // where the answer begins
	read  int    // how much of it came
	err   error
}

// Ask has the next read from Reader try the connection, send request whole and wait for the beginning of the answer, all at one
// go. That read fails with ErrStale where the connection was kept and is not as it was left. The request's bytes must stay as they are
// until it has returned. AwaitHead is for before it.
func (c *Conn) Ask(request []byte) { c.ask.request, c.ask.sent = request, 0 }

// Asked returns how many bytes of the request that Ask was given have gone out. It is for after the read.
func (c *Conn) Asked() int { return c.ask.sent }

// answers is where a connection's Reader reads.
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

// askInTurn does what Ask says one thing after the other.
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
		return 0, plainly(err)
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

// plainly says read where a syscall.RawConn says raw-read.
func plainly(err error) error {
	var told *net.OpError
	if errors.As(err, &told) {
		told.Op = "read"
	}
	return err
}
