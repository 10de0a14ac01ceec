package docsync

import (
	"bytes"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
)

// knowing makes the server of w accept tokens, each for its workspace.
func knowing(w *world, tokens map[string]string) {
	w.workspace = func(authorization string) (int, string) {
		if name, ok := tokens[authorization]; ok {
			return http.StatusOK, name
		}
		return http.StatusUnauthorized, ""
	}
}

// with makes a run use another token.
func with(value, id string) func(*run) {
	return func(r *run) { r.o.Token, r.o.TokenID = value, id }
}

const bearer = "Bearer "

func TestATokenThatIsNotAcceptedBindsNothing(t *testing.T) {
	w := newWorld(t, many(3, "x"))
	knowing(w, map[string]string{bearer + token: "acme"})
	fails(t, w.sync(with("wpt_typo_x", "typo")).err, "GET http://weir.example/v1/wp/status: the server answered 401", "WEIR_TOKEN")
	if _, err := os.Stat(w.state); !os.IsNotExist(err) {
		t.Errorf("a state was written: %v", err)
	}
	if w.sent() != 0 {
		t.Errorf("%d batches were sent", w.sent())
	}
	w.done(w.sync(), 3, 0)
	before, err := os.ReadFile(w.state)
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []func(*run){func(*run) {}, all, prune} {
		fails(t, w.sync(with("wpt_typo_x", "typo"), how).err, "401")
	}
	if after, err := os.ReadFile(w.state); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the state became %q, %v", after, err)
	}
	w.done(w.sync(), 0, 0)
}

// If the server does not report the workspace of a token, the answer to the first batch shows
// whether the token is accepted.
func TestATokenThatIsNotAcceptedBindsNothingOfAServerThatTellsNothing(t *testing.T) {
	w := newWorld(t, many(3, "x"))
	w.before = func(r request) (int, string) {
		if r.header.Get("Authorization") != bearer+token {
			return 401, ""
		}
		return 0, ""
	}
	fails(t, w.sync(with("wpt_typo_x", "typo")).err, "PUT http://weir.example/v1/wp/documents: the server answered 401")
	if _, err := os.Stat(w.state); !os.IsNotExist(err) {
		t.Errorf("a state was written: %v", err)
	}
	w.done(w.sync(), 3, 0)
	fails(t, w.sync(with("wpt_new_x", "new")).err, "does not report whether both are for the same workspace")
	w.done(w.sync(with(token, "4f2k7q9xab")), 0, 0)
}

func TestARotatedTokenOfTheSameWorkspaceGoesOn(t *testing.T) {
	w := newWorld(t, many(3, "x"))
	knowing(w, map[string]string{bearer + token: "acme", bearer + "wpt_new_x": "acme", bearer + "wpt_other_x": "another"})
	w.done(w.sync(), 3, 0)
	w.done(w.sync(), 0, 0)
	if w.asked != 1 {
		t.Errorf("asked %d times, want 1: the state names the workspace", w.asked)
	}
	w.write(map[string]string{"d0/p0000.txt": "y"})
	o := w.sync(with("wpt_new_x", "new"))
	if w.done(o, 1, 0); o.plan.Unchanged != 2 {
		t.Errorf("%+v", o.plan)
	}
	w.done(w.sync(with("wpt_new_x", "new")), 0, 0)
	if w.asked != 2 {
		t.Errorf("asked %d times, want 2: the state has the rotated token", w.asked)
	}
	before, _ := os.ReadFile(w.state)
	fails(t, w.sync(with("wpt_other_x", "other")).err, "is for the workspace acme of http://weir.example, and the token is for the workspace another", "--state", "--all")
	if after, err := os.ReadFile(w.state); err != nil || !bytes.Equal(after, before) || bytes.Contains(after, []byte("_x")) {
		t.Errorf("the state became %q, %v", after, err)
	}
	o = w.sync(with("wpt_other_x", "other"), all)
	w.done(o, 3, 0)
	w.done(w.sync(with("wpt_other_x", "other")), 0, 0)
}

// A rotated token is recorded even if no document has changed, and the state keeps its entries.
func TestARotatedTokenIsRememberedIfNothingHasChanged(t *testing.T) {
	w := newWorld(t, many(3, "x"))
	knowing(w, map[string]string{bearer + token: "acme", bearer + "wpt_new_x": "acme"})
	w.done(w.sync(), 3, 0)
	for range 2 {
		o := w.sync(with("wpt_new_x", "new"))
		if w.done(o, 0, 0); o.plan.Unchanged != 3 {
			t.Errorf("%+v", o.plan)
		}
	}
	if w.asked != 2 {
		t.Errorf("asked %d times", w.asked)
	}
	w.remove("d1/p0001.txt")
	w.done(w.sync(prune, with("wpt_new_x", "new")), 0, 1)
}

func TestADryRunWithARotatedTokenAsksNobody(t *testing.T) {
	w := newWorld(t, many(3, "x"))
	knowing(w, map[string]string{bearer + token: "acme"})
	w.done(w.sync(), 3, 0)
	before, _ := os.ReadFile(w.state)
	asked := w.asked
	o := w.sync(dry, with("wpt_new_x", "new"))
	if o.err != nil || o.plan.Unchanged != 3 || w.asked != asked {
		t.Errorf("%+v, asked %d times more", o, w.asked-asked)
	}
	if after, err := os.ReadFile(w.state); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the state became %q, %v", after, err)
	}
}

// The request for the workspace is retried after a server error. If all tries fail, the sync ends
// before the state is bound.
func TestAServerThatCannotSayWhoseATokenIsIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, many(3, "x"))
		tries := 0
		w.workspace = func(string) (int, string) {
			if tries++; tries < 3 {
				return http.StatusServiceUnavailable, ""
			}
			return http.StatusOK, "acme"
		}
		w.done(w.sync(), 3, 0)
		w.state += "2"
		w.workspace = func(string) (int, string) { return http.StatusBadGateway, "" }
		fails(t, w.sync().err, "502", "5 times")
		if _, err := os.Stat(w.state); !os.IsNotExist(err) {
			t.Errorf("a state was written: %v", err)
		}
	})
}
