package admin_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http/httptest"
	"runtime/pprof"
	"testing"

	"github.com/weirlimit/weir/internal/admin"
)

// A profile is compressed, as pprof reads it, and has the functions of this process.
func TestAProfileHasTheFunctionsOfTheProcess(t *testing.T) {
	f := newFixture(t, nil)
	for path, has := range map[string]string{"/profile/cpu?seconds=1": "nanoseconds", "/profile/heap": "inuse_space", "/profile/goroutine": "TestAProfileHasTheFunctionsOfTheProcess"} {
		w := f.ask(f.as(admin.Operate, call{method: "GET", path: path}))
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatalf("%s: %d: %v", path, w.Code, err)
		}
		b, err := io.ReadAll(z)
		if err != nil || !bytes.Contains(b, []byte(has)) {
			t.Errorf("%s: %d bytes without %q (%v)", path, len(b), has, err)
		}
		if kind := w.Header().Get("Content-Type"); w.Code != 200 || kind != "application/octet-stream" {
			t.Errorf("%s: %d, %s", path, w.Code, kind)
		}
	}
}

func TestAProfileThatCannotBeTakenIsRefused(t *testing.T) {
	f := newFixture(t, nil)
	for path, want := range map[string]int{
		"/profile/cpu?seconds=0": 400, "/profile/cpu?seconds=51": 400, "/profile/cpu?seconds=1s": 400, "/profile/cpu?seconds=-1": 400,
		"/profile/cpu?seconds=": 400, "/profile/cpu?seconds=1&seconds=1": 400, "/profile/cpu?second=1": 400, "/profile/heap?seconds=1": 400,
		"/profile/": 404, "/profile/threadcreate": 404, "/profile/cpu/x": 404,
	} {
		if w := f.ask(f.as(admin.Operate, call{method: "GET", path: path})); w.Code != want {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	f.refused(f.as(admin.Operate, call{method: "GET", path: "/profile/cpu"}), 409, "profile_in_progress")
	pprof.StopCPUProfile()
}

// A client that leaves ends its profile, and the next one can be recorded at once.
func TestAProfileEndsWithItsClient(t *testing.T) {
	f := newFixture(t, nil)
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 2 {
		r := httptest.NewRequest("GET", "/profile/cpu?seconds=50", nil).WithContext(gone)
		r.Host, r.RemoteAddr = "127.0.0.1:8081", "127.0.0.1:40000"
		r.Header.Set("Authorization", "Bearer "+f.token)
		w := httptest.NewRecorder()
		f.admin.Handler().ServeHTTP(w, r)
		if w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}
