package sample

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

func TestLeadsPostedAtOnceAreAllThere(t *testing.T) {
	k := setUpWith(t, Options{BusyTimeout: time.Minute})
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			for j := range 8 {
				r := httptest.NewRequestWithContext(context.Background(), "POST", "/api/v1/widget/leads", strings.NewReader(fmt.Sprintf(`{"email":"v%d.%d@example.org"}`, i, j)))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", k.session)
				if a := k.do(r); a.status != 201 {
					t.Errorf("the answer is %d %s", a.status, a.body)
				}
			}
		})
	}
	group.Wait()
	if n := k.rows("(SELECT DISTINCT email FROM leads)"); n != 256 {
		t.Errorf("there are %d leads, want 256", n)
	}
}

// If another process holds the write lock, writes are answered 503 and reads work.
func TestABusyDatabaseIs503AndReadsGoOn(t *testing.T) {
	k := setUpWith(t, Options{BusyTimeout: 10 * time.Millisecond})
	other, err := sqlite.Open(t.Context(), filepath.Join(k.dir, databaseFile), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	before := k.census()
	err = other.WithWriteLock(t.Context(), func() error {
		for _, c := range []struct{ target, body string }{
			{"POST messages", `{"text":"x"}`}, {"POST events", `{"type":"x"}`}, {"POST leads", `{"email":"a@b.org"}`},
			{"POST typing", `{"typing":true}`}, {"POST satisfaction", `{"score":5}`}, {"POST conversations", ``},
		} {
			k.widget(c.target, c.body).wantError(503, "store_unavailable", "nothing was stored")
		}
		k.send("POST /api/v1/widget/init", "", `{"agent_id":"demo"}`).wantError(503, "store_unavailable")
		k.sync("PUT documents", documents(1, "")).wantError(503, "store_unavailable")
		k.widget("GET conversations", "").want(200)
		k.sync("GET status", "").want(200)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := k.census(); after != before {
		t.Errorf("rows of %v went from %v to %v", tables, before, after)
	}
	k.widget("POST messages", `{"text":"x"}`).want(201)
}

func TestAFullDiskIs507AndNothingIsHalfWritten(t *testing.T) {
	k := setUpWith(t, Options{MaxData: 512 << 10})
	stored := 0
	for ; stored < 100; stored++ {
		body := strings.ReplaceAll(documents(20, strings.Repeat("x", 2000)), "post-", fmt.Sprintf("page%d-", stored))
		if a := k.sync("PUT documents", body); a.status != 200 {
			a.wantError(507, "storage_full", "nothing was stored")
			break
		}
	}
	if n := k.rows("documents"); n != 20*stored || stored == 0 || stored == 100 {
		t.Errorf("there are %d documents after %d pages", n, stored)
	}
	k.sync("GET status", "").want(200).says("documents", float64(20*stored))
	if !strings.Contains(k.log.String(), "storage full") {
		t.Errorf("the log does not say it: %s", k.log)
	}
}

func TestAClientThatLeavesStoresNothing(t *testing.T) {
	k := setUp(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	before := k.census()
	for _, target := range []string{"POST /api/v1/widget/leads", "POST /api/v1/widget/init"} {
		r := httptest.NewRequestWithContext(ctx, "POST", strings.TrimPrefix(target, "POST "), strings.NewReader(`{"email":"a@b.org"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", k.session)
		func() {
			defer func() {
				if failure := recover(); failure != http.ErrAbortHandler {
					t.Errorf("%s: it ends with %v, want http.ErrAbortHandler, by which the gateway knows that the client left", target, failure)
				}
			}()
			k.do(r)
		}()
	}
	if after := k.census(); after != before {
		t.Errorf("rows of %v went from %v to %v", tables, before, after)
	}
}

// SQLite's messages only appear in the log.
func TestAFaultIs500WithoutItsCause(t *testing.T) {
	k := setUp(t)
	k.exec("DROP TABLE leads")
	a := k.widget("POST leads", `{"email":"a@b.org"}`).wantError(500, "internal", "log")
	if bytes.Contains(a.body, []byte("leads")) || !strings.Contains(k.log.String(), "no such table: leads") {
		t.Errorf("the answer is %s, the log %s: want the cause in the log alone", a.body, k.log)
	}
}

func TestARestartKeepsEverything(t *testing.T) {
	k := setUp(t)
	said := k.widget("POST messages", `{"text":"hello"}`).want(201)
	k.sync("PUT documents", documents(3, "x")).want(200)
	k.sync("PUT coupons", `{"items":[{"code":"A","percent":5}]}`).want(200)
	k.widget("POST leads", `{"email":"a@b.org"}`).want(201)
	before := k.census()
	if err := k.b.Close(); err != nil {
		t.Fatal(err)
	}
	k.b = k.open(Options{Dir: k.dir})
	if after := k.census(); after != before {
		t.Errorf("rows of %v went from %v to %v", tables, before, after)
	}
	k.widget("GET conversations/"+said.text("message.conversation_id"), "").want(200).says("messages.items.0.text", "hello")
	k.sync("GET status", "").want(200).says("documents", 3.0).says("coupons", 1.0)
	if n := k.rows("workspaces"); n != 1 {
		t.Errorf("there are %d workspaces, want demo alone", n)
	}
}

// If a token cannot be looked up, the caller gets an error that does not reveal the cause.
func TestTokensThatCannotBeReadAre500AndNot401(t *testing.T) {
	k := setUp(t)
	k.sync("GET status", "").want(200)
	k.exec("DROP TABLE tokens")
	k.clock.pass(time.Second) // before that the last lookup is reused
	a := k.sync("GET status", "").wantError(500, "internal")
	if bytes.Contains(a.body, []byte("tokens")) || !strings.Contains(k.log.String(), "no such table: tokens") {
		t.Errorf("the answer is %s, the log %s: want the cause in the log alone", a.body, k.log)
	}
}

// A session of a deleted database is invalid, although its signature is valid.
func TestASessionOfAnotherDatabaseIs401(t *testing.T) {
	k := setUp(t)
	k.exec("DELETE FROM sessions")
	k.widget("GET conversations", "").wantError(401, "unauthenticated", "no longer exists")
	k.widget("POST leads", `{"email":"a@b.org"}`).wantError(401, "unauthenticated")
}

func TestManyProcessesShareOneSecret(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "weir-data")
	secrets := make([][]byte, 8)
	var group sync.WaitGroup
	for i := range secrets {
		group.Go(func() {
			b, err := Open(context.Background(), Options{Dir: dir, BusyTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Close()
			secrets[i] = b.secret
		})
	}
	group.Wait()
	for _, s := range secrets {
		if len(s) < 32 || !bytes.Equal(s, secrets[0]) {
			t.Errorf("secrets of %d and %d bytes: want one of 32 or more for all", len(s), len(secrets[0]))
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, %v: want 0700", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Join(dir, secretFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret has mode %v, %v: want 0600", info.Mode(), err)
	}
}

func TestOpenSaysWhatIsWrongWithTheDataDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(dir string) error
		want    string
	}{
		"a file in its place": {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "not a directory"},
		"no database": {func(dir string) error {
			return put(dir, databaseFile, "this is a diary, not a database, and a long one", 0o600)
		}, "not a SQLite database"},
		"a secret for all":       {func(dir string) error { return put(dir, secretFile, strings.Repeat("x", 64), 0o644) }, "chmod 600"},
		"a secret that is short": {func(dir string) error { return put(dir, secretFile, "short\n", 0o600) }, "5 bytes, fewer than 32"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "weir-data")
			if err := c.prepare(dir); err != nil {
				t.Fatal(err)
			}
			b, err := Open(t.Context(), Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				b.Close()
				t.Fatal("Open returns no error")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("Open returns %q, want %q and the directory", err, c.want)
			}
		})
	}
	if _, err := Open(t.Context(), Options{}); err == nil {
		t.Error("Open takes no directory for one")
	}
	if _, err := Open(t.Context(), Options{Dir: "/proc/weir-data"}); err == nil || !strings.Contains(err.Error(), "choose one that can be written") {
		t.Errorf("Open of a directory that cannot be created returns %v", err)
	}
}

func put(dir, name, content string, mode os.FileMode) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(content), mode)
}

func TestReadyNoticesThatTheDataIsGone(t *testing.T) {
	k := setUp(t)
	if err := k.b.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(k.dir, databaseFile)); err != nil {
		t.Fatal(err)
	}
	if err := k.b.Ready(t.Context()); err == nil {
		t.Error("a backend without its database reports that it is ready")
	}
}
