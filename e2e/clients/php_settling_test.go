package clients

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// A phpBackend serves calls that cost 10 units. The first holds its answer until as many are in
// flight as may be, so that a client that sends fewer at a time fails.
type phpBackend struct {
	slots int
	full  chan struct{} // closed when so many are in flight
	hangs chan struct{} // a call that hangs has come
	ended chan struct{} // and its caller has left

	mu       sync.Mutex
	inFlight int
	most     int
	served   int
}

func (b *phpBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if string(body) == "hang" {
		close(b.hangs)
		<-r.Context().Done()
		close(b.ended)
		return
	}
	b.mu.Lock()
	b.inFlight++
	b.served++
	if b.most = max(b.most, b.inFlight); b.most == b.slots && b.inFlight == b.slots {
		select {
		case <-b.full:
		default:
			close(b.full)
		}
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.inFlight--
		b.mu.Unlock()
	}()
	select {
	case <-b.full:
	case <-r.Context().Done():
	}
	w.Header().Set("X-Cost", "10")
	http.NewResponseController(w).Flush()
	io.WriteString(w, "the answer")
}

// PHP processes of one host that share a file have as many calls in flight as the routes declare,
// use what comes back after the answers, and are refused nothing, before the real program.
func TestPHPUsesWhatComesBackAndHoldsSlots(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it starts processes")
	}
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	const processes, calls = 5, 20
	b := &phpBackend{slots: 3, full: make(chan struct{}), hangs: make(chan struct{}), ended: make(chan struct{})}
	backend := httptest.NewServer(b)
	defer backend.Close()
	// what the calls reserve is eight times what a day has, and what they cost is a fifth of it
	url := servePolicy(t, bin, `limiters:
  - {name: chat, routes: [/chat], windows: [5000 per day by ip], cost: {reserve: 400, from: "header:X-Cost"}, in_flight: 3 by ip}
`, backend.URL)
	file := filepath.Join(t.TempDir(), "view")

	hanging := exec.Command("php", "testdata/php/settling.php", url+"/chat", file, "hang", "1")
	if err := hanging.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.hangs:
	case <-t.Context().Done():
	}
	if err := hanging.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	hanging.Wait() // it was killed
	<-b.ended      // the server knows

	var all sync.WaitGroup
	for i := range processes {
		mode := []string{"whole", "stream"}[i%2]
		all.Go(func() {
			out, err := runPHP(t, "testdata/php/settling.php", url+"/chat", file, mode, fmt.Sprint(calls))
			if err != nil {
				t.Errorf("process %d: %v", i, err)
			}
			if want := fmt.Sprintf(`{"statuses":{"200":%d},"refused":0,"failures":[]}`, calls); out != want {
				t.Errorf("process %d printed %s, want %s", i, out, want)
			}
		})
	}
	all.Wait()
	if b.served != processes*calls || b.most != b.slots {
		t.Errorf("%d calls were served, at most %d at a time: want %d and %d", b.served, b.most, processes*calls, b.slots)
	}
}
