package docsync

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/folder"
	"github.com/weirlimit/weir/internal/sample"
)

func TestOnlyWhatHasChangedIsSent(t *testing.T) {
	w := newWorld(t, map[string]string{"a.md": "# A\n\none", "b/c.html": "<title>C</title>two", "pic.png": ""})
	w.done(w.sync(), 2, 0)
	w.has("a.md", "b/c.html")
	if got := w.stored["a.md"]; got["title"] != "A" || got["url"] != "http://weir.example/a" || got["text"] != "A\none" {
		t.Errorf("stored %q", got)
	}
	o := w.sync()
	if w.done(o, 0, 0); o.plan.Unchanged != 2 || w.sent() != 1 {
		t.Errorf("a second sync: %+v, %d requests in all", o.plan, w.sent())
	}
	w.write(map[string]string{"a.md": "# B\n\none", "d.txt": "three"})
	w.done(w.sync(), 2, 0)
	if w.received["b/c.html"] != 1 || w.stored["a.md"]["title"] != "B" {
		t.Errorf("received %v", w.received)
	}
	w.done(w.sync(all), 3, 0)
	w.write(map[string]string{"a.md": "# B \n\none\n"}) // the file changed, but not its document
	w.done(w.sync(), 0, 0)
}

func TestWhatTheServerRefusesIsLeftOut(t *testing.T) {
	w := newWorld(t, many(20, "x"))
	w.before = func(r request) (int, string) {
		var items []string
		for i, id := range r.ids {
			if strings.HasPrefix(id, "d3/") {
				items = append(items, fmt.Sprintf(`{"index":%d,"id":"?","reason":"no\u001b[31m %s"}`, i, strings.Repeat("x", 5000)))
			}
		}
		if items == nil {
			return 0, ""
		}
		return 422, `{"error":{"code":"unprocessable","message":"m","items":[` + strings.Join(append(items, `{"index":99}`, `{"index":-1}`), ",") + `]}}`
	}
	o := w.sync()
	w.done(o, 17, 0)
	if len(o.skipped) != 3 || !strings.Contains(o.skipped["d3/p0010.txt"], `the server refused it: no\x1b[31m xxx`) || len(o.skipped["d3/p0010.txt"]) > 400 {
		t.Errorf("skipped %q", o.skipped)
	}
	w.done(w.sync(prune), 0, 0) // bad documents are tried again, and have not vanished
	w.before = nil
	w.done(w.sync(), 3, 0)

	w.write(many(1, "other"))
	w.before = func(request) (int, string) { return 422, `{"error":{"message":"nothing is named"}}` }
	fails(t, w.sync().err, "422", "nothing is named", "does not name the document")
}

func TestABodyThatIsTooLargeIsHalved(t *testing.T) {
	w := newWorld(t, many(300, strings.Repeat("x", 1000)))
	w.write(map[string]string{"large.txt": strings.Repeat("x", 200_000)})
	const most = 100_000
	w.before = func(r request) (int, string) {
		if r.size > most {
			return 413, "<html>too large</html>"
		}
		return 0, ""
	}
	o := w.sync()
	w.done(o, 300, 0)
	if !strings.Contains(o.skipped["large.txt"], "413") || len(o.skipped) != 1 {
		t.Errorf("skipped %q", o.skipped)
	}
}

func TestPruningDeletesWhatIsGone(t *testing.T) {
	w := newWorld(t, many(600, "x"))
	w.write(map[string]string{"keep.md": "k", "bad.md": "b"})
	w.done(w.sync(), 602, 0)
	for i := range 600 {
		w.remove(fmt.Sprintf("d%d/p%04d.txt", i%7, i))
	}
	w.write(map[string]string{"bad.md": "\xff"})
	o := w.sync()
	if w.done(o, 0, 0); len(o.plan.Vanished) != 600 || len(o.skipped) != 1 {
		t.Errorf("without prune: %d vanished", len(o.plan.Vanished))
	}
	sent := w.sent()
	for _, how := range [][]func(*run){{prune}, {prune, dry}} {
		fails(t, w.sync(how...).err, "600 of 602 known documents are gone from the folder: so many are not pruned", "--prune-many")
	}
	o = w.sync(pruneMany)
	w.done(o, 0, 600)
	w.has("keep.md", "bad.md")
	if n := w.sent() - sent; n != 2 || o.plan.Deletions != 2 {
		t.Errorf("%d requests to delete 600, %d planned", n, o.plan.Deletions)
	}
	w.done(w.sync(prune), 0, 0)
	w.remove("keep.md", "bad.md")
	for _, how := range [][]func(*run){{prune}, {prune, dry}, {pruneMany}} {
		fails(t, w.sync(how...).err, "has no documents", "right folder")
	}
	w.has("keep.md", "bad.md")
	w.done(w.sync(), 0, 0)
}

