package redistest

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Proxy sits between a client and a server, and simulates faults of the network. It is safe for
// concurrent use.
type Proxy struct {
	addr                 string
	toServer, fromServer atomic.Int64
	done                 sync.WaitGroup // the goroutines

	mu       sync.Mutex
	listener net.Listener // nil while it refuses
	target   string
	delay    time.Duration
	hole     bool
	parted   map[string]bool // the hosts of clients for which it is a hole
	links    map[*link]bool  // the open connections
}

// NewProxy starts a proxy that passes everything to target.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := newProxy(target)
	for p.listener == nil {
		p.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(sparePort(t)))
		_ = p.listen() // another process may have taken the port
	}
	p.endWith(t)
	return p
}

func newProxy(target string) *Proxy {
	return &Proxy{target: target, links: make(map[*link]bool), parted: make(map[string]bool)}
}

func (p *Proxy) endWith(t testing.TB) {
	t.Cleanup(func() {
		p.Refuse()
		p.done.Wait()
	})
}

// Addr returns the HOST:PORT of the proxy, which does not change.
func (p *Proxy) Addr() string { return p.addr }

// Pass passes everything, as initially. Connections that have lost bytes in a BlackHole are reset,
// because a stream with a gap is useless.
func (p *Proxy) Pass(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole {
		p.cut()
	}
	for host := range p.parted {
		p.join(host)
	}
	p.hole, p.delay = false, 0
	if p.listener == nil {
		if err := p.listen(); err != nil {
			t.Fatal(err)
		}
	}
}

// Delay delays each answer by d from its arrival. The delays of consecutive answers do not add up.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// BlackHole drops all bytes in both directions, on open connections and on new ones, which it
// accepts, until Pass.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = true
}

// part is BlackHole for the clients of one host.
func (p *Proxy) part(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parted[host] = true
}

// join ends part: the connections that have lost bytes are reset. p.mu is held.
func (p *Proxy) join(host string) {
	delete(p.parted, host)
	for l := range p.links {
		if l.host == host {
			l.reset()
			delete(p.links, l)
		}
	}
}

// Refuse resets the connections and refuses new ones, as if no process listened, until Pass.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.cut()
}

// Cut resets the open connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

// Retarget connects new connections to another address. Open connections do not change.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Bytes returns how many bytes have been passed on since NewProxy.
func (p *Proxy) Bytes() (toServer, fromServer int64) { return p.toServer.Load(), p.fromServer.Load() }

// Connections returns the number of open connections.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// cut resets the connections. p.mu is held.
func (p *Proxy) cut() {
	for l := range p.links {
		l.reset()
		delete(p.links, l)
	}
}

// listen opens the listener. p.mu is held, unless p is not yet shared.
func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.listener = l
	p.done.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.done.Go(func() { p.serve(l, client.(*net.TCPConn)) })
		}
	})
	return nil
}

// A link is a client's connection and its continuation to the server.
type link struct {
	client, server *net.TCPConn // server may be nil
	host           string       // the client's
	ended          chan struct{}
	once           sync.Once
}

// reset closes both ends with a reset.
func (l *link) reset() {
	for _, c := range []*net.TCPConn{l.client, l.server} {
		if c != nil {
			_ = c.SetLinger(0)
		}
	}
	l.close()
}

func (l *link) close() {
	l.once.Do(func() { close(l.ended) })
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}

func (p *Proxy) serve(from net.Listener, client *net.TCPConn) {
	host, _, _ := net.SplitHostPort(client.RemoteAddr().String())
	l := &link{client: client, host: host, ended: make(chan struct{})}
	p.mu.Lock()
	open, hole, target := p.listener == from, p.hole || p.parted[host], p.target
	if open {
		p.links[l] = true
	}
	p.mu.Unlock()
	defer p.drop(l)
	if !open {
		return
	}
	if !hole {
		server, err := net.DialTimeout("tcp", target, time.Second)
		if err != nil {
			return
		}
		p.mu.Lock()
		l.server = server.(*net.TCPConn)
		open := p.links[l]
		p.mu.Unlock()
		if !open { // cut while dialling
			return
		}
		p.done.Go(func() { p.answer(l) })
	}
	p.ask(l)
}

// drop ends a connection in any state.
func (p *Proxy) drop(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.close()
	delete(p.links, l)
}

// ask passes on the client's bytes.
func (p *Proxy) ask(l *link) {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			return
		}
		if l.server == nil || p.swallows(l) {
			continue
		}
		p.toServer.Add(int64(n)) // before anyone can know that they arrived
		if _, err := l.server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// An answer is a piece of the server's output, and when the client gets it.
type answer struct {
	bytes []byte
	due   time.Time
}

// answer passes on the server's bytes after the delay.
func (p *Proxy) answer(l *link) {
	defer p.drop(l)
	queue := make(chan answer, 1024)
	p.done.Go(func() {
		defer close(queue)
		for buf := make([]byte, 64<<10); ; {
			n, err := l.server.Read(buf)
			if err != nil {
				return
			}
			select {
			case queue <- answer{append([]byte(nil), buf[:n]...), time.Now().Add(p.delayed())}:
			case <-l.ended:
				return
			}
		}
	})
	for a := range queue {
		select {
		case <-time.After(time.Until(a.due)):
		case <-l.ended:
			return
		}
		if p.swallows(l) {
			continue
		}
		p.fromServer.Add(int64(len(a.bytes)))
		if _, err := l.client.Write(a.bytes); err != nil {
			return
		}
	}
}

func (p *Proxy) swallows(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hole || p.parted[l.host]
}

func (p *Proxy) delayed() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}
