package weir

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/gateway"
)

// A critic is told what is not as an example says. Fatalf does not return.
type critic interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A stage is where a script is played: callers, something that limits them by a policy, a backend
// that answers as requests ask it to, and a clock that the script sets.
type stage struct {
	critic
	policy  weir.Policy
	door    http.Handler
	hosts   []string // those that have a backend; none: all
	now     atomic.Int64
	asked   atomic.Int64 // requests that the backend got
	holding chan struct{}
	release chan struct{}
	held    []chan completion
}

func newStage(c critic, s *script, p weir.Policy) *stage {
	on := &stage{critic: c, policy: p, hosts: s.hosts, holding: make(chan struct{}), release: make(chan struct{})}
	on.now.Store(1_800_000_000 * int64(time.Second))
	return on
}

func (s *stage) clock() time.Time      { return time.Unix(0, s.now.Load()) }
func (s *stage) after(d time.Duration) { s.now.Add(int64(d)) }

// fresh waits until all windows have ended, and begins at a whole second.
func (s *stage) fresh() { s.now.Store((s.now.Load()/int64(weir.MaxSpan) + 2) * int64(weir.MaxSpan)) }

// onEdge returns a stage with the whole edge under an example, before the backend.
func onEdge(t *testing.T, s *script, store edge.Store) *stage {
	t.Helper()
	policy := parsed(t, readText(t, examples+s.file))
	on := newStage(t, s, policy.Policy)
	backend := httptest.NewServer(on)
	t.Cleanup(func() { on.letGo(); backend.Close() })
	at, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := inProcess(t, policy, on.clock)
	c.Store, c.Sites = store, gateway.To(at)
	c.TokenFile, c.Sessions.KeyFiles = write("tokens", tokenLines()), []string{write("secret.key", sessionKey)}
	if on.hosts != nil {
		c.Sites = nil
	}
	for _, host := range on.hosts {
		c.Sites = append(c.Sites, gateway.Site{Host: host, Upstreams: []*url.URL{at}})
	}
	on.door = openEdge(t, c).Handler()
	return on
}

// ServeHTTP is the backend. It answers 200, or with the status of the query, in which "tells" is
// the cost that it reports, and "hold" lets the request wait for letGo.
func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	ask := r.URL.Query()
	if ask.Has("hold") {
		s.holding <- struct{}{}
		<-s.release
	}
	status := s.answer(r.Host)
	if ask.Has("status") {
		_, _ = fmt.Sscan(ask.Get("status"), &status)
	}
	w.Header().Set("Content-Type", "application/json")
	if ask.Has("tells") {
		w.Header().Set("X-Cost", ask.Get("tells"))
	}
	w.WriteHeader(status)
	if ask.Has("tells") {
		_, _ = fmt.Fprintf(w, `{"usage":{"total_tokens":%s}}`, ask.Get("tells"))
	}
}

// A sender is a caller: an address, and what else it can be counted by. It has a token or a
// session, or neither.
type sender struct {
	from, agent, token, session string
}

// Two addresses, and two API tokens, of which the second one has the plan pro.
const (
	here  = "203.0.113.7"
	there = "198.51.100.9"

	standard = "the-key-of-a-standard-caller"
	pro      = "the-key-of-a-pro-caller"
)

// senders come from two addresses, with each credential. An address is also asked by two programs.
var senders = []sender{
	{from: here},
	{from: here, agent: "another"},
	{from: there},
	{from: here, token: standard},
	{from: here, token: standard, agent: "another"},
	{from: there, token: standard},
	{from: there, token: pro},
	{from: here, session: "ada"},
	{from: there, session: "ada"},
	{from: there, session: "bob"},
}

const sessionKey = "a secret of thirty-two bytes or more"

// tokenLines are the lines of a token file with the tokens of the senders.
func tokenLines() string {
	return fmt.Sprintf("one %x\ntwo %x plan=pro\n", sha256.Sum256([]byte(standard)), sha256.Sum256([]byte(pro)))
}

// credential returns what the sender has in Authorization: Bearer.
func (v sender) credential() string {
	if v.session == "" {
		return v.token
	}
	claims := jwt.MapClaims{"sid": v.session, "exp": 1 << 33}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(sessionKey))
	if err != nil {
		panic(err)
	}
	return signed
}

