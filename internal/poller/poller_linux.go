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
func Take(c net.Conn) net.Conn { return take(c, begun.Add(1)) }

// take is Take for the nth connection of a listener or a dialer, so that the connections of each
// are spread evenly over the pollers.
func take(c net.Conn, nth uint32) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	p := shared(nth)
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

// process has the pollers of this process: as many as processors, since each runs one task at a
// time. Like the runtime's own they are never stopped.
var process struct {
	mu      sync.Mutex // held to start one
	pollers atomic.Pointer[[]*poller]
}

// shared returns the poller of the nth connection, or nil if none can be started now, most likely
// because the process has no file descriptor left.
func shared(nth uint32) *poller {
	if all := process.pollers.Load(); all != nil {
		return (*all)[nth%uint32(len(*all))]
	}
	process.mu.Lock()
	defer process.mu.Unlock()
	if process.pollers.Load() == nil {
		all := make([]*poller, 0, runtime.GOMAXPROCS(0))
		for range cap(all) {
			if p, err := start(); err == nil {
				all = append(all, p)
			}
		}
		if len(all) == 0 {
			return nil
		}
		process.pollers.Store(&all)
	}
	all := *process.pollers.Load()
	return all[nth%uint32(len(all))]
}

// Relieve looks for pollers that run the same task as at the last call: it waits without Detach, or
// computes. Each of these goes on in another goroutine, so that its other tasks run. Call it
// several times a second, from one goroutine or several; calls within 50 ms of another do nothing.
func Relieve() {
	now, last := int64(time.Since(epoch)), looked.Load()
	if last != 0 && now-last < int64(50*time.Millisecond) || !looked.CompareAndSwap(last, now) {
		return
	}
	if all := process.pollers.Load(); all != nil {
		for _, p := range *all {
			p.relieve()
		}
	}
}

// looked is when Relieve looked last, in nanoseconds since epoch; 0: never.
var looked atomic.Int64

// relieved counts relieve's successes.
var relieved atomic.Int64

// Relieved returns how often Relieve has made another goroutine go on.
func Relieved() int64 { return relieved.Load() }

// A poller has an epoll of its own. The runtime waits for that epoll as for any file, so the poller
// needs no thread: the runtime reports that something is ready, and the poller's epoll reports
// what.
//
// One goroutine looks at the epoll, and runs the tasks that it wakes. It owns the fields of the
// batch, until relieve takes the batch from it.
type poller struct {
	epoll int
	local atomic.Pointer[net.TCPAddr] // of the last connection

	mu    sync.Mutex // held for a few instructions
	conns []*Conn    // by file descriptor

	began, done atomic.Uint64 // the number of the last look at the epoll that has begun, and ended

	turn atomic.Uint64 // of the task that runs; 0: none
	seen atomic.Uint64 // relieve: the turn at the last call

	turns uint64 // so far
	batch []event
	at    int   // the first of the batch that was not dispatched
	first *side // of the first goroutine that is to be woken: it is woken last
}

// An event is what happened to a connection, and was not dispatched yet.
type event struct {
	c           *Conn // nil: closed meanwhile
	read, write bool
}

func start() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	p := &poller{epoll: fd, batch: make([]event, 0, maxEvents)}
	file, raw, err := p.open()
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	go p.run(file, raw)
	return p, nil
}

// open returns a descriptor of the epoll by which a goroutine can wait for it.
func (p *poller) open() (*os.File, syscall.RawConn, error) {
	fd, err := unix.FcntlInt(uintptr(p.epoll), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // package os polls non-blocking files only
		_ = unix.Close(fd)
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err == nil {
		err = file.SetDeadline(time.Time{}) // fails if the runtime cannot poll it
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, raw, nil
}

// maxEvents is how many events one epoll_wait returns. The goroutines that these wake run before
// the next call. A processor's run queue has 256 places; if it overflows, its older half moves to
// the global queue, which the runtime looks at only once in 61 rounds (runtime.schedule).
const maxEvents = 64

// run dispatches the events of the epoll until another goroutine does. file is the epoll.
func (p *poller) run(file *os.File, raw syscall.RawConn) {
	events := make([]unix.EpollEvent, maxEvents)
	over := !p.dispatch() // what another goroutine has left
	for !over {
		err := raw.Read(func(fd uintptr) bool {
			for {
				look := p.began.Add(1)
				n, err := nonblock.Events(int(fd), events)
				if err == unix.EINTR {
					continue
				}
				if err != nil {
					panic(fmt.Sprintf("poller: epoll_wait: %v", err))
				}
				p.fill(events[:n])
				p.done.Store(look)
				if over = !p.dispatch(); over {
					return true
				}
				if n < len(events) {
					return false // wait until the runtime reports the epoll ready
				}
				runtime.Gosched()
			}
		})
		if err != nil { // unreachable: file is not closed
			panic(fmt.Sprintf("poller: wait for %s: %v", file.Name(), err))
		}
	}
	_ = file.Close()
}

// relieve makes another goroutine go on if the task that runs is that of the last call.
func (p *poller) relieve() {
	turn := p.turn.Load()
	if p.seen.Swap(turn) != turn || turn == 0 {
		return
	}
	file, raw, err := p.open()
	if err != nil {
		return // no descriptor is left; the next call tries again
	}
	if !p.turn.CompareAndSwap(turn, 0) {
		_ = file.Close()
		return
	}
	relieved.Add(1)
	go p.run(file, raw)
}

// runTask runs a task until it waits. It returns false if another goroutine has taken over.
func (p *poller) runTask(t *Task) bool {
	p.turns++
	turn := p.turns
	p.turn.Store(turn)
	t.wake(true, p)
	return p.turn.CompareAndSwap(turn, 0)
}

const (
	readable = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	writable = unix.EPOLLOUT | unix.EPOLLHUP | unix.EPOLLERR
	ended    = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
)

// fill begins a batch. A connection that is closed after this still gets its event, which does no
// harm.
func (p *poller) fill(events []unix.EpollEvent) {
	p.batch, p.at = p.batch[:len(events)], 0
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range events {
		c, what := p.conns[events[i].Fd], events[i].Events
		p.batch[i] = event{c, c != nil && what&readable != 0, c != nil && what&writable != 0}
		if !p.batch[i].read {
			continue
		}
		c.reports.Add(1)
		if what&ended != 0 {
			c.ended.Store(true)
		}
	}
}

// dispatch wakes what waits for the events of the batch, in their order: it runs tasks, and wakes
// goroutines. The scheduler runs the goroutine first that was woken last, so dispatch wakes the
// first one last. It returns false if another goroutine has taken over.
func (p *poller) dispatch() bool {
	for p.at < len(p.batch) {
		switch e := &p.batch[p.at]; {
		case e.write:
			if e.write = false; !p.wake(&e.c.writes) {
				return false
			}
		case e.read:
			if e.read = false; !p.wake(&e.c.reads) {
				return false
			}
		default:
			e.c = nil
			p.at++
		}
	}
	if p.first != nil {
		p.first.rouse(true)
		p.first = nil
	}
	return true
}

// wake wakes what waits for a side that is ready. It returns false if another goroutine has taken
// over.
func (p *poller) wake(s *side) bool {
	switch {
	case !s.signal():
	case s.parked == nil && s.task != nil:
		return p.runTask(s.task)
	case p.first == nil:
		p.first = s
	default:
		s.rouse(true)
	}
	return true
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
