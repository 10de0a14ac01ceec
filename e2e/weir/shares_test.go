package weir

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A widgetClient is a client of the widget at one address, which a trusted proxy
// reports.
type widgetClient struct {
	server  *server
	address string
	agent   string
	token   string // of its newest session
}

// post sends a widget request and returns its answer.
func (s *widgetClient) post(t *testing.T, path, body string) (status int, header http.Header, answer []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.url+"/api/v1/widget/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forwarded-For", s.address)
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, answer
}

// begin starts a session and returns the status of the answer.
func (s *widgetClient) begin(t *testing.T) int {
	t.Helper()
	s.token = ""
	status, _, body := s.post(t, "init", fmt.Sprintf(`{"agent_id":%q}`, s.agent))
	var made struct{ Token string }
	if err := json.Unmarshal(body, &made); err != nil || (made.Token == "") == (status == http.StatusCreated) {
		t.Fatalf("init answers %d %s", status, body)
	}
	s.token = made.Token
	return status
}

// wants posts, and reports an unexpected status.
func (s *widgetClient) wants(t *testing.T, status int, path, body string) {
	t.Helper()
	if got, _, answer := s.post(t, path, body); got != status {
		t.Errorf("POST %s from %s for %s answers %d %s, want %d", path, s.address, s.agent, got, answer, status)
	}
}

// chats does what a visitor does, and expects success.
func (s *widgetClient) chats(t *testing.T) {
	t.Helper()
	if status := s.begin(t); status != http.StatusCreated {
		t.Errorf("POST init from %s for %s answers %d, want 201", s.address, s.agent, status)
		return
	}
	s.wants(t, http.StatusCreated, "messages", `{"text":"When are you open?"}`)
	s.wants(t, http.StatusCreated, "leads", `{"email":"ada@example.com","note":"Please call me."}`)
	s.wants(t, http.StatusAccepted, "events", `{"type":"page.viewed","data":{"page":"/prices"}}`)
	s.wants(t, http.StatusCreated, "satisfaction", `{"score":5}`)
	s.wants(t, http.StatusNoContent, "typing", `{"typing":true}`)
}

// take stores as much as it can in one session within the limits. It returns the
// 507's message, or "" if its budget ended first.
func (s *widgetClient) take(t *testing.T) (full string) {
	t.Helper()
	text := fmt.Sprintf(`{"text":%q}`, strings.Repeat("open ", 1600))
	for {
		status, header, body := s.post(t, "messages", text)
		switch status {
		case http.StatusCreated:
			if header.Get("X-Ratelimit-Remaining") == "0" {
				return ""
			}
		case http.StatusInsufficientStorage:
			return refusedAsFull(t, header, body)
		default:
			t.Fatalf("a message is answered %d %s", status, body)
		}
	}
}

// refusedAsFull checks the 507 and returns its message.
func refusedAsFull(t *testing.T, header http.Header, body []byte) string {
	t.Helper()
	var refusal struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(body, &refusal); err != nil || refusal.Error.Code != "storage_full" {
		t.Errorf("the 507 is %s, %v", body, err)
	}
	if header.Get("X-Ratelimit-Remaining") == "" || header.Get("Retry-After") != "" {
		t.Errorf("the 507 has the fields %v", header)
	}
	return refusal.Error.Message
}

// wholePage is a document of the usual size.
const wholePage = `{"items":[{"id":"page-%d","title":"Prices","url":"https://example.com/prices","text":%q}]}`

// putPages syncs up to n documents of that many bytes until the storage is full,
// and returns how many were stored.
func putPages(t *testing.T, s *server, token string, n, length int) (stored int) {
	t.Helper()
	for ; stored < n; stored++ {
		status, body := sent(t, http.MethodPut, s.url+"/v1/wp/documents", token, fmt.Sprintf(wholePage, stored, strings.Repeat("price ", length/6)))
		if status == http.StatusInsufficientStorage {
			break
		}
		if status != http.StatusOK {
			t.Fatalf("a document is answered %d %s", status, body)
		}
	}
	return stored
}

