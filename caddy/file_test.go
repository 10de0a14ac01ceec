package weircaddy

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
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

// A reload adds the file to a policy that is in use, and the next process has the counts from it.
func TestAReloadCanAddAFileOfCounts(t *testing.T) {
	at, counts := freeAddress(t), filepath.Join(t.TempDir(), "counts")
	limits := policy(t, "- {name: all, routes: [/*], windows: [3 per hour by ip]}")
	with := site(at, limited(limits, "counts "+counts), "respond hello")
	for _, text := range []string{site(at, limited(limits), "respond hello"), with, with} {
		if err := load(t, text, ""); err != nil {
			t.Fatal(err)
		}
	}
	wantStatuses(t, "after the reload", "http://"+at+"/", nil, 200, 200)
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	serve(t, with, "")
	wantStatuses(t, "after the restart", "http://"+at+"/", nil, 200, 429)
}

func TestOnePolicyHasOneFileOfCounts(t *testing.T) {
	limits, dir := policy(t, "- {name: all, routes: [/*], windows: [3 per hour by ip]}"), t.TempDir()
	for _, other := range []string{"", "counts " + filepath.Join(dir, "two")} {
		text := site(freeAddress(t), limited(limits, "counts "+filepath.Join(dir, "one")), "respond hello") + site(freeAddress(t), limited(limits, other), "respond hello")
		err := load(t, text, "")
		if err == nil || !strings.Contains(err.Error(), "give all the same one") {
			t.Errorf("beside %q: %v", other, err)
		}
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	}
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