func TestWhatIsTooManyToPrune(t *testing.T) {
	for _, c := range []struct {
		known, gone int
		ok          bool
	}{{11, 10, true}, {12, 11, false}, {22, 11, true}, {21, 11, false}, {1000, 500, true}, {1000, 501, false}} {
		w := newWorld(t, many(c.known, "x"))
		w.done(w.sync(), c.known, 0)
		for i := range c.gone {
			w.remove(fmt.Sprintf("d%d/p%04d.txt", i%7, i))
		}
		if o := w.sync(prune); (o.err == nil) != c.ok || c.ok && o.result.Deleted != c.gone {
			t.Errorf("%d of %d: %+v, %v", c.gone, c.known, o.result, o.err)
		}
	}
}

func TestWhatTheServerDoesNotDeleteIsLeftOut(t *testing.T) {
	w := newWorld(t, many(300, "x"))
	w.done(w.sync(), 300, 0)
	for i := range 100 {
		w.remove(fmt.Sprintf("d%d/p%04d.txt", i%7, i))
	}
	w.before = func(r request) (int, string) {
		i := slices.Index(r.ids, "d3/p0010.txt")
		switch {
		case len(r.ids) > 30 || slices.Contains(r.ids, "d4/p0011.txt"):
			return 413, ""
		case i >= 0:
			return 422, fmt.Sprintf(`{"error":{"items":[{"index":%d,"reason":"it is locked"}]}}`, i)
		}
		return 0, ""
	}
	o := w.sync(prune)
	w.done(o, 0, 98)
	if len(o.skipped) != 2 || !strings.Contains(o.skipped["d3/p0010.txt"], "it was not deleted: the server refused it: it is locked") || !strings.Contains(o.skipped["d4/p0011.txt"], "413") {
		t.Errorf("skipped %q", o.skipped)
	}
	w.before = nil
	w.done(w.sync(prune), 0, 2)
}

func TestAFolderThatCannotBeReadHasNotVanished(t *testing.T) {
	f := &found{seen: map[string]bool{"a/x.md": true}, unread: []string{"b/", "c/d/"}, passed: folder.Tally{Linked: []string{"l.md"}}}
	gone := f.vanished(map[string]digest{"a/x.md": {}, "a/y.md": {}, "b/z.md": {}, "bb/z.md": {}, "c/d/e/f.md": {}, "c/x.md": {}, "l.md": {}, "/": {}})
	if fmt.Sprint(gone) != "[/ a/y.md bb/z.md c/x.md]" {
		t.Errorf("vanished: %q", gone)
	}
}

func TestWhatEndsASync(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		says   []string
	}{
		{401, `{"error":{"message":"` + token + ` is\u001b]0;x\u0007 revoked\u009b"}}`, []string{"401", "revoked", "WEIR_TOKEN"}},
		{403, "", []string{"403 Forbidden", "WEIR_TOKEN"}},
		{404, "<html>", []string{"404 Not Found", "--to"}},
		{507, `{"error":{"message":"full ` + strings.Repeat("x", 100_000) + `"}}`, []string{"507", "full xxx", "room"}},
		{429, `{"error":{"message":"slow down"}}`, []string{"429", "slow down", "--share"}},
		{400, "plain words\u202e", []string{"400", "plain words"}},
		{418, "", []string{"418"}},
	} {
		w := newWorld(t, many(3, "x"))
		w.before = func(request) (int, string) { return c.status, c.body }
		o := w.sync()
		fails(t, o.err, c.says...)
		if w.sent() != 1 {
			t.Errorf("%d: %d requests", c.status, w.sent())
		}
		w.before = nil
		w.done(w.sync(), 3, 0)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	for _, c := range []struct {
		status int
		header http.Header
		says   string
	}{
		{302, http.Header{"Location": {"https://elsewhere.example/\u202ex"}}, `https://elsewhere.example/\u202ex`},
		{308, http.Header{"Location": {"/v2"}}, "not followed"},
	} {
		w := newWorld(t, many(1, "x"))
		requests := 0
		o := w.sync(func(r *run) {
			r.o.Client = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				requests++
				return &http.Response{StatusCode: c.status, Header: c.header, Body: http.NoBody, Request: r}, nil
			})}
		})
		if fails(t, o.err, c.says); requests != 1 {
			t.Errorf("%d requests", requests)
		}
		w.done(w.sync(), 1, 0)
	}
}

