package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/weirlimit/weir/internal/cli"

	"github.com/coreos/go-systemd/v22/activation"
)

// sockets are what this process listens on.
type sockets struct {
	public net.Listener
	admin  net.Listener // nil: none was given by a service manager
	held   bool         // a service manager gave them: they outlive this process, and --listen is not opened
}

// The names that a service manager may give its sockets (FileDescriptorName=). A single one may have any name but the second.
const (
	publicSocket = "http"
	adminSocket  = "admin"
)

// openFront opens what serve listens on, and notes what follows from that for a server that is to end when ending is closed.
func (f *serveFlags) openFront(ending <-chan struct{}) (*sockets, error) {
	s, err := openSockets(string(f.listen))
	if err != nil {
		return nil, err
	}
	f.listen = cli.ListenAddr(s.public.Addr().String()) // where it really is, :0 or not
	if s.held {
		f.handOver = ending
	}
	return s, nil
}

// openSockets takes the sockets that a service manager holds (LISTEN_FDS), or else opens the address.
func openSockets(address string) (*sockets, error) {
	if files := activation.Files(true); len(files) > 0 {
		names := make([]string, len(files))
		for i, f := range files {
			names[i] = f.Name()
		}
		s, err := heldSockets(names, files)
		if err != nil {
			return nil, cli.Fail(fmt.Errorf("take the sockets of the service manager: %w", err),
				"one ListenStream=PORT in weir.socket, with FileDescriptorName=http and without Accept=yes, and perhaps one in a unit of its own with FileDescriptorName=admin")
		}
		return s, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("listen on %q: %w", address, cause(err)), listenHint(err, "--listen :0 takes any free port"))
	}
	return &sockets{public: frugal{listener}}, nil
}

// cause returns what went wrong on the network, without the address, which the caller names.
func cause(err error) error {
	var at *net.OpError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// listenHint returns what to do about an address that cannot be listened on. free says how to get a port that is free.
func listenHint(err error, free string) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return "ports below 1024 are for privileged users; --listen :8080 is for everybody"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine has no such address; without a host, as in :8080, all that it has are listened on"
	case errors.As(err, new(*net.DNSError)):
		return "is the name right? without a host, as in :8080, all addresses of this machine are listened on"
	}
	return "is another server running? " + free
}

// heldSockets finds out by their names what the files of sockets are for. It closes them; the sockets live on in what it returns.
func heldSockets(names []string, files []*os.File) (_ *sockets, err error) {
	s := &sockets{held: true}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
		if err != nil {
			s.close()
		}
	}()
	for i, f := range files {
		name, place := names[i], &s.public
		switch {
		case name == adminSocket:
			place = &s.admin
		case name != publicSocket && len(files) > 1:
			return nil, fmt.Errorf("of %s one is named %q: want names %s and %s", cli.Count(len(files), "socket"), name, publicSocket, adminSocket)
		}
		if *place != nil {
			return nil, fmt.Errorf("two sockets are named %q: want one of each name", name)
		}
		l, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("the socket %q: %w", name, err)
		}
		*place = l
		if l.Addr().Network() != "tcp" {
			return nil, fmt.Errorf("the socket %q listens on %s %s: want TCP, since callers are counted by address", name, l.Addr().Network(), l.Addr())
		}
	}
	if s.public == nil {
		return nil, fmt.Errorf("none is named %q", publicSocket)
	}
	s.public = frugal{s.public}
	return s, nil
}

// A frugal listener's connections keep the kernel from taking megabytes of an answer at once. Whether a client reads shows in writes that
// return: with a buffer of 4 MB that may be once in half a minute for one that reads 40 KB a second, who would be taken for
// stalled; and ten thousand such clients would hold 40 GB.
type frugal struct{ net.Listener }

// mostUnsent is how much of an answer the kernel takes ahead of what the client's window lets out.
const mostUnsent = 256 << 10

func (l frugal) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		limitUnsent(tcp)
	}
	return c, err
}

// line is what start-up says of the public socket, which is reached by url.
func (s *sockets) line(url string) string {
	if !s.held {
		return url
	}
	return url + " (held by the service manager; --listen is not opened)"
}

// by says what decided where the public socket listens.
func (s *sockets) by() string {
	if s.held {
		return heldSocket
	}
	return "--listen"
}

// close closes this process's copies.
func (s *sockets) close() {
	for _, l := range []net.Listener{s.public, s.admin} {
		if l != nil {
			_ = l.Close() // it may be closed already
		}
	}
}
