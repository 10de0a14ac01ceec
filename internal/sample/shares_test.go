package sample

import (
	"database/sql"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// arrival starts a session from an address and returns its Authorization value.
func (k *bench) arrival(peer string) string {
	k.Helper()
	r := httptest.NewRequestWithContext(k.Context(), "POST", "/api/v1/widget/init", strings.NewReader(`{"agent_id":"demo"}`))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = peer
	return "Bearer " + k.do(r).want(201).text("token")
}

// one reads one value of the database through a connection of its own.
func (k *bench) one(query string, value any) {
	k.Helper()
	db, err := sql.Open("sqlite", filepath.Join(k.dir, databaseFile))
	if err != nil {
		k.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(query).Scan(value); err != nil {
		k.Fatal(err)
	}
}

// An address is stored as a keyed hash of what limiters count (D12, D18): a whole IPv4 address, or
// a /64 of IPv6. A /48 is one network.
func TestAnOriginIsAKeyedHashOfWhatIsCounted(t *testing.T) {
	k := setUpWith(t, Options{})
	k.exec("DELETE FROM sessions")
	for _, peer := range []string{
		"198.51.100.7:80", "[::ffff:198.51.100.7]:81", "198.51.100.8:80", // two addresses
		// three, in two networks
		"[2001:db8:1:2::3]:80", "[2001:db8:1:2::4]:80", "[2001:db8:1:3::3]:80", "[2001:db8:2:3::3]:80",
	} {
		k.arrival(peer)
	}
	var addresses, networks int
	k.one(`SELECT count(DISTINCT origin) FROM sessions`, &addresses)
	k.one(`SELECT count(DISTINCT network) FROM origins`, &networks)
	if addresses != 5 || networks != 2 || k.rows("origins") != 7 {
		t.Errorf("seven visitors come from %d addresses in %d networks, %d origins are stored: want 5 in 2, and 7", addresses, networks, k.rows("origins"))
	}
	files, err := filepath.Glob(filepath.Join(k.dir, databaseFile+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range []string{"\xc6\x33\x64\x07", "198.51.100.7", "\x20\x01\x0d\xb8\x00\x01", "2001:db8"} {
			if strings.Contains(string(content), address) {
				t.Errorf("%s has the address %q", filepath.Base(f), address)
			}
		}
	}
	other := setUp(t)
	other.arrival("198.51.100.7:80")
	hash := func(k *bench) (h []byte) {
		k.one(`SELECT hash FROM origins ORDER BY n DESC LIMIT 1`, &h)
		return h
	}
	k.exec("DELETE FROM sessions")
	k.arrival("198.51.100.7:80")
	if string(hash(k)) == string(hash(other)) {
		t.Error("two data directories have the same hash of an address")
	}
}

// Each 507 names the share that is full and a remedy. The log has at most one line a minute for it.
func TestA507SaysWhoseShareIsUsedUp(t *testing.T) {
	k := setUpWith(t, Options{MaxData: 4 << 20})
	large := `{"text":"` + strings.Repeat("x", 8000) + `"}`
	full := func() reply {
		for {
			if a := k.widget("POST messages", large); a.status != 201 {
				return a
			}
		}
	}
	full().wantError(507, "storage_full", "this session's share", "nothing was stored", "POST /api/v1/widget/init starts another")
	k.widget("GET conversations", "").want(200)
	var a reply
	for a = full(); strings.Contains(string(a.body), "session's share"); a = full() {
		if first := k.send("POST /api/v1/widget/init", "", `{"agent_id":"demo"}`); first.status == 201 {
			k.session = "Bearer " + first.text("token")
		} else {
			a = first
			break
		}
	}
	a.wantError(507, "storage_full", "your address's share", "nothing was stored", "30 days", "--max-data")
	lines := func() int { return strings.Count(k.log.String(), `msg="sample backend: storage full"`) }
	if n := lines(); n != 2 {
		t.Errorf("the log has %d lines of full shares, want one for sessions and one for addresses: %s", n, k.log)
	}
	k.clock.pass(time.Minute)
	full()
	if n := lines(); n != 3 || strings.Count(k.log.String(), "workspace=demo error") != 3 {
		t.Errorf("a minute later the log has %d lines, want another: %s", n, k.log)
	}
}

func TestTheLogOfFullSharesIsBounded(t *testing.T) {
	var f fulls
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	about := func(workspace string) *sqlite.ShareError {
		return &sqlite.ShareError{Share: sqlite.OfSession, Workspace: workspace, Used: now.UnixNano()}
	}
	for i, want := range []struct {
		workspace string
		at        time.Duration
		since     int64
		report    bool
	}{
		{"demo", 0, 1, true},
		{"demo", time.Second, 0, false},
		{"shop", time.Second, 1, true},
		{"demo", fullLogInterval - 1, 0, false},
		{"demo", fullLogInterval, 3, true},
		{"demo", fullLogInterval, 0, false},
	} {
		if since, report := f.count(about(want.workspace), now.Add(want.at)); since != want.since || report != want.report {
			t.Errorf("refusal %d is reported %v as the %d since the last, want %v, %d", i, report, since, want.report, want.since)
		}
	}
	for i := range 10 * maxFulls {
		f.count(about(string(rune(i))), now)
	}
	if len(f.last) > maxFulls {
		t.Errorf("%d workspaces are remembered, want at most %d", len(f.last), maxFulls)
	}
}
