package docsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/folder"
)

// inProcess sends to a handler without a network.
func inProcess(h http.Handler) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		answer := httptest.NewRecorder()
		r = r.Clone(r.Context())
		r.RemoteAddr, r.RequestURI = "192.0.2.1:1", r.URL.RequestURI()
		h.ServeHTTP(answer, r)
		return answer.Result(), nil
	})
}

// A sync that is killed at any byte of a write loses at most the batch of that write. The next run
// continues.
func TestAStateThatIsCutAnywhereLosesOneBatch(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	w := newWorld(t, many(3, "x"))
	one := func(r *run) { r.o.Parallel = 1 }
	w.done(w.sync(one), 3, 0)
	before, err := os.ReadFile(w.state)
	if err != nil {
		t.Fatal(err)
	}
	w.write(map[string]string{"new.md": "1", "d0/p0000.txt": "2"})
	w.done(w.sync(one), 2, 0)
	after, err := os.ReadFile(w.state)
	if err != nil || !bytes.HasPrefix(after, before) {
		t.Fatalf("the state is no journal: %v", err)
	}
	for cut := len(before); cut < len(after); cut++ {
		if err := os.WriteFile(w.state, after[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		w.done(w.sync(one), 2, 0)
		if again, err := os.ReadFile(w.state); err != nil || !bytes.Equal(again, after) {
			t.Fatalf("cut at %d it became %q, %v", cut, again, err)
		}
	}
	for name, tail := range map[string]string{"zeros": strings.Repeat("\x00", 100), "zeros and an end": strings.Repeat("\x00", 100) + "\n"} {
		if err := os.WriteFile(w.state, append(bytes.Clone(after), tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		w.write(map[string]string{"new.md": name})
		w.done(w.sync(one), 1, 0)
		w.done(w.sync(one), 0, 0)
	}
}

func TestAStateIsForOneTarget(t *testing.T) {
	w := newWorld(t, many(3, "x"))
	w.done(w.sync(), 3, 0)
	other := func(r *run) { r.o.TokenID = "other" }
	fails(t, w.sync(other).err, "was made with token 4f2k7q9xab, not with token other, and the server does not report", "--state", "--all")
	w.to = "http://other.example"
	fails(t, w.sync().err, "is for http://weir.example, not for http://other.example")
	before, _ := os.ReadFile(w.state)
	w.before = func(request) (int, string) { return 404, "" }
	fails(t, w.sync(all).err, "404") // a wrong address loses no state
	if after, err := os.ReadFile(w.state); err != nil || !bytes.Equal(before, after) {
		t.Errorf("before anything was acknowledged, the state became %q, %v", after, err)
	}
	w.before = nil
	w.done(w.sync(all), 3, 0)
	w.done(w.sync(), 0, 0)
	if content, err := os.ReadFile(w.state); err != nil || bytes.Contains(content, []byte("secret")) {
		t.Errorf("the state holds the token: %q, %v", content, err)
	}
}

func TestWhatIsNoStateIsLeftAlone(t *testing.T) {
	for _, content := range []string{"my notes", "my notes\n", "{}\n", "{\"weir_sync\":2}\n", "{\"weir_sync\":1,\"to\":\"http://weir.example\",\"token\":\"4f2k7q9xab\"}\nx\ny\n",
		strings.Repeat("x", maxLine+1), "{\"weir_sync\":1,\"to\":\"http://weir.example\",\"token\":\"4f2k7q9xab\"}\n{\"stored\":{\"a\":\"b\"}}\n{}\n"} {
		w := newWorld(t, many(1, "x"))
		if err := os.WriteFile(w.state, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, how := range []func(*run){all, prune} {
			fails(t, w.sync(how).err, "was not written by a sync")
		}
		if got, err := os.ReadFile(w.state); err != nil || string(got) != content {
			t.Errorf("%.20q became %.20q, %v", content, got, err)
		}
	}
	w := newWorld(t, many(1, "x"))
	w.state = w.dir
	fails(t, w.sync().err, "regular file", "--state")
	w.state = filepath.Join(w.dir, "no", "such", "folder")
	fails(t, w.sync().err, "write the state", "--state")
}

func TestWhatIsNoStateGetsNoLock(t *testing.T) {
	w := newWorld(t, many(1, "x"))
	w.state = filepath.Join(t.TempDir(), "precious.txt")
	if err := os.WriteFile(w.state, []byte("my notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, w.sync().err, "was not written by a sync")
	if left, _ := filepath.Glob(w.state + "?*"); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

func TestALinkToAStateStays(t *testing.T) {
	w := newWorld(t, many(300, "x"))
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	w.state = link
	fails(t, w.sync().err, "read the state", "--state") // a dangling link
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.before = func(request) (int, string) {
		w.mu.Lock()
		w.before = nil
		w.mu.Unlock()
		fails(t, w.sync(func(r *run) { r.o.State = file }).err, "another sync uses the state")
		return 0, ""
	}
	w.done(w.sync(), 300, 0)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link became %v, %v", info, err)
	}
	w.state = file
	w.done(w.sync(), 0, 0)
}

func TestAnotherBaseIsMeant(t *testing.T) {
	w := newWorld(t, many(3, "x"))
	on := func(base string, change ...func(*run)) outcome {
		return w.sync(append(change, func(r *run) {
			u, err := url.Parse(base)
			if err != nil {
				t.Fatal(err)
			}
			if r.o.Folder, err = folder.Open(w.dir, folder.Options{Base: u}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.o.Folder.Close() })
			r.o.Base = base
		})...)
	}
	meant := func(r *run) { r.o.NewBase = true }
	const one, two = "https://one.example", "https://two.example"
	w.done(on(one), 3, 0)
	for _, how := range []func(*run){prune, all, dry} {
		fails(t, on(two, how).err, "links of documents have begun with https://one.example so far, and would begin with https://two.example", "--base-url https://one.example")
	}
	w.before = func(request) (int, string) { return 404, "" }
	fails(t, on(two, meant).err, "404")
	w.before = nil
	w.done(on(one), 0, 0) // the first state is unchanged
	o := on(two, meant)
	w.done(o, 3, 0)
	if o.plan.WasBase != one {
		t.Errorf("%+v", o.plan)
	}
	if o = on(two); o.err != nil || o.plan.WasBase != "" || o.plan.Unchanged != 3 {
		t.Errorf("%+v", o)
	}
}

func TestWhatAKilledRewriteLeftIsRemoved(t *testing.T) {
	w := newWorld(t, many(1, "x"))
	stay := []string{"..weir-sync.new-", "..weir-sync.new-12a", ".weir-sync.new-12"}
	for _, name := range append(stay, "..weir-sync.new-12", "..weir-sync.new-0") {
		w.write(map[string]string{name: "half"})
	}
	w.done(w.sync(), 1, 0)
	if left, _ := filepath.Glob(filepath.Join(w.dir, ".*new-*")); len(left) != len(stay) {
		t.Errorf("left over: %q", left)
	}
}

// Nothing is appended after an incomplete line, which would make the whole file invalid.
func TestNothingIsWrittenBehindHalfALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s, err := openState(path, target{to: "to", token: "token"}, stateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.append(record{Deleted: []string{"first"}}); err != nil { // creates the file
		t.Fatal(err)
	}
	good := s.file
	if s.file, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	fails(t, s.append(record{Deleted: []string{"a"}}), "no space left")
	s.file.Close()
	s.file = good
	fails(t, s.append(record{Deleted: []string{"a"}}), "could not be written whole")
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if s, err = openState(path, target{to: "to", token: "token"}, stateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.append(record{Deleted: []string{"a"}}), s.close()); err != nil {
		t.Error(err)
	}
}

func TestTwoSyncsDoNotShareAState(t *testing.T) {
	w := newWorld(t, many(1, "x"))
	w.before = func(request) (int, string) {
		w.mu.Lock()
		w.before = nil
		w.mu.Unlock()
		fails(t, w.sync().err, "another sync uses the state")
		return 0, ""
	}
	w.done(w.sync(), 1, 0)
	w.done(w.sync(), 0, 0)
}

func TestAStateIsWrittenAnewWhenMostOfItIsPast(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	w := newWorld(t, many(300, "0"))
	largest := int64(0)
	for i := range 20 {
		w.write(many(300, fmt.Sprint(i)))
		w.done(w.sync(), 300, 0)
		info, err := os.Stat(w.state)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, info.Size())
	}
	if largest > 4000*100 {
		t.Errorf("the state of 300 documents has grown to %d bytes", largest)
	}
	w.done(w.sync(), 0, 0)
	if left, _ := filepath.Glob(filepath.Join(w.dir, ".*.new-*")); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

// If the state cannot be written any more, the sync ends. The next run sends the unrecorded
// documents again.
func TestAStateThatCannotBeWrittenEndsTheSync(t *testing.T) {
	w := newWorld(t, many(1500, "x"))
	o := w.sync(func(r *run) {
		r.o.Parallel = 1
		r.o.Report = func(e Event) {
			if _, ok := e.(Stored); ok { // after the first batch the disk is full
				full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				w.running.state.file = full
			}
		}
	})
	fails(t, o.err, "no space left on device", "run the same command again")
	if o.result.Stored != 500 || w.sent() != 2 {
		t.Errorf("%+v after %d requests", o.result, w.sent())
	}
	w.done(w.sync(), 1000, 0)
}

// If a sync is interrupted while batches are in flight, it starts no others and waits for the
// answers. The next run does not send those batches again.
func TestAnInterruptionLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, many(5000, "x"))
		ctx, interrupt := context.WithCancel(t.Context())
		var once sync.Once
		w.before = func(r request) (int, string) {
			if w.sent() > 2 {
				once.Do(interrupt)
			}
			time.Sleep(10 * time.Second)
			return 0, ""
		}
		o := w.sync(func(r *run) { r.ctx = ctx })
		if !errors.Is(o.err, ErrInterrupted) || o.result.Stored == 0 || o.result.Stored > 2000 || o.result.Stored != len(w.stored) {
			t.Errorf("%v with %+v, the server has %d", o.err, o.result, len(w.stored))
		}
		w.before = nil
		w.done(w.sync(), 5000-o.result.Stored, 0)
		for id, n := range w.received {
			if n != 1 {
				t.Fatalf("%s was received %d times", id, n)
			}
		}
	})
}

func TestAnInterruptionEndsAWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, many(1, "x"))
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, interrupt)
		start := time.Now()
		o := w.sync(func(r *run) {
			r.ctx = ctx
			r.o.Client = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done() // like a pacer that waits for budget
				return nil, r.Context().Err()
			})}
		})
		if !errors.Is(o.err, ErrInterrupted) || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %v", o.err, time.Since(start))
		}
		ctx, interrupt = context.WithCancel(t.Context())
		w.before = func(request) (int, string) { return 503, "" }
		time.AfterFunc(2500*time.Millisecond, interrupt)
		start = time.Now()
		o = w.sync(func(r *run) { r.ctx = ctx })
		if !errors.Is(o.err, ErrInterrupted) || time.Since(start) != 2500*time.Millisecond || w.sent() != 2 {
			t.Errorf("%v after %v and %d requests", o.err, time.Since(start), w.sent())
		}
	})
}

