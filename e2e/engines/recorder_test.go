package engines

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A recorder is an upstream that records the requests that reach it. It uses no
// HTTP library, so that it is strict everywhere: any input but a request in the
// strictest form is an anomaly, and ends the connection.
type recorder struct {
	listener net.Listener
	answers  map[string]reply // by name
	serving  sync.WaitGroup

	mu        sync.Mutex
	conns     map[net.Conn]bool
	requests  []*message // in the order in which their heads were complete
	anomalies []string
	busy      int
	quiet     chan struct{} // if not nil, take waits until busy is 0
}

func newRecorder(t testing.TB, answers map[string]reply) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{listener: l, answers: answers, conns: make(map[net.Conn]bool)}
	r.serving.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

func (r *recorder) addr() string { return r.listener.Addr().String() }

func (r *recorder) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.serving.Wait()
}

func (r *recorder) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.conns[c] = true
		r.mu.Unlock()
		r.serving.Go(func() {
			r.serve(c)
			_ = c.Close()
			r.mu.Lock()
			delete(r.conns, c)
			r.mu.Unlock()
		})
	}
}

// enter is called at the first byte of a request, leave when the request is
// finished.
func (r *recorder) enter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy++
}

func (r *recorder) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy--; r.busy == 0 && r.quiet != nil {
		close(r.quiet)
		r.quiet = nil
	}
}

// take returns what has arrived since the last call, once no request is in
// progress.
func (r *recorder) take(t testing.TB) (requests []*message, anomalies []string) {
	t.Helper()
	r.mu.Lock()
	for r.busy > 0 { // another request can begin before the lock is held again
		quiet := make(chan struct{})
		r.quiet = quiet
		r.mu.Unlock()
		select {
		case <-quiet:
		case <-time.After(patience):
			t.Fatal("the upstream waits for the end of a request that the client has abandoned")
		}
		r.mu.Lock()
	}
	defer r.mu.Unlock()
	requests, anomalies = r.requests, r.anomalies
	r.requests, r.anomalies = nil, nil
	return requests, anomalies
}

func (r *recorder) wrong(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.anomalies = append(r.anomalies, err.Error())
}

// serve reads and answers one request after another.
func (r *recorder) serve(c net.Conn) {
	in := bufio.NewReader(c)
	for {
		if _, err := in.Peek(1); err != nil {
			return
		}
		if !r.exchange(c, in) {
			return
		}
	}
}

// exchange handles one request. It reports whether another may follow.
func (r *recorder) exchange(c net.Conn, in *bufio.Reader) bool {
	r.enter()
	defer r.leave()
	m, err := readHead(in)
	if err == nil {
		err = checkRequest(m)
		r.disguise(m)
	}
	length := int64(0)
	if err == nil {
		length, err = m.framing()
	}
	if err != nil {
		r.wrong(err)
		return false
	}
	r.mu.Lock()
	r.requests = append(r.requests, m)
	r.mu.Unlock()
	method, rest, _ := strings.Cut(m.first, " ")
	target, _, _ := strings.Cut(rest, " ")
	a := r.answers[r.nameOf(target)]
	if strings.Contains(strings.ToLower(strings.Join(m.values("expect"), ",")), "100-continue") {
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	write := func() { _, _ = io.WriteString(c, a.text(method, target)) }
	if a.early {
		write()
	}
	if length == -2 {
		length = 0 // of a request
	}
	if err := m.readBody(in, length); err != nil {
		r.wrong(fmt.Errorf("%s: %w", m.first, err))
		return false
	}
	if a.early { // whether the rest arrives is random
		whole := !m.cut
		m.body, m.cut = "", false
		return whole
	}
	if m.cut {
		return false
	}
	write()
	if strings.HasPrefix(a.status, "101") && len(m.values("upgrade")) > 0 {
		tunnel, _ := io.ReadAll(in)
		m.tunnel = string(tunnel)
		_, _ = fmt.Fprintf(c, "%d bytes came through", len(tunnel))
		return false
	}
	return !a.ends
}

// disguise removes the port from requests to the recorder itself, because each
// subject has its own recorder.
func (r *recorder) disguise(m *message) {
	for i := range m.fields {
		if m.fields[i].value == r.addr() {
			m.fields[i].value = "the upstream itself"
		}
	}
}

// nameOf returns the name of the answer for a target: the last part of its path, if
// such an answer exists.
func (r *recorder) nameOf(target string) string {
	path, _, _ := strings.Cut(target, "?")
	name := path[strings.LastIndexByte(path, '/')+1:]
	if _, ok := r.answers[name]; ok {
		return name
	}
	return ""
}

// checkRequest checks that a request line has its only valid form, and that the head has the fields
// of every request to an upstream.
func checkRequest(m *message) error {
	words := strings.Split(m.first, " ")
	if len(words) != 3 || words[0] == "" || words[1] == "" || words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0" {
		return fmt.Errorf("%.200q is not a request line", m.first)
	}
	if strings.Trim(words[0], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || strings.ContainsFunc(words[1], func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return fmt.Errorf("the method or the target of %.200q", m.first)
	}
	if len(m.values("host")) > 1 {
		return errors.New("several Hosts")
	}
	return nil
}
