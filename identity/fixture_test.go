package identity_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

// noon is the start of every timeline.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A clock is stopped until the test sets it.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: noon} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(sinceNoon time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = noon.Add(sinceNoon)
}

// request returns a request from peer. fields are alternating names and values; a
// repeated name makes another line.
func request(peer string, fields ...string) *identity.HTTPRequest {
	r := httptest.NewRequest(http.MethodGet, "/v1/wp/settings", nil)
	r.RemoteAddr = peer
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return &identity.HTTPRequest{Request: r}
}

func bearing(credential string) *identity.HTTPRequest {
	return request("192.0.2.1:4711", "Authorization", "Bearer "+credential)
}

func resolver(t testing.TB, o identity.Options) *identity.Resolver {
	t.Helper()
	r, err := identity.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func caller(r *identity.Resolver, req identity.Request) *identity.Caller {
	c := new(identity.Caller)
	r.Start(c, req)
	return c
}

func networks(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// key returns the value of one source, and whether the caller has it.
func key(c *identity.Caller, source string) (value string, ok bool) {
	b, ok := c.AppendKey(nil, source)
	return string(b), ok
}

var errTorn = errors.New("the connection was torn")

// torn returns text, then fails with errTorn once, then ends, as no real body does.
type torn struct {
	text     string
	reported bool
}

func (r *torn) Read(p []byte) (int, error) {
	if r.text != "" {
		n := copy(p, r.text)
		r.text = r.text[n:]
		return n, nil
	}
	if r.reported {
		return 0, io.EOF
	}
	r.reported = true
	return 0, errTorn
}