func TestAServerInTroubleIsAskedAgain(t *testing.T) {
	for _, trouble := range []struct {
		status int
		says   string
	}{{500, "500 Internal"}, {503, "503 Service"}, {-1, "the network"}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, many(1, "x"))
			start := time.Now()
			w.before = func(request) (int, string) {
				if w.sent() < 4 {
					return trouble.status, "down"
				}
				return 0, ""
			}
			w.done(w.sync(), 1, 0)
			if took := time.Since(start); took != 7*time.Second {
				t.Errorf("three troubles took %v, want 1 + 2 + 4 s", took)
			}
			w.write(many(1, "y"))
			w.before = func(request) (int, string) { return trouble.status, "down" }
			sent := w.sent()
			fails(t, w.sync().err, trouble.says, "5 times", "run the same command again")
			if n := w.sent() - sent; n != 5 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestASlowWayGetsSmallerBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, many(300, strings.Repeat("x", 1000)))
		slow, timeouts := int64(100_000), 0
		use := func(r *run) {
			r.o.Parallel = 1
			r.o.Client = &http.Client{Transport: &Sender{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.ContentLength <= slow {
					return w.RoundTrip(r)
				}
				if _, err := io.CopyN(io.Discard, r.Body, slow); err != nil {
					t.Error(err)
				}
				timeouts++
				<-r.Context().Done()
				return nil, r.Context().Err()
			})}}
		}
		start := time.Now()
		w.done(w.sync(use), 300, 0)
		if took := time.Since(start); timeouts != 3 || took != 15*time.Minute {
			t.Errorf("%d time-outs, %v", timeouts, took) // 300, then 150 twice
		}
		slow = 100
		w.write(map[string]string{"one.md": strings.Repeat("y", 1000)})
		fails(t, w.sync(use).err, "only 100 of 1", "bytes were sent within 5m0s, 5 times")
	})
}

func TestARequestThatIsNeverAnsweredEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Sender{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://weir.example", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := s.RoundTrip(r); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, err := s.RoundTrip(r); !errors.Is(err, context.Canceled) || s.Sent() != 1 {
			t.Errorf("interrupted before: %v, %d sent", err, s.Sent())
		}
	})
}
