package weircaddy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile" // the adapter of Caddyfiles
	_ "github.com/caddyserver/caddy/v2/modules/metrics"
)

// adapt returns the configuration of a Caddyfile whose text has global options beside ours. Caddy
// is one for the process, so tests that load one do not run in parallel.
func adapt(text, global string) ([]byte, error) {
	full := "{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n\tgrace_period 5s\n\tlog {\n\t\toutput discard\n\t}\n" + global + "\n}\n" + text
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(full), map[string]any{"filename": "Caddyfile"})
	return config, err
}

func load(t testing.TB, text, global string) error {
	t.Helper()
	config, err := adapt(text, global)
	if err != nil {
		t.Fatalf("adapt %s: %v", text, err)
	}
	return caddy.Load(config, true)
}

// serve runs Caddy with a Caddyfile until the test ends.
func serve(t testing.TB, text, global string) {
	t.Helper()
	if err := load(t, text, global); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		for _, key := range []any{metricsKey{}} {
			if n, ok := pool.References(key); ok {
				t.Errorf("%v is in use %d times after the end", key, n)
			}
		}
	})
}

// freeAddress returns an address of loopback that no one listens at.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// policy writes a policy file.
func policy(t testing.TB, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte("limiters:\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// site returns a site at an address of loopback, with directives.
func site(address string, directives ...string) string {
	host, port, _ := strings.Cut(address, ":")
	return fmt.Sprintf("http://:%s {\n\tbind %s\n\t%s\n}\n", port, host, strings.Join(directives, "\n\t"))
}

type answerOf struct {
	status int
	header http.Header
	body   string
}

func get(t testing.TB, url string, fields ...string) answerOf {
	t.Helper()
	a, err := try(url, fields...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func try(url string, fields ...string) (answerOf, error) {
	r, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		return answerOf{}, err
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answerOf{}, err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	_, err = io.Copy(&body, response.Body)
	return answerOf{response.StatusCode, response.Header, body.String()}, err
}

func wantStatuses(t testing.TB, what, url string, fields []string, want ...int) {
	t.Helper()
	var got []int
	for range want {
		got = append(got, get(t, url, fields...).status)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// limited returns the directive for a policy's file.
func limited(file string, settings ...string) string {
	return "weir {\n policy " + file + "\n" + strings.Join(settings, "\n") + "\n}"
}
