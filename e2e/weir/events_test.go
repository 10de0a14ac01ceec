package weir

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

const eventsPath = "/api/v1/widget/events"

// A feedReader is one client's event stream.
type feedReader struct {
	response *http.Response
	lines    *bufio.Reader
	lastID   string // of the last event read
}

// openFeed asks for a stream of the events after lastID, or of all events if lastID
// is empty. The status may be any.
func openFeed(ctx context.Context, client *http.Client, url, visitor, lastID string) (*feedReader, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+eventsPath, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Authorization", "Bearer "+visitor)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	return &feedReader{response: response, lines: bufio.NewReader(response.Body), lastID: lastID}, nil
}

// next returns the number of the next event, and io.EOF at a regular end of the
// stream.
func (f *feedReader) next() (int64, error) {
	for id := ""; ; {
		line, err := f.lines.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if after, ok := strings.CutPrefix(line, "id: "); ok {
			id = strings.TrimSpace(after)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var e struct {
				ID           int64
				Conversation string `json:"conversation_id"`
			}
			if err := json.Unmarshal([]byte(data), &e); err != nil || id != fmt.Sprintf("%s/%d", e.Conversation, e.ID) {
				return 0, fmt.Errorf("event %q is %s: %w", id, data, err)
			}
			f.lastID = id
			return e.ID, nil
		}
	}
}

// want reads the events from one number to another.
func (f *feedReader) want(from, to int64) error {
	for n := from; n <= to; n++ {
		got, err := f.next()
		if err == nil && got != n {
			err = errors.New("another one is expected")
		}
		if err != nil {
			return fmt.Errorf("event %d, expected %d: %w", got, n, err)
		}
	}
	return nil
}

// plentyPolicy writes a policy file with one limiter that no test reaches.
func plentyPolicy(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "policy.yaml")
	plenty := "limiters:\n  - name: plenty\n    routes: [/*]\n    windows: [10000000 per minute by ip]\n"
	if err := os.WriteFile(file, []byte(plenty), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// errBusy is a 503: other writers held the database for so long that the event is
// not stored. That happens on a slow machine.
var errBusy = errors.New("the database is busy")

// reportEvent reports one event of a visitor's. It may return errBusy.
func reportEvent(url, visitor, data string) error {
	r, err := http.NewRequest(http.MethodPost, url+eventsPath, strings.NewReader(`{"type":"test","data":`+data+`}`))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+visitor)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	switch response.StatusCode {
	case http.StatusAccepted:
		return nil
	case http.StatusServiceUnavailable:
		return errBusy
	}
	return fmt.Errorf("status %d", response.StatusCode)
}

// A stream is counted like any other request: its answer has the limiter's fields
// (D19).
func TestAStreamIsCountedAndHasTheFields(t *testing.T) {
	s := serveWeir(t)
	visitor := session(t, s.url)
	for n := range 3 {
		f, err := openFeed(t.Context(), http.DefaultClient, s.url, visitor, "")
		if err != nil {
			t.Fatal(err)
		}
		h := f.response.Header
		if h.Get("X-RateLimit-Limit") != "300" || h.Get("X-RateLimit-Remaining") != fmt.Sprint(299-n) || h.Get("X-RateLimit-Reset") == "" {
			t.Errorf("stream %d has the fields %v", n+1, h)
		}
		if err := f.want(1, 1); err != nil {
			t.Error(err)
		}
	}
	s.end(t)
}

// A server is killed while it sends events, and another takes its place. Together
// they send each event once, including every acknowledged one.
func TestAStreamResumesAfterItsServerWasKilled(t *testing.T) {
	policy, data := plentyPolicy(t), t.TempDir()
	first := serveIn(t, data, "--policy", policy)
	visitor := session(t, first.url)
	f, err := openFeed(t.Context(), http.DefaultClient, first.url, visitor, "")
	if err != nil {
		t.Fatal(err)
	}
	var acknowledged atomic.Int64
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for { // until it is killed
				switch err := reportEvent(first.url, visitor, `{"a":"b"}`); {
				case err == nil:
					acknowledged.Add(1)
				case !errors.Is(err, errBusy):
					return
				}
			}
		})
	}
	if err := f.want(1, 200); err != nil {
		t.Fatal(err)
	}
	if code, err := first.signal(syscall.SIGKILL); err != nil || code != -1 {
		t.Fatalf("SIGKILL: status %d, %v", code, err)
	}
	writers.Wait()
	at := int64(200)
	for { // events in flight
		n, err := f.next()
		if err != nil {
			break
		}
		if at++; n != at {
			t.Fatalf("after event %d comes %d", at-1, n)
		}
	}

	second := serveIn(t, data, "--policy", policy)
	if f, err = openFeed(t.Context(), http.DefaultClient, second.url, visitor, f.lastID); err != nil {
		t.Fatal(err)
	}
	stored := int64(counted(t, database(t, data), "SELECT max(n) FROM events"))
	if stored < 1+acknowledged.Load() {
		t.Errorf("%d events are stored, %d were acknowledged", stored-1, acknowledged.Load())
	}
	if err := reportEvent(second.url, visitor, "{}"); err != nil {
		t.Fatal(err)
	}
	if err := f.want(at+1, stored+1); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	second.end(t)
}

// A drain ends open streams and waits. Nothing is cut off, and the drain does not
// take its whole timeout.
func TestADrainEndsStreamsAndWaits(t *testing.T) {
	s := serveWeir(t, "--policy", plentyPolicy(t))
	visitor := session(t, s.url)
	var feeds []*feedReader
	for range 7 { // of a session's eight places
		f, err := openFeed(t.Context(), http.DefaultClient, s.url, visitor, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.want(1, 1); err != nil {
			t.Fatal(err)
		}
		feeds = append(feeds, f)
	}
	wait := func(seconds int) (int, error) {
		path := fmt.Sprintf("%s?after=1&wait=%d", eventsPath, seconds)
		a, err := call{method: http.MethodGet, path: path, header: map[string]string{"Authorization": "Bearer " + visitor}}.
			send(t.Context(), http.DefaultClient, s.url)
		return a.status, err
	}
	waited := make(chan error, 1)
	go func() {
		status, err := wait(25)
		// The request that checks for a free place takes it.
		for err == nil && status == http.StatusConflict {
			status, err = wait(25)
		}
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		waited <- err
	}()
	for status := 0; status != http.StatusConflict; { // the eighth is taken
		var err error
		if status, err = wait(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, f := range feeds {
		if _, err := f.next(); err != io.EOF {
			t.Errorf("a stream ends with %v", err)
		}
	}
	if err := <-waited; err != nil {
		t.Errorf("the wait ends with %v", err)
	}
	if code, err := s.wait(); err != nil || code != 0 {
		t.Errorf("weir serve ended with status %d, %v", code, err)
	}
	if log := s.stderr.String(); strings.Contains(log, "did not finish in time") {
		t.Errorf("requests were cut off:\n%s", log)
	}
}
