package edge

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/handover"
	"github.com/weirlimit/weir/internal/unsent"
)

// listeners are the sockets that a server begins with.
type listeners struct {
	public   net.Listener
	admin    net.Listener // nil: the service manager has passed none
	metrics  net.Listener // as admin
	redirect net.Listener // as admin
	held     bool         // the service manager has passed them: they outlive this process

	from   *handover.Previous // the process that this one continues; nil: none
	toNext []handover.Socket  // all listeners of this process, for the one that continues it
}

// The names of sockets that a service manager passes (FileDescriptorName=). A single socket may
// have any name but those of operators.
const (
	publicSocket   = "http"
	adminSocket    = "admin"
	metricsSocket  = "metrics"
	redirectSocket = "redirect"
)

// openListeners takes the sockets of the previous process, or those that a service manager has
// passed (LISTEN_FDS), or else listens on the address.
func openListeners(address string, from *handover.Previous, own *parts) (*listeners, error) {
	s, err := newListeners(address, from, own)
	if err != nil {
		return nil, err
	}
	s.from = from
	return s, nil
}

func newListeners(address string, from *handover.Previous, own *parts) (*listeners, error) {
	passed, held, err := from.Take(publicSocket, address)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	if passed != nil {
		s := &listeners{held: held}
		s.add(handover.Socket{Name: publicSocket, Address: address, Held: held, Listener: passed})
		s.public = boundedSend{passed}
		if _, ok := passed.(*net.UnixListener); ok {
			s.public = socketListener{passed}
		}
		own.own(s.close)
		return s, nil
	}
	if files := activation.Files(true); len(files) > 0 {
		names := make([]string, len(files))
		for i, f := range files {
			names[i] = f.Name()
		}
		s, err := heldListeners(names, files)
		if err != nil {
			return nil, cli.Fail(fmt.Errorf("take the sockets of the service manager: %w", err),
				"one ListenStream=PORT in weir.socket, with FileDescriptorName=http and without Accept=yes, and perhaps others in units of their own with FileDescriptorName=admin, FileDescriptorName=metrics and FileDescriptorName=redirect")
		}
		own.own(s.close)
		return s, nil
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		listener, err := listenSocket(path)
		if err != nil {
			return nil, err
		}
		s := &listeners{public: listener}
		s.add(handover.Socket{Name: publicSocket, Address: address, Listener: listener.Listener})
		own.own(s.close)
		return s, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("listen on %q: %w", address, cause(err)), listenHint(err, "--listen :0 takes any free port"))
	}
	s := &listeners{public: boundedSend{listener}}
	s.add(handover.Socket{Name: publicSocket, Address: address, Listener: listener})
	own.own(s.close)
	return s, nil
}

// add adds a listener to those that the next process serves too.
func (s *listeners) add(socket handover.Socket) { s.toNext = append(s.toNext, socket) }

// takenOver removes the paths of Unix sockets when they are closed here: from here on no other
// process listens. Before that a failure here must not remove them.
func (s *listeners) takenOver() {
	for _, socket := range s.toNext {
		if l, ok := socket.Listener.(*net.UnixListener); ok && !socket.Held {
			l.SetUnlinkOnClose(true)
		}
	}
}

// handedOver keeps the paths of Unix sockets when they are closed here: the next process listens.
func (s *listeners) handedOver() {
	for _, socket := range s.toNext {
		if l, ok := socket.Listener.(*net.UnixListener); ok {
			l.SetUnlinkOnClose(false)
		}
	}
}

// heldListeners returns the listeners of passed sockets, which their names tell apart. It closes
// the files.
func heldListeners(names []string, files []*os.File) (_ *listeners, err error) {
	s := &listeners{held: true}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
		if err != nil {
			_ = s.close()
		}
	}()
	for i, f := range files {
		name, slot := names[i], &s.public
		switch {
		case name == adminSocket:
			slot = &s.admin
		case name == metricsSocket:
			slot = &s.metrics
		case name == redirectSocket:
			slot = &s.redirect
		case name != publicSocket && len(files) > 1:
			return nil, fmt.Errorf("of %s one is named %q: the names are %s, %s, %s and %s", cli.Count(len(files), "socket"), name, publicSocket, adminSocket, metricsSocket, redirectSocket)
		}
		if *slot != nil {
			return nil, fmt.Errorf("two sockets are named %q: give each socket a name of its own", name)
		}
		l, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("the socket %q: %w", name, err)
		}
		*slot = l
		if slot == &s.public {
			name = publicSocket
		}
		s.add(handover.Socket{Name: name, Held: true, Listener: l})
		if l.Addr().Network() != "tcp" {
			return nil, fmt.Errorf("the socket %q listens on %s %s: expected TCP, since callers are counted by address", name, l.Addr().Network(), l.Addr())
		}
	}
	if s.public == nil {
		return nil, fmt.Errorf("none is named %q", publicSocket)
	}
	s.public = boundedSend{s.public}
	return s, nil
}

// boundedSend is a listener whose connections keep the kernel from taking megabytes of an answer at
// once. The gateway detects a client that does not read by writes that do not return: with a buffer
// of 4 MB, a write for a client that reads 40 KB a second may take half a minute, and the client
// would count as stalled. Ten thousand such clients would also hold 40 GB.
type boundedSend struct{ net.Listener }

// maxUnsent is how many bytes of an answer the kernel takes beyond what the client's window admits.
const maxUnsent = 256 << 10

func (l boundedSend) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if conn, ok := c.(*net.TCPConn); ok {
		unsent.Limit(conn, maxUnsent)
	}
	return c, err
}

// by returns what decided the address of the public listener.
func (s *listeners) by() string {
	if s.held {
		return byManager
	}
	return "--listen" // or --forward-auth, which has no upstream that could be this server
}

// row returns the row of the public listener, which url reaches.
func (s *listeners) row(url string) Row {
	var notes []string
	if at, err := netip.ParseAddrPort(s.public.Addr().String()); err == nil && at.Addr().IsUnspecified() {
		notes = append(notes, "on every address of this machine")
	}
	if s.held {
		notes = append(notes, "held by the service manager; --listen is not opened")
	}
	if len(notes) > 0 {
		url += " (" + strings.Join(notes, "; ") + ")"
	}
	return Row{"listening", url}
}

// close closes this process's copies of the sockets.
func (s *listeners) close() error {
	for _, l := range []net.Listener{s.public, s.admin, s.metrics, s.redirect} {
		if l != nil {
			_ = l.Close() // it may be closed already
		}
	}
	return nil
}