func TestOnlyWhatTheSurfaceAnswersIsAnAcknowledgement(t *testing.T) {
	const stored = `{"created":1,"updated":1,"unchanged":1}`
	for _, c := range []struct {
		status int
		media  string
		body   string
	}{
		{200, "text/html; charset=utf-8", stored},
		{200, "", stored},
		{201, "application/json", stored},
		{202, "application/json", stored},
		{204, "application/json", ""},
		{200, "application/json", ""},
		{200, "application/json", "garbage"},
		{200, "application/json", stored + stored},
		{200, "application/json", stored[:20]},
		{200, "application/json", `{"stored":3}`},
		{200, "application/json", `{"deleted":3}`},
		{200, "application/json", `{"created":3}`},
		{200, "application/json", `{"created":1,"updated":0,"unchanged":1}`},
		{200, "application/json", `{"created":4,"updated":-1,"unchanged":0}`},
		{200, "application/json", `{"created":"3","updated":0,"unchanged":0}`},
		// exceeds what is read of an answer
		{200, "application/json", stored + strings.Repeat(" ", maxAnswer)},
	} {
		w := newWorld(t, many(3, "x"))
		o := w.sync(func(r *run) { r.o.Client = &http.Client{Transport: answers(c.status, c.media, c.body)} })
		fails(t, o.err, fmt.Sprintf("answered %d, but not as the bulk-sync API does", c.status), "is --to the address")
		w.done(w.sync(), 3, 0)
		w.remove("d0/p0000.txt")
		o = w.sync(prune, func(r *run) { r.o.Client = &http.Client{Transport: answers(c.status, c.media, c.body)} })
		fails(t, o.err, "DELETE", "none of them is recorded as done")
		w.done(w.sync(prune), 0, 1)
	}
}

// answers is a server that always sends the same answer.
func answers(status int, media, body string) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The sample backend accepts everything that is sent, and a second sync sends nothing.
func TestTheSampleBackendTakesAllOfIt(t *testing.T) {
	backend, err := sample.Open(t.Context(), sample.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	made, err := backend.Tokens().Create(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, many(700, "delivery \u2028 <b> & \"x\" 日本"))
	w.write(map[string]string{
		"ü ?#%.md": "---\ntitle: \"a\\tb\"\n---\n*x*\x01", "empty.txt": "", "dir/index.html": "<pre>\n\ta</pre>&#1;&#x202e;", "long.md": "# " + strings.Repeat("é", 400),
		strings.Repeat("y", 197) + ".md": strings.Repeat("\"", folder.MaxText),
	})
	use := func(r *run) {
		r.o.Token, r.o.TokenID = made.Token, made.ID
		r.o.Client = &http.Client{Transport: inProcess(backend.Handler())}
	}
	o := w.sync(use)
	w.done(o, 705, 0)
	if len(o.skipped) > 0 {
		t.Errorf("skipped %q", o.skipped)
	}
	w.remove("empty.txt")
	w.done(w.sync(use, prune), 0, 1)
	counts := httptestGet(t, backend.Handler(), "/v1/wp/status", made.Token)
	if counts["documents"] != 704.0 {
		t.Errorf("the backend has %v", counts)
	}
}
func TestAFileThatChangesMeanwhileIsSentAsItIs(t *testing.T) {
	w := newWorld(t, map[string]string{"a.md": "one", "b.md": "two", "c.md": "three"})
	o := w.sync(func(r *run) {
		r.o.Report = func(e Event) {
			if e == (Read{3}) { // the scan is complete
				w.write(map[string]string{"a.md": "later", "b.md": "\xff"})
				if err := os.Remove(filepath.Join(w.dir, "c.md")); err != nil {
					t.Error(err)
				}
			}
		}
	})
	w.done(o, 1, 0)
	if w.stored["a.md"]["text"] != "later" || len(o.skipped) != 2 {
		t.Errorf("stored %q, skipped %q", w.stored, o.skipped)
	}
	if o := w.sync(); len(o.plan.Send) != 0 {
		t.Errorf("then %+v", o.plan)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	w := newWorld(t, many(3, "x"))
	if o := w.sync(dry); o.err != nil || len(o.plan.Send) != 3 || w.sent() != 0 {
		t.Errorf("%+v, %d requests", o, w.sent())
	}
	if left, _ := filepath.Glob(filepath.Join(w.dir, ".*")); len(left) != 0 {
		t.Errorf("it has left %q", left)
	}
	w.done(w.sync(), 3, 0)
	if o := w.sync(dry); o.err != nil || len(o.plan.Send) != 0 || o.plan.Unchanged != 3 {
		t.Errorf("%+v", o)
	}
}

// httptestGet sends a GET to a handler and returns its answer as JSON.
func httptestGet(t *testing.T, h http.Handler, path, token string) (answer map[string]any) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://weir.example"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := inProcess(h).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}
