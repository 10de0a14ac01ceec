package docsync

import (
	"bytes"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
)

// Tokens that a world's server knows, beside token, each with the workspace that it is for.
func knowing(w *world, tokens map[string]string) {
	w.workspace = func(authorization string) (int, string) {
		if name, ok := tokens[authorization]; ok {
			return http.StatusOK, name
		}
		return http.StatusUnauthorized, ""
	}
}

// with has a sync use another token.
func with(value, id string) func(*run) {
	return func(r *run) { r.o.Token, r.o.TokenID = value, id }
}

const bearer = "Bearer "

func TestATokenThatIsNotAcceptedBindsNothing(t *testing.T) {
	w := newWorld(t, many(3, "x"))
	knowing(w, map[string]string{bearer + token: "acme"})
	fails(t, w.sync(with("wpt_typo_x", "typo")).err, "GET http://weir.example/v1/wp/status: the server answered 401", "WEIR_TOKEN")
	if _, err := os.Stat(w.state); !os.IsNotExist(err) {
		t.Errorf("there is a state: %v", err)
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

// Where the server does not tell whose a token is, the answer to the first batch says whether it is
// accepted.
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
		t.Errorf("there is a state: %v", err)
	}
	w.done(w.sync(), 3, 0)
	fails(t, w.sync(with("wpt_new_x", "new")).err, "does not tell whether they are of one workspace")
	w.done(w.sync(with(token, "4f2k7q9xab")), 0, 0)
}

func TestARotatedTokenOfTheSameWorkspaceGoesOn(t *testing.T) {
	w := newWorld(t, many(3, "x"))
	knowing(w, map[string]string{bearer + token: "acme", bearer + "wpt_new_x": "acme", bearer + "wpt_other_x": "another"})
	w.done(w.sync(), 3, 0)
	w.done(w.sync(), 0, 0)
	if w.asked != 1 {
		t.Errorf("asked %d times: the state told after the first", w.asked)
	}
	w.write(map[string]string{"d0/p0000.txt": "y"})
	o := w.sync(with("wpt_new_x", "new"))
	if w.done(o, 1, 0); o.plan.Unchanged != 2 {
		t.Errorf("%+v", o.plan)
	}
	w.done(w.sync(with("wpt_new_x", "new")), 0, 0)
	if w.asked != 2 {
		t.Errorf("asked %d times: the rotated token is known by now", w.asked)
	}
	before, _ := os.ReadFile(w.state)
	fails(t, w.sync(with("wpt_other_x", "other")).err, "is about the workspace acme of http://weir.example, and the token is for the workspace another", "--state", "--all")
	if after, err := os.ReadFile(w.state); err != nil || !bytes.Equal(after, before) || bytes.Contains(after, []byte("_x")) {
		t.Errorf("the state became %q, %v", after, err)
	}
	o = w.sync(with("wpt_other_x", "other"), all)
	w.done(o, 3, 0)
	w.done(w.sync(with("wpt_other_x", "other")), 0, 0)
}

// Rotated while nothing has changed, the new token is remembered all the same, and what is known
// stays.
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

// A server in trouble is asked again, and one that never answers ends the sync before anything is
// bound.
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
			t.Errorf("there is a state: %v", err)
		}
	})
}
