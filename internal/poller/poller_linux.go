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
)

// Take returns a connection that has c's socket, c itself being closed; c must be in nobody's use. Options of the socket stay,
// deadlines do not. It behaves as *net.TCPConn does, CloseWrite and SyscallConn included, and has none of its other methods; Close does
// not wait for those who are at it. It must be closed: nobody else does it. What is no *net.TCPConn, and one for which there is no
// descriptor left, is returned as it is.
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

// process is this process's poller, which lasts as long as that: as the runtime's own does.
var process struct {
	started atomic.Pointer[poller]
	mu      sync.Mutex // of who starts it
}

// shared returns the process's poller; nil where it cannot be started now, for want of a descriptor most likely.
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

// A poller has an epoll of its own. That is itself a file that the runtime waits for, so that one look at the runtime's
// finds out that there is anything, and one at ours what: no thread waits for it.
type poller struct {
	epoll int

	mu    sync.Mutex // held while events are told of: a few microseconds
	conns []*Conn    // by descriptor; nil where there is none
}

func start() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // has package os wait for it as for a socket
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	if err := file.SetDeadline(time.Time{}); err != nil { // the runtime does not wait for it
		_ = file.Close()
		return nil, err
	}
	p := &poller{epoll: fd}
	go p.run(file, raw)
	return p, nil
}

// atOnce is how many events one look takes. Who is found runs before the next: the queue of a processor has room for 256, and where it
// overflows its older half goes behind everybody; the runtime looks at what is behind after each 61 (runtime.schedule).
const atOnce = 64

// run tells connections what happens to them, for ever. The file is the epoll's.
func (p *poller) run(file *os.File, raw syscall.RawConn) {
	events := make([]unix.EpollEvent, atOnce)
	err := raw.Read(func(fd uintptr) bool {
		for {
			n, err := unix.EpollWait(int(fd), events, 0)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				panic(fmt.Sprintf("poller: epoll_wait: %v", err))
			}
			p.tell(events[:n])
			if n < len(events) {
				return false // the runtime's next word is waited for
			}
			runtime.Gosched()
		}
	})
	panic(fmt.Sprintf("poller: wait for %s: %v", file.Name(), err)) // nobody closes it
}

const (
	readable = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	writable = unix.EPOLLOUT | unix.EPOLLHUP | unix.EPOLLERR
)

// tell wakes who waits for one of events, in their order. The scheduler runs first whom it was told of last, so the first is kept
// for last.
func (p *poller) tell(events []unix.EpollEvent) {
	var first *side
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range events {
		c := p.conns[events[i].Fd]
		if c == nil {
			continue // closed since
		}
		what := events[i].Events
		for _, s := range [...]struct {
			*side
			mask uint32
		}{{&c.reads, readable}, {&c.writes, writable}} {
			if what&s.mask == 0 || !s.note() {
				continue
			}
			if first == nil {
				first = s.side
				continue
			}
			s.wake <- true
		}
	}
	if first != nil {
		first.wake <- true
	}
}

// take makes a connection of c's socket under another descriptor: the runtime's own is the runtime's as long as it is open.
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
	taken := &Conn{poller: p, fd: fd, local: c.LocalAddr(), remote: c.RemoteAddr()}
	p.put(fd, taken)
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(fd)}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		p.put(fd, nil)
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	return taken, nil
}

// put says whose descriptor fd is. It is for whoever owns fd.
func (p *poller) put(fd int, c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if more := fd + 1 - len(p.conns); more > 0 {
		p.conns = append(p.conns, make([]*Conn, more)...)
	}
	p.conns[fd] = c
}

// drop closes the descriptor of c, which nobody uses any more.
func (p *poller) drop(c *Conn) error {
	p.put(c.fd, nil) // before another can have the number
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, c.fd, nil)
	return os.NewSyscallError("close", unix.Close(c.fd))
}
