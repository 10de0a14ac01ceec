package engines

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is the timeout for events that must happen. Only a failing test waits
// that long.
const patience = 20 * time.Second

// farewell is the request after every stream. Its answer ends the connection, and
// proves that both sides agree on where requests begin.
const farewell = "GET /end HTTP/1.1\r\nHost: end.example.com\r\nConnection: close\r\n\r\n"

// An outcome is the result of a stream.
type outcome struct {
	requests  []*message // that reached the upstream
	anomalies []string   // input of the upstream that is not a request
	answers   []*message // received answers, without 100 Continue, which is optional
	// the number of answers before the server waited for more input, and the client
	// closed its sending side; -1 if it never did
	waited    int
	strange   string // output that is not an answer
	received  chan struct{}
	uncounted int // requests that reached the upstream without being counted
}

// A caller sends streams, each from its own address in 127.0.0.0/8, so that they share no window.
type caller struct{ next atomic.Uint32 }

func (c *caller) dial(t testing.TB, addr string) (*net.TCPConn, net.IP) {
	t.Helper()
	n := c.next.Add(1)
	from := net.IPv4(127, 1+byte(n>>16), byte(n>>8), byte(n))
	dialer := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: from}}
	conn, err := dialer.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn), from
}

// pause, as a piece of a stream, waits for the head of an answer that is not a 100.
const pause = "pause"

// exchange sends the pieces of a stream and reads the answers. If the server is
// silent for longer than quiet, exchange closes the sending side.
func (o *outcome) exchange(c *net.TCPConn, pieces []string, quiet time.Duration) {
	var writing sync.WaitGroup
	done := make(chan struct{})
	o.received = make(chan struct{}, 100)
	ended := make(chan struct{})
	writing.Go(func() {
		defer close(done)
		_ = c.SetWriteDeadline(time.Now().Add(patience))
		for _, piece := range pieces {
			if piece == pause {
				select {
				case <-o.received:
				case <-ended:
				}
				continue
			}
			if _, err := io.WriteString(c, piece); err != nil {
				return // the server has refused, and reads no further
			}
			runtime.Gosched()
		}
	})
	o.waited = -1
	in := &patient{conn: c, quiet: quiet, written: done, half: func(got int) { o.waited = len(o.answers) }}
	o.read(bufio.NewReader(in))
	close(ended)
	_ = c.Close()
	writing.Wait()
}

// A patient reader closes its connection's sending side if no input arrives, then
// reads on.
type patient struct {
	conn    *net.TCPConn
	quiet   time.Duration
	written <-chan struct{}
	half    func(got int)
	halved  bool
}

func (p *patient) Read(b []byte) (int, error) {
	for {
		wait := p.quiet
		if p.halved {
			wait = patience
		}
		_ = p.conn.SetReadDeadline(time.Now().Add(wait))
		n, err := p.conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || p.halved {
			return n, err
		}
		select {
		case <-p.written:
			p.halved = true
			p.half(n)
			_ = p.conn.CloseWrite()
		default: // the server is slow to read
		}
	}
}

// read reads answers until the connection ends. If the connection is reset, lost
// answers look the same as unsent ones.
func (o *outcome) read(in *bufio.Reader) {
	for {
		m, err := readHead(in)
		switch {
		case err == io.EOF, isReset(err):
			return
		case err != nil:
			o.strange = err.Error()
			return
		}
		status := m.status()
		if status == 0 {
			o.strange = fmt.Sprintf("%.200q is not a status line", m.first)
			return
		}
		if status != 100 {
			o.answers = append(o.answers, m)
			select {
			case o.received <- struct{}{}:
			default: // more answers than any test expects
			}
		}
		if status == 101 {
			tunnel, _ := io.ReadAll(in)
			m.tunnel = string(tunnel)
			return
		}
		if err := m.readAnswer(in, status); err != nil {
			o.strange = fmt.Sprintf("%s: %v", m.first, err)
			return
		}
	}
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}

// status returns the status of a status line, or 0.
func (m *message) status() int {
	if len(m.first) < len("HTTP/1.1 200") || m.first[:7] != "HTTP/1." {
		return 0
	}
	n, err := strconv.Atoi(m.first[9:12])
	if err != nil || n < 100 {
		return 0
	}
	return n
}

// readAnswer reads the body of an answer. It does not know whether this answers a
// HEAD, because the request may have been invalid: input that looks like an answer
// is the next one.
func (m *message) readAnswer(in *bufio.Reader, status int) error {
	length, err := m.framing()
	if err != nil {
		return err
	}
	if status < 200 || status == 204 || status == 304 {
		return nil
	}
	if next, _ := in.Peek(7); string(next) == "HTTP/1." || length != -2 && len(next) == 0 {
		return nil
	}
	if length == -2 {
		body, _ := io.ReadAll(in)
		m.body = string(body)
		return nil
	}
	return m.readBody(in, length)
}