// has returns the sender's value for a key source; empty: none.
func (v sender) has(source string) string {
	switch source {
	case identity.IP:
		return v.from
	case identity.Agent:
		return "agent " + v.agent
	case identity.Token:
		return v.token
	case identity.Session:
		return v.session
	}
	return source
}

// budget returns which budget of a window the sender spends: senders with the same one share it.
func (v sender) budget(by weir.Key) string {
	var parts []string
	for _, part := range by {
		value := v.from
		for _, source := range part {
			if has := v.has(source); has != "" {
				value = has
				break
			}
		}
		parts = append(parts, value)
	}
	return strings.Join(parts, "+")
}

// send sends "METHOD [HOST]/PATH [BODY]".
func (s *stage) send(v sender, target string) completion {
	w := httptest.NewRecorder()
	s.door.ServeHTTP(w, request(v, target))
	header := make(http.Header) // in net/http's spelling
	for name, values := range w.Header() {
		header[http.CanonicalHeaderKey(name)] = values
	}
	return completion{w.Code, header, w.Body.Bytes()}
}

func request(v sender, target string) *http.Request {
	method, rest, _ := strings.Cut(target, " ")
	rest, body, _ := strings.Cut(rest, " ")
	slash := strings.IndexByte(rest, '/')
	r, err := http.NewRequest(method, rest[slash:], strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.RequestURI, r.RemoteAddr, r.Host = rest[slash:], v.from+":4711", "example.com"
	if slash > 0 {
		r.Host = rest[:slash]
	}
	if credential := v.credential(); credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	if v.agent != "" {
		r.Header.Set("User-Agent", v.agent)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// hold sends a request that the backend has not answered when hold returns. It reports false if the
// request was answered without it.
func (s *stage) hold(v sender, target string) (completion, bool) {
	done := make(chan completion, 1)
	go func() { done <- s.send(v, target+"?hold") }()
	select {
	case <-s.holding:
		s.held = append(s.held, done)
		return completion{}, true
	case c := <-done:
		return c, false
	}
}

// letGo lets the requests end that are held.
func (s *stage) letGo() {
	for range s.held {
		s.release <- struct{}{}
	}
	for _, done := range s.held {
		<-done
	}
	s.held = nil
}

// lacksLimit reports whether an answer has no field of a limit.
func (c completion) lacksLimit() bool { return c.header.Get("X-RateLimit-Limit") == "" }

// until returns the seconds from now to the reset that an answer tells.
func (s *stage) until(c completion) int64 { return c.number("X-RateLimit-Reset") - s.clock().Unix() }

// want checks a status, and what an answer tells of the window that binds: its limit, its rest, and
// the seconds until its reset.
func (s *stage) want(c completion, status int, limit, remaining, reset int64) {
	s.Helper()
	if c.status != status || c.number("X-RateLimit-Limit") != limit || c.number("X-RateLimit-Remaining") != remaining || s.until(c) != reset {
		s.Errorf("status %d, want %d with %d of %d remaining for %d s (of %d): %v %s", c.status, status, remaining, limit, reset, s.until(c), c.header, c.body)
	}
}

// times sends a request n times, which must all be admitted.
func (s *stage) times(n int, v sender, target string) {
	s.Helper()
	for i := range n {
		if c := s.send(v, target); c.status != http.StatusOK {
			s.Fatalf("%s %d of %d is answered %d %v %s", target, i+1, n, c.status, c.header, c.body)
		}
	}
}

// refused sends a request n times, which must all be refused.
func (s *stage) refused(n int, v sender, target string) {
	s.Helper()
	for i := range n {
		if c := s.send(v, target); c.status != http.StatusTooManyRequests {
			s.Fatalf("%s %d of %d is answered %d", target, i+1, n, c.status)
		}
	}
}

// free checks that no limiter covers requests.
func (s *stage) free(targets ...string) {
	s.Helper()
	for _, target := range targets {
		if c := s.send(sender{from: here}, target); !c.lacksLimit() {
			s.Errorf("%s is limited: %v", target, c.header)
		}
	}
}

// counts checks the window that binds a limiter's first requests, such as "10 per minute by ip":
// each sender spends a unit of its budget with each of the targets, which share the budgets, until
// that is spent. If needs is a credential, senders without it are answered 401.
func (s *stage) counts(window, needs string, targets ...string) {
	s.Helper()
	s.spends(1, window, needs, targets...)
}

// spends is counts of requests that cost so many units.
func (s *stage) spends(units int64, window, needs string, targets ...string) {
	s.Helper()
	w := s.window(window)
	s.fresh()
	used := make(map[string]int64)
	for _, target := range targets {
		for _, v := range senders {
			budget, status := v.budget(w.Key), s.answer(request(v, target).Host)
			if needs != "" && v.has(needs) == "" {
				status = http.StatusUnauthorized
			}
			if used[budget]+units > w.Limit {
				s.want(s.send(v, target), http.StatusTooManyRequests, w.Limit, 0, int64(w.Per/time.Second))
				continue
			}
			used[budget] += units
			s.want(s.send(v, target), status, w.Limit, w.Limit-used[budget], int64(w.Per/time.Second))
		}
	}
}

// answer returns the status of an answer of the backend, or of the gateway if the host has none.
func (s *stage) answer(host string) int {
	name, ok := weir.AppendHost(nil, host)
	if s.hosts == nil || ok && slices.Contains(s.hosts, string(name)) {
		return http.StatusOK
	}
	return http.StatusMisdirectedRequest
}

// fills checks a window that another one of its limiter hides at first: a sender sends a target
// that costs so many units whenever it is admitted, until it has spent the window. Then all that
// share its budget are refused until the reset, and no others.
func (s *stage) fills(window string, units int64, first sender, target string) {
	s.Helper()
	w := s.window(window)
	s.fresh()
	per, spent, begin := int64(w.Per/time.Second), int64(0), s.clock()
	for {
		c := s.send(first, target)
		if c.status == http.StatusOK && spent+units <= w.Limit {
			spent += units
			continue
		}
		wait := time.Duration(s.until(c)) * time.Second
		switch end := s.clock().Add(wait).Sub(begin); {
		case c.status != http.StatusTooManyRequests || wait <= 0 || end > w.Per:
			s.Fatalf("%s is answered %d %v when %d units are spent", target, c.status, c.header, spent)
		case end < w.Per:
			s.after(wait)
			continue
		}
		break
	}
	left := per - int64(s.clock().Sub(begin)/time.Second)
	s.want(s.send(first, target), http.StatusTooManyRequests, w.Limit, 0, left)
	if spent+units <= w.Limit {
		s.Errorf("%s is refused when %d units of %d are spent", target, spent, w.Limit)
	}
	for _, v := range senders {
		c := s.send(v, target)
		refused := c.status == http.StatusTooManyRequests && c.number("X-RateLimit-Limit") == w.Limit
		if v != first && refused != (v.budget(w.Key) == first.budget(w.Key)) {
			s.Errorf("%s of %v: refused is %v", target, v, refused)
		}
	}
	s.now.Store(begin.Add(w.Per).UnixNano() - 1)
	s.refused(1, first, target)
	s.after(1)
	s.times(1, first, target)
}

// holds checks a limit in flight: while that many requests of a sender wait for the backend, all
// that share its budget are to try again in a second, until they have ended. If needs is a
// credential, senders without it are answered 401.
func (s *stage) holds(inFlight, needs string, first sender, target string) {
	s.Helper()
	f, err := weir.ParseInFlight(inFlight)
	if err != nil {
		s.Fatalf("%v", err)
	}
	s.fresh()
	for i := range f.Limit {
		if c, ok := s.hold(first, target); !ok {
			s.Fatalf("%s %d of %d at a time is answered %d", target, i+1, f.Limit, c.status)
		}
	}
	s.after(time.Minute)
	for _, v := range senders {
		c := s.send(v, target+"?tells=0")
		switch {
		case needs != "" && v.has(needs) == "":
			if c.status != http.StatusUnauthorized {
				s.Errorf("%s of %v is answered %d", target, v, c.status)
			}
		case v.budget(f.Key) != first.budget(f.Key):
			if c.status != http.StatusOK {
				s.Errorf("%s of %v is answered %d %v", target, v, c.status, c.header)
			}
		default:
			if s.want(c, http.StatusTooManyRequests, f.Limit, 0, 1); c.number("Retry-After") != 1 {
				s.Errorf("%s is to be tried again after %d s", target, c.number("Retry-After"))
			}
		}
	}
	s.letGo()
	s.times(1, first, target)
}

func (s *stage) window(text string) weir.Window {
	s.Helper()
	w, err := weir.ParseWindow(text)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return w
}
