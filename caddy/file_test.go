package weircaddy

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

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

func TestACredentialThatNothingVerifiesIsLogged(t *testing.T) {
	registerSaid()
	said{}.buffer().Reset()
	limits := policy(t, "- {name: all, routes: [/*], windows: [100 per hour by ip], requires: token}")
	text := site(freeAddress(t), limited(limits), "respond hello")
	output := "log weir {\n output said\n include http.handlers.weir\n}"
	serve(t, text, output)
	if log := (said{}).buffer().String(); !strings.Contains(log, "a credential that is not verified") || !strings.Contains(log, `"credential":"token"`) {
		t.Errorf("the log is %q", log)
	}
}

// said is a log that tests read. No request may be under way meanwhile.
type said struct{}

var saidText bytes.Buffer

var registerSaid = sync.OnceFunc(func() { caddy.RegisterModule(said{}) })

func (said) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.said", New: func() caddy.Module { return new(said) }}
}
func (said) buffer() *bytes.Buffer                          { return &saidText }
func (said) String() string                                 { return "said" }
func (said) WriterKey() string                              { return "said" }
func (said) OpenWriter() (io.WriteCloser, error)            { return said{}, nil }
func (said) Write(p []byte) (int, error)                    { return saidText.Write(p) }
func (said) Close() error                                   { return nil }
func (*said) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func TestPlacesOfTokensNeedTokens(t *testing.T) {
	limits := policy(t, "- {name: all, routes: [/*], windows: [100 per hour by ip]}")
	err := load(t, site(freeAddress(t), limited(limits, "token_from header:X-Api-Key"), "respond hello"), "")
	if err == nil || !strings.Contains(err.Error(), "add token_file FILE") {
		t.Error(err)
	}
}