// One visitor, within all limits, stores as much as one session and one address
// may. Other visitors are served as before.
func TestOneVisitorCannotFillTheStorage(t *testing.T) {
	flags := []string{"--max-data", "4MiB", "--trusted-proxies", "127.0.0.0/8"}
	s := serveWeir(t, flags...)
	token := apiToken(t, s.data, "demo")
	attacker := &widgetClient{server: s, address: "192.0.2.1", agent: "demo"}
	attacker.begin(t)
	if full := attacker.take(t); !strings.Contains(full, "session") {
		t.Errorf("one session stores as much as its limiter lets it; the last answer is %q", full)
	}
	if code, err := s.signal(syscall.SIGKILL); err != nil || code != -1 {
		t.Fatalf("SIGKILL: status %d, %v", code, err)
	}
	s = serveIn(t, s.data, flags...)
	attacker.server = s
	if full := attacker.take(t); !strings.Contains(full, "session") {
		t.Errorf("after kill -9 the session's share is another: its last answer is %q", full)
	}
	neighbour := &widgetClient{server: s, address: attacker.address, agent: "demo"}
	neighbour.chats(t)

	var full []string
	for range 1000 { // sessions
		if attacker.begin(t) != http.StatusCreated {
			break
		}
		full = append(full, attacker.take(t))
		if strings.Contains(full[len(full)-1], "address") {
			break
		}
	}
	if len(full) == 0 || !strings.Contains(full[len(full)-1], "address") {
		t.Errorf("after %d sessions of one address the 507 is %q", len(full), full[max(0, len(full)-2):])
	}
	other := &widgetClient{server: s, address: "192.0.2.2", agent: "demo"}
	other.chats(t)
	if stored := putPages(t, s, token, 20, 50_000); stored != 20 {
		t.Errorf("after the attack there is room for %d documents, want all 20", stored)
	}
	s.end(t)
}

// A crowd of addresses stores as much as one workspace may. Another workspace, and
// documents, keep their shares.
func TestManyAddressesCannotFillAnotherWorkspaceOrTheDocuments(t *testing.T) {
	s := serveWeir(t, "--max-data", "4MiB", "--trusted-proxies", "127.0.0.0/8")
	token, another := apiToken(t, s.data, "demo"), apiToken(t, s.data, "shop")
	var full []string
	for i := range 2000 {
		attacker := &widgetClient{server: s, address: fmt.Sprintf("198.18.%d.%d", i/250, i%250+1), agent: "demo"}
		for attacker.begin(t) == http.StatusCreated {
			full = append(full, attacker.take(t))
			if !strings.Contains(full[len(full)-1], "session") {
				break
			}
		}
		if len(full) > 0 && strings.Contains(full[len(full)-1], "workspace") {
			break
		}
	}
	if len(full) == 0 || !strings.Contains(full[len(full)-1], "workspace") {
		t.Fatalf("the last answers to %d sessions from many addresses are %q", len(full), slices.Compact(full)[max(0, len(slices.Compact(full))-3):])
	}
	other := &widgetClient{server: s, address: "203.0.113.9", agent: "shop"}
	other.chats(t)
	// Their share has room for about twice as many. Without one there would be room for none.
	if stored := putPages(t, s, token, 9, 50_000) + putPages(t, s, another, 5, 50_000); stored != 14 {
		t.Errorf("after the attack there is room for %d documents, want all 14", stored)
	}
	s.end(t)
}

// If documents fill their share, visitors keep theirs.
func TestDocumentsCannotTakeTheVisitorsShare(t *testing.T) {
	s := serveWeir(t, "--max-data", "2MiB", "--trusted-proxies", "127.0.0.0/8")
	if stored := putPages(t, s, apiToken(t, s.data, "demo"), 59, 200_000); stored == 59 {
		t.Fatal("59 documents do not fill 2 MiB")
	}
	for i := range 5 {
		visitor := &widgetClient{server: s, address: fmt.Sprintf("203.0.113.%d", i+1), agent: "demo"}
		visitor.chats(t)
	}
	s.end(t)
}
