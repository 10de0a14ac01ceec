package weircaddy

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/weirlimit/weir/identity"
)

// Caddy stops whole, as at a restart, and the counts are in the file.
func TestCountsOfAFileOutliveCaddy(t *testing.T) {
	at, counts := freeAddress(t), filepath.Join(t.TempDir(), "counts")
	text := site(at, limited(policy(t, "- {name: all, routes: [/*], windows: [3 per hour by ip]}"), "counts "+counts), "respond hello")
	if err := load(t, text, ""); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, "before", "http://"+at+"/", nil, 200, 200)
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	serve(t, text, "")
	wantStatuses(t, "after", "http://"+at+"/", nil, 200, 429)
}

func TestTheTokensOfAFileAreCountedApart(t *testing.T) {
	const key = "a-key-of-32-characters-or-more-01"
	hash, err := identity.HashKey(key)
	if err != nil {
		t.Fatal(err)
	}
	token := identity.StoredToken{ID: "acme", Hash: hash}
	line, err := token.Line()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := freeAddress(t)
	limits := policy(t, "- {name: all, routes: [/*], windows: [1 per hour by token], requires: token}")
	serve(t, site(at, limited(limits, "token_file "+file, "token_from header:X-Api-Key"), "respond hello"), "")
	wantStatuses(t, "a token of the file", "http://"+at+"/", []string{"X-Api-Key", key}, http.StatusOK, http.StatusTooManyRequests)
	wantStatuses(t, "another", "http://"+at+"/", []string{"X-Api-Key", key[:len(key)-1] + "2"}, http.StatusUnauthorized)
}
