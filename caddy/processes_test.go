package weircaddy

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/weirlimit/weir/e2e/child"
	"github.com/weirlimit/weir/e2e/redistest"
)

// inProcess has TestMain run the test binary as a Caddy with this configuration.
const inProcess = "WEIRCADDY_TEST_CONFIG"

func TestMain(m *testing.M) {
	config := os.Getenv(inProcess)
	if config == "" {
		os.Exit(m.Run())
	}
	if err := caddy.Load([]byte(config), true); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {} // until the test kills it
}

// tryOnce is try on a connection of its own: net/http sends a GET again, on another connection, if
// the one that it was to reuse has ended.
func tryOnce(address, path string) (answerOf, error) {
	return try("http://"+address+path, "Connection", "close")
}

// startCaddy starts a Caddy that serves at address in a process of its own.
func startCaddy(t *testing.T, address string, directives ...string) *child.Process {
	t.Helper()
	config, err := adapt(site(address, directives...), "")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), inProcess+"="+string(config))
	p, err := child.Start(cmd, filepath.Join(t.TempDir(), "log"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.Await("Caddy serves", func() bool {
		_, err := tryOnce(address, "/served")
		return err == nil
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// One of two Caddys is killed while callers ask both for more than the limit: what both have
// admitted is the limit, or less by the requests whose answers were lost.
func TestTwoCaddysOnARedisAdmitALimitOnce(t *testing.T) {
	const limit, callers, each = 300, 8, 100
	redis := redistest.Start(t)
	limiter := limited(policy(t, fmt.Sprintf("- {name: all, routes: [/limited], windows: [%d per hour by everyone]}", limit)), "store redis://"+redis.Addr())
	addresses := []string{freeAddress(t), freeAddress(t)}
	killed := startCaddy(t, addresses[0], limiter, "respond served")
	startCaddy(t, addresses[1], limiter, "respond served")

	var mu sync.Mutex
	var waiting sync.WaitGroup
	admitted, refused, lost := 0, 0, 0
	for i := range callers {
		waiting.Go(func() {
			for range each {
				a, err := tryOnce(addresses[i%len(addresses)], "/limited")
				mu.Lock()
				switch {
				case err != nil:
					lost++
				case a.status == http.StatusOK:
					if admitted++; admitted == limit/2 {
						killed.Kill()
					}
				case a.status == http.StatusTooManyRequests:
					refused++
				default:
					t.Errorf("%+v", a)
				}
				mu.Unlock()
			}
		})
	}
	waiting.Wait()
	for get(t, "http://"+addresses[1]+"/limited").status == http.StatusOK {
		admitted++
	}
	if most := callers / len(addresses); admitted > limit || admitted < limit-most || refused == 0 || lost == 0 {
		t.Errorf("%d admitted, %d refused, %d lost: want %d admitted, or up to %d less, whose answers were lost", admitted, refused, lost, limit, most)
	}
}