// summary formats an outcome in a line: the complete requests that reached the upstream, the
// answers, and the end.
//
//	POST /a "abc", end -> 200 end     and then the server closed, as requested
//
// nothing -> 400                    it refused, and closed
//
//	GET /a -> 200 waits               it waited for more, and sent nothing when that did not come
func (o *outcome) summary() string {
	var forwarded, back []string
	for _, m := range o.requests {
		if !m.cut { // an incomplete request has random length
			forwarded = append(forwarded, m.request())
		}
	}
	if len(forwarded) == 0 {
		forwarded = append(forwarded, "nothing")
	}
	for i, m := range o.answers {
		if i == o.waited {
			back = append(back, "waits")
		}
		back = append(back, m.answer())
	}
	if o.waited == len(o.answers) {
		back = append(back, "waits")
	}
	if len(back) == 0 {
		back = append(back, "nothing")
	}
	text := strings.Join(forwarded, ", ") + " -> " + strings.Join(back, " ")
	if o.strange != "" {
		text += " and then " + o.strange
	}
	if o.uncounted > 0 {
		text += fmt.Sprintf("; %d UNCOUNTED", o.uncounted)
	}
	for _, anomaly := range o.anomalies {
		text += "; ANOMALY " + anomaly
	}
	return text
}

// request formats a request briefly.
func (m *message) request() string {
	text := strings.TrimSuffix(strings.TrimSuffix(m.first, " HTTP/1.1"), " HTTP/1.0")
	text = strings.ToValidUTF8(text, "?")
	switch {
	case text == "GET /end":
		text = "end"
	case len(text) > 100:
		text = fmt.Sprintf("%s… (%d)", text[:20], len(text))
	}
	switch {
	case len(m.body) > 40:
		text += fmt.Sprintf(" (%d bytes)", len(m.body))
	case m.body != "":
		text += fmt.Sprintf(" %q", m.body)
	}
	for _, f := range m.trailers {
		text += fmt.Sprintf(" +%s:%s", f.name, f.value)
	}
	if m.tunnel != "" {
		text += fmt.Sprintf(" then %d bytes", len(m.tunnel))
	}
	return text
}

func (m *message) answer() string {
	text := strconv.Itoa(m.status())
	if m.has("x-saw", "GET /end") {
		text = "end"
	}
	if m.cut {
		text += " cut"
	}
	return text
}

// detail returns all parts of an outcome that two servers must agree on.
func (o *outcome) detail(keep func(name string) bool) []string {
	text := []string{o.summary()}
	for _, m := range o.requests {
		if !m.cut {
			text = append(text, "request "+m.full(keep))
		}
	}
	for _, m := range o.answers {
		text = append(text, "answer "+m.full(keep))
	}
	return text
}

func (m *message) full(keep func(name string) bool) string {
	var b strings.Builder
	b.WriteString(m.first)
	for _, f := range m.fields {
		switch {
		case !keep(f.name):
		case f.name == "date":
			b.WriteString("\n\tdate") // its value varies
		default:
			fmt.Fprintf(&b, "\n\t%s: %.100s", f.name, f.value)
		}
	}
	fmt.Fprintf(&b, "\n\tbody %d %.300q", len(m.body), m.body)
	for _, f := range m.trailers {
		fmt.Fprintf(&b, "\n\ttrailer %s: %s", f.name, f.value)
	}
	if m.tunnel != "" {
		fmt.Fprintf(&b, "\n\ttunnel %q", m.tunnel)
	}
	return b.String()
}

// withoutItsWords reduces each refusal that ends the connection to its status,
// because net/http has its own wording. passedOn is for foreign servers: it reduces
// every answer that does not come from the upstream.
func (o *outcome) withoutItsWords() *outcome {
	return o.reduced(func(m *message) bool { return m.status() >= 400 && m.has("connection", "close") })
}

func (o *outcome) passedOn() *outcome {
	return o.reduced(func(*message) bool { return true })
}

func (o *outcome) reduced(which func(*message) bool) *outcome {
	copied := *o
	copied.answers = nil
	for _, m := range o.answers {
		if len(m.values("x-saw")) == 0 && which(m) {
			m = &message{first: m.first[:min(len(m.first), len("HTTP/1.1 200"))]}
		}
		copied.answers = append(copied.answers, m)
	}
	return &copied
}

// differ returns the lines that are in only one of two details, marked with their
// origin.
func differ(a, b []string, nameA, nameB string) string {
	var text []string
	for i := range max(len(a), len(b)) {
		var of, or string
		if i < len(a) {
			of = a[i]
		}
		if i < len(b) {
			or = b[i]
		}
		if of != or {
			text = append(text, onlyIn(of, or, nameA), onlyIn(or, of, nameB))
		}
	}
	return strings.Join(text, "")
}

func onlyIn(a, b, name string) string {
	have := strings.Split(b, "\n\t")
	text := ""
	for line := range strings.SplitSeq(a, "\n\t") {
		if !slices.Contains(have, line) {
			text += fmt.Sprintf("\n  %s alone: %s", name, line)
		}
	}
	return text
}
