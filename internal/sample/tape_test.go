package sample

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/openapitest"
)

// patience is the time-out for what must happen; a passing test never waits that long.
const patience = 30 * time.Second

// live serves the backend over a socket until the test ends.
func (k *bench) live() (url string) {
	k.Helper()
	s := httptest.NewServer(k.b.Handler())
	k.Cleanup(s.Close)
	k.Cleanup(k.b.Drain) // runs first
	return s.URL
}

// A tape is an event stream that is being read.
type tape struct {
	*testing.T
	res    *http.Response
	lines  *bufio.Reader
	leave  context.CancelFunc
	lastID string
}

// A frame is the text between two empty lines of a stream.
type frame struct{ id, data, retry, comment string }

// listen opens a stream and reads its first frame.
func (k *bench) listen(url, credential, query string, fields ...string) *tape {
	k.Helper()
	p := k.get(url, credential, query, append([]string{"Accept", "text/event-stream"}, fields...)...)
	if p.res.StatusCode != 200 || p.res.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(p.res.Body)
		k.Fatalf("the stream is answered %d %s %s", p.res.StatusCode, p.res.Header, body)
	}
	if f, err := p.next(); err != nil || f != (frame{retry: "2000"}) {
		k.Fatalf("the stream begins with %+v, %v", f, err)
	}
	return p
}

// get sends a request for events, and does not read the answer's body.
func (k *bench) get(url, credential, query string, fields ...string) *tape {
	k.Helper()
	p, err := k.dial(url, credential, query, fields...)
	if err != nil {
		k.Fatal(err)
	}
	return p
}

// dial is get for a server that may be down.
func (k *bench) dial(url, credential, query string, fields ...string) (*tape, error) {
	ctx, leave := context.WithTimeout(context.Background(), patience)
	k.Cleanup(leave)
	r, err := http.NewRequestWithContext(ctx, "GET", url+"/api/v1/widget/events"+query, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", credential)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	res, err := cmp.Or(k.client, http.DefaultClient).Do(r)
	if err != nil {
		return nil, err
	}
	k.compare(openapitest.Exchange{Request: r, Status: res.StatusCode, Header: res.Header, Unread: true}, rateHeaders...)
	return &tape{T: k.T, res: res, lines: bufio.NewReader(res.Body), leave: leave}, nil
}

// next reads a frame. It returns io.EOF at the regular end of the stream.
func (p *tape) next() (f frame, err error) {
	for {
		line, err := p.lines.ReadString('\n')
		if err != nil {
			return f, err
		}
		switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":"); name {
		case "id":
			f.id = strings.TrimPrefix(value, " ")
			p.lastID = f.id
		case "data":
			f.data = strings.TrimPrefix(value, " ")
		case "retry":
			f.retry = strings.TrimPrefix(value, " ")
		default:
			if line != "\n" {
				f.comment = line
				continue
			}
			return f, nil
		}
	}
}

// event reads frames up to the next event and returns its number, or 0 if there is none.
func (p *tape) event() (n int64) {
	for {
		f, err := p.next()
		if err != nil {
			return 0
		}
		if f.data == "" {
			continue
		}
		var e struct {
			Conversation string `json:"conversation_id"`
			ID           int64
		}
		if err := json.Unmarshal([]byte(f.data), &e); err != nil || f.id != fmt.Sprint(e.Conversation, "/", e.ID) {
			p.Errorf("a frame is %+v: %v", f, err)
		}
		return e.ID
	}
}

// wantEvents reads events, and checks that they have the numbers from..to.
func (p *tape) wantEvents(from, to int64) {
	p.Helper()
	for n := from; n <= to; n++ {
		if got := p.event(); got != n {
			p.Fatalf("the stream has event %d, want %d", got, n)
		}
	}
}

// wantEnd reads the rest, which must contain no event.
func (p *tape) wantEnd() (comments string) {
	p.Helper()
	for {
		f, err := p.next()
		comments += f.comment
		if err == io.EOF {
			return comments
		}
		if err != nil || f.data != "" {
			p.Fatalf("the stream goes on with %+v, %v", f, err)
		}
	}
}

// report adds events to the session's conversation, without a socket.
func (k *bench) report(n int) {
	k.Helper()
	for range n {
		k.widget("POST events", `{"type":"x"}`).want(202)
	}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain: %s", what)
		case <-tick.C:
		}
	}
}

// holds returns the numbers of held requests, and of sessions, addresses and topics in memory.
func (k *bench) holds() (requests, sessions, addresses, topics int) {
	h, f := k.b.held, k.b.feed
	h.mu.Lock()
	defer h.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	return h.all, len(h.sessions), len(h.addresses), len(f.topics)
}

// wantNobody waits until no request is held and the maps of held are empty.
func (k *bench) wantNobody() {
	k.Helper()
	eventually(k.T, "nothing is held open", func() bool {
		a, b, c, d := k.holds()
		return a == 0 && b == 0 && c == 0 && d == 0
	})
}
