package nginxtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
)

const greeting = `server { listen LISTEN; location / { return 200 "$request_uri\n"; } }`

func TestNginxServesUntilItIsStopped(t *testing.T) {
	s := Start(t, greeting)
	res, err := http.Get("http://" + s.Addr + "/hello")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != 200 || string(body) != "/hello\n" {
		t.Errorf("%d %q, %v", res.StatusCode, body, err)
	}
	for range 2 { // the second call has no effect
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	if c, err := net.Dial("tcp", s.Addr); err == nil {
		c.Close()
		t.Error("the port is still in use")
	}
	log, err := os.ReadFile(s.dir + "/access.log")
	if err != nil || strings.Count(string(log), "GET /hello") != 1 {
		t.Errorf("access log %q, %v", log, err)
	}
}

// A recording is a test whose failures are recorded.
type recording struct {
	testing.TB
	text     string
	cleanups []func()
}

var errStopped = errors.New("the test ended")

func (r *recording) Helper()                      {}
func (r *recording) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *recording) Failed() bool                 { return r.text != "" }
func (r *recording) Error(args ...any)            { r.text += fmt.Sprint(args...) }
func (r *recording) Fatal(args ...any)            { r.Error(args...); panic(errStopped) }
func (r *recording) Errorf(f string, args ...any) { r.text += fmt.Sprintf(f, args...) }

// start starts nginx in the recorded test.
func (r *recording) start(part string) (s *Server) {
	defer func() {
		if failure := recover(); failure != nil && failure != errStopped {
			panic(failure)
		}
	}()
	return Start(r, part)
}

func (r *recording) end() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

// If nginx rejects its configuration, the test fails at once with nginx's message.
func TestAnInvalidConfigurationFailsTheTest(t *testing.T) {
	r := &recording{TB: t}
	s := r.start("server { listen LISTEN; nonsense; }")
	r.end()
	if s != nil || !strings.Contains(r.text, `unknown directive "nonsense"`) {
		t.Errorf("the test fails with %q", r.text)
	}
}
