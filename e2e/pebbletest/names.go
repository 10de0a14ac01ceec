package pebbletest

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirlimit/weir/e2e/child"
)

// Names answer questions of the DNS: all names are at 127.0.0.1, or there are none.
type Names struct {
	l       net.Listener
	missing atomic.Bool
}

func serveNames(t testing.TB) *Names {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // by TCP, as Pebble asks (RFC 7766)
	if err != nil {
		t.Fatal(err)
	}
	n := &Names{l: l}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { n.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return n
}

// serve answers the questions of a connection.
func (n *Names) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(child.Patience))
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		reply := n.answer(question)
		if _, err := c.Write(binary.BigEndian.AppendUint16(nil, uint16(len(reply)))); err != nil {
			return
		}
		if _, err := c.Write(reply); err != nil {
			return
		}
	}
}

// Addr returns the HOST:PORT at which questions are answered.
func (n *Names) Addr() string { return n.l.Addr().String() }

// Resolve decides whether names exist from now on. They do at first.
func (n *Names) Resolve(exist bool) { n.missing.Store(!exist) }

// answer returns the reply to a question; nil if it is none.
func (n *Names) answer(question []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true},
		Questions: m.Questions,
	}
	switch {
	case n.missing.Load():
		reply.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
		}}
	}
	b, err := reply.Pack()
	if err != nil {
		return nil
	}
	return b
}
