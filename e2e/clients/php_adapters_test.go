package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// runPHP runs a script, and returns what it printed.
func runPHP(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "php", append([]string{"-d", "display_errors=stderr", "-d", "zend.assertions=1", "-d", "error_log=/dev/stderr"}, args...)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		return out.String(), fmt.Errorf("php %s: %v\n%s%s", args, err, out.String(), errs.String())
	}
	return out.String(), nil
}

// phpAdapters runs each adapter with the real client that it is for: concurrent requests over three
// windows, alone and as two processes.
func phpAdapters(t *testing.T, s *phpServer, dir string) {
	const requests = 2*phpUsable + 20
	for _, adapter := range []string{"guzzle", "symfony", "symfony-native"} {
		t.Run(adapter, func(t *testing.T) {
			out, err := runPHP(t, "testdata/php/adapters.php", adapter, s.url+"/"+adapter, "", strconv.Itoa(requests))
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(`{"statuses":{"204":%d},"refused":0,"failures":[]}`, requests); out != want {
				t.Errorf("it printed %s, want %s", out, want)
			}
			var all sync.WaitGroup
			for i := range 2 {
				all.Go(func() {
					out, err := runPHP(t, "testdata/php/adapters.php", adapter, s.url+"/"+adapter+"-two", dir+"/"+adapter, strconv.Itoa(phpUsable))
					if err != nil {
						t.Errorf("process %d: %v", i, err)
					}
					if want := fmt.Sprintf(`{"statuses":{"204":%d},"refused":0,"failures":[]}`, phpUsable); out != want {
						t.Errorf("process %d printed %s, want %s", i, out, want)
					}
				})
			}
			all.Wait()
		})
	}
}

// phpRedirects sends a token to a server that redirects to another host.
func phpRedirects(t *testing.T) {
	var mu sync.Mutex
	tokens := map[string]string{}
	remember := func(name string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens[name] = r.Header.Get("Authorization")
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { remember("other", r) }))
	defer other.Close()
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remember("home", r)
		http.Redirect(w, r, elsewhere+"/there", http.StatusFound)
	}))
	defer home.Close()
	for _, adapter := range []string{"guzzle-redirect", "symfony-redirect"} {
		mu.Lock()
		clear(tokens)
		mu.Unlock()
		out, err := runPHP(t, "testdata/php/adapters.php", adapter, home.URL+"/here", "", "1")
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if token, came := tokens["other"]; !strings.Contains(out, `"200":1`) || tokens["home"] != "Bearer wpt_one_secret" || !came || token != "" {
			t.Errorf("%s: it printed %s, and the tokens came as %q", adapter, out, tokens)
		}
		mu.Unlock()
	}
}

var phpFence = regexp.MustCompile("(?s)```php\n(.*?)```")

// phpReadme runs each block of the package's README as a script of its own.
func phpReadme(t *testing.T, s *phpServer, dir string) {
	readme, err := os.ReadFile("../../clients/php/README.md")
	if err != nil {
		t.Fatal(err)
	}
	bootstrap, err := filepath.Abs("../../clients/php/tests/bootstrap.php")
	if err != nil {
		t.Fatal(err)
	}
	blocks := phpFence.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 6 {
		t.Fatalf("the README has %d examples", len(blocks))
	}
	before := s.servedOf("/v1/things")
	replace := strings.NewReplacer("https://api.example.com", s.url, "/var/lib/site/weir", dir)
	for i, block := range blocks {
		code := replace.Replace(block[1])
		if strings.Contains(code, "api.example.com") || strings.Contains(code, "/var/lib/") {
			t.Errorf("example %d has an address that the test does not replace:\n%s", i, code)
		}
		file := filepath.Join(dir, fmt.Sprintf("example%d.php", i))
		if err := os.WriteFile(file, []byte("<?php\nrequire "+strconv.Quote(bootstrap)+";\n"+code), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := runPHP(t, file); err != nil {
			t.Errorf("example %d:\n%s\n%s%v", i, code, out, err)
		}
	}
	if served := s.servedOf("/v1/things") - before; served < 202 {
		t.Errorf("the examples sent %d requests", served)
	}
}

// servedOf returns how many requests to a path were served.
func (s *phpServer) servedOf(path string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, times := range s.served {
		if strings.HasPrefix(key, path+" ") {
			n += times
		}
	}
	return n
}

// composer accepts the package's manifest.
func phpComposer(t *testing.T) {
	cmd := exec.Command("composer", "validate", "--strict", "--no-check-publish", "--no-interaction")
	cmd.Dir = "../../clients/php"
	cmd.Env = append(os.Environ(), "COMPOSER_ALLOW_SUPERUSER=1", "COMPOSER_HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("composer validate: %v\n%s", err, out)
	}
	text, err := os.ReadFile("../../clients/php/composer.json")
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct{ Require map[string]string }
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	for name := range manifest.Require {
		if !strings.HasPrefix(name, "php") {
			t.Errorf("the package requires %s: its core has no dependencies", name)
		}
	}
}
