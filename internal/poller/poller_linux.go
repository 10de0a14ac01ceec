package poller

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir/internal/nonblock"
)

// Take returns a connection that owns c's socket, and closes c, which must not be in use. Socket
// options are kept, deadlines are not. The connection behaves like *net.TCPConn with CloseWrite and
// SyscallConn, but has none of its other methods, and its Close does not wait for reads and writes
// under way. It has no finalizer, so it must be closed. If c is not a *net.TCPConn, or if the
// process has no file descriptor left, Take returns c.
func Take(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	p := shared()
	if p == nil {
		return c
	}
	taken, err := p.take(tcp)
	if err != nil {
		return c
	}
	_ = tcp.Close() // the socket lives on
	return taken
}

// process is the poller of this process. Like the runtime's own it is never stopped.
var process struct {
	started atomic.Pointer[poller]
	mu      sync.Mutex // held to start it
}

// shared returns the process's poller, or nil if it cannot be started now, most likely because the
// process has no file descriptor left.
func shared() *poller {
	if p := process.started.Load(); p != nil {
		return p
	}
	process.mu.Lock()
	defer process.mu.Unlock()
	if process.started.Load() == nil {
		if p, err := start(); err == nil {
			process.started.Store(p)
		}
	}
	return process.started.Load()
}

// A poller has an epoll of its own. The runtime waits for that epoll as for any file, so the poller
// needs no thread: the runtime reports that something is ready, and the poller's epoll reports
// what.
type poller struct {
	epoll int
	local atomic.Pointer[net.TCPAddr] // of the last connection

	mu    sync.Mutex // held while events are dispatched: a few microseconds
	conns []*Conn    // by file descriptor
}

func start() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // package os polls non-blocking files only
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	if err := file.SetDeadline(time.Time{}); err != nil { // the runtime cannot poll it
		_ = file.Close()
		return nil, err
	}
	p := &poller{epoll: fd}
	go p.run(file, raw)
	return p, nil
}

// maxEvents is how many events one epoll_wait returns. The goroutines that these wake run before
// the next call. A processor's run queue has 256 places; if it overflows, its older half moves to
// the global queue, which the runtime looks at only once in 61 rounds (runtime.schedule).
const maxEvents = 64

// run dispatches the events of the epoll, file, and never returns.
func (p *poller) run(file *os.File, raw syscall.RawConn) {
	events := make([]unix.EpollEvent, maxEvents)
	err := raw.Read(func(fd uintptr) bool {
		for {
			n, err := nonblock.Events(int(fd), events)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				panic(fmt.Sprintf("poller: epoll_wait: %v", err))
			}
			p.dispatch(events[:n])
			if n < len(events) {
				return false // wait until the runtime reports the epoll ready
			}
			runtime.Gosched()
		}
	})
	// unreachable: file is never closed
	panic(fmt.Sprintf("poller: wait for %s: %v", file.Name(), err))
}

const (
	readable = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	writable = unix.EPOLLOUT | unix.EPOLLHUP | unix.EPOLLERR
)

// dispatch wakes the goroutines that wait for the events, in the order of the events. The scheduler
// runs the goroutine first that was woken last, so dispatch wakes the first one last.
func (p *poller) dispatch(events []unix.EpollEvent) {
	var first *side
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range events {
		c := p.conns[events[i].Fd]
		if c == nil {
			continue // closed meanwhile
		}
		what := events[i].Events
		for _, s := range [...]struct {
			*side
			mask uint32
		}{{&c.reads, readable}, {&c.writes, writable}} {
			if what&s.mask == 0 || !s.signal() {
				continue
			}
			if first == nil {
				first = s.side
				continue
			}
			s.rouse(true)
		}
	}
	if first != nil {
		first.rouse(true)
	}
}

// take makes a connection of a duplicate of c's descriptor, since the runtime keeps polling the
// original one for as long as it is open.
func (p *poller) take(c *net.TCPConn) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, failure := -1, error(nil)
	if err := raw.Control(func(old uintptr) { fd, failure = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if failure != nil {
		return nil, os.NewSyscallError("fcntl", failure)
	}
	taken := &Conn{poller: p, fd: fd, local: p.sharedLocal(c.LocalAddr()), remote: c.RemoteAddr()}
	p.put(fd, taken)
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(fd)}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		p.put(fd, nil)
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	return taken, nil
}

// sharedLocal returns a local address. The connections of one listener mostly have the same one,
// and share its memory.
func (p *poller) sharedLocal(a net.Addr) net.Addr {
	own, ok := a.(*net.TCPAddr)
	if !ok {
		return a
	}
	if last := p.local.Load(); last != nil && last.Port == own.Port && last.Zone == own.Zone && last.IP.Equal(own.IP) {
		return last
	}
	p.local.Store(own)
	return own
}

// put sets the connection of descriptor fd. The caller owns fd.
func (p *poller) put(fd int, c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if more := fd + 1 - len(p.conns); more > 0 {
		p.conns = append(p.conns, make([]*Conn, more)...)
	}
	p.conns[fd] = c
}

// drop closes the descriptor of c, which is no longer in use.
func (p *poller) drop(c *Conn) error {
	p.put(c.fd, nil) // before the number can be reused
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, c.fd, nil)
	return os.NewSyscallError("close", unix.Close(c.fd))
}
