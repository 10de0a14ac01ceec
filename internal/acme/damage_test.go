package acme

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/gofrs/flock"
)

// Half-written files are put aside, and others obtained. Files that cannot be read are left alone.
func TestDamagedFilesArePutAside(t *testing.T) {
	for _, kind := range []string{"crt", "key", "json"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				a := newAuthority(t, 90*24*time.Hour)
				m, _ := open(t, dir, a)
				stop := m.run(t)
				time.Sleep(time.Hour)
				stop()
				old, other := m.serial(api), m.serial(www)
				cut(t, filepath.Join(dir, "certificates", "authority.example.com", api, api+"."+kind))
				m, log := open(t, dir, a)
				if m.Certificate(api) != nil || m.serial(www) != other {
					t.Error("the wrong one is in use")
				}
				if w := warnings(log, "is damaged"); len(w) != 1 || !strings.Contains(w[0], filepath.Join("damaged", "certificate-"+api)) {
					t.Errorf("warned %q", w)
				}
				stop = m.run(t)
				time.Sleep(time.Hour)
				if m.serial(api) == 0 || m.serial(api) == old {
					t.Error("no other was obtained")
				}
				stop()
			})
		})
	}
}

// What is issued and cannot be used is asked for again after longer and longer pauses, as what
// fails is. Authorities limit how often a name gets a certificate.
func TestACertificateThatCannotBeUsedIsNotAskedForAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 90*24*time.Hour)
		a.useless = true
		m, log := open(t, t.TempDir(), a)
		stop := m.run(t)
		time.Sleep(time.Hour)
		if asked, _ := a.counts(); asked < 6 || asked > 40 {
			t.Errorf("it was asked %d times for two names in an hour", asked)
		}
		if w := warnings(log, "use the certificate that was issued"); len(w) == 0 || !strings.Contains(w[0], "level=WARN") {
			t.Errorf("warned %q", w)
		}
		a.mu.Lock()
		a.useless = false
		a.mu.Unlock()
		time.Sleep(2 * time.Hour)
		if err := m.Missing(time.Now()); err != nil {
			t.Error(err)
		}
		stop()
	})
}

// While another server writes a certificate, its files do not fit together. They are left alone,
// and used once they are whole.
func TestFilesThatAnotherServerIsWritingAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 90*24*time.Hour)
		m, _ := open(t, dir, a)
		stop := m.run(t)
		time.Sleep(time.Hour)
		stop()
		issued := m.serial(api)
		other := &storage{FileStorage: &certmagic.FileStorage{Path: dir}, held: make(map[string]*flock.Flock)}
		lock := "issue_cert_" + api // as certmagic calls it
		if ok, err := other.TryLock(t.Context(), lock); !ok {
			t.Fatal(err)
		}
		// the key of another certificate is there before its chain
		key := filepath.Join(dir, "certificates", "authority.example.com", api, api+".key")
		whole, err := os.ReadFile(key)
		if err != nil {
			t.Fatal(err)
		}
		half, err := os.ReadFile(filepath.Join(dir, "certificates", "authority.example.com", www, www+".key"))
		if err == nil {
			err = os.WriteFile(key, half, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		m, log := open(t, dir, a)
		stop = m.run(t)
		time.Sleep(10 * time.Second)
		if m.serial(api) != 0 || len(warnings(log, "")) > 0 {
			t.Errorf("serial %d, warned %q", m.serial(api), warnings(log, ""))
		}
		if err := errors.Join(os.WriteFile(key, whole, 0o600), other.Unlock(t.Context(), lock)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := m.serial(api); got != issued {
			t.Errorf("serial %d, want %d, which is stored", got, issued)
		}
		stop()
		if asked, _ := a.counts(); asked != 2 || len(warnings(log, "")) > 0 {
			t.Errorf("the authority was asked %d times, warned %q", asked, warnings(log, ""))
		}
	})
}

// A lock that another server keeps is reported, once, and damaged files are put aside after it.
func TestALockThatAnotherServerKeepsIsReported(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 90*24*time.Hour)
		m, _ := open(t, dir, a)
		stop := m.run(t)
		time.Sleep(time.Hour)
		stop()
		other := &storage{FileStorage: &certmagic.FileStorage{Path: dir}, held: make(map[string]*flock.Flock)}
		if ok, err := other.TryLock(t.Context(), issueLock(api)); !ok {
			t.Fatal(err)
		}
		cut(t, filepath.Join(dir, "certificates", "authority.example.com", api, api+".crt"))
		m, log := open(t, dir, a)
		stop = m.run(t)
		time.Sleep(time.Hour)
		if w := warnings(log, "name="+api); len(w) != 1 || !strings.Contains(w[0], "another server has the lock") {
			t.Errorf("warned %q", w)
		}
		if err := other.Unlock(t.Context(), issueLock(api)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if w := warnings(log, "is damaged"); m.serial(api) == 0 || len(w) != 1 {
			t.Errorf("serial %d, warned %q", m.serial(api), w)
		}
		stop()
		if len(m.failing) > 0 {
			t.Errorf("the log would not have the next failure of %v", m.failing)
		}
	})
}

// cut halves a file.
func cut(t testing.TB, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, b[:len(b)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestADamagedAccountIsPutAside(t *testing.T) {
	for _, file := range []string{"default.json", "default.key"} {
		dir := t.TempDir()
		account := filepath.Join(dir, "acme", "authority.example.com", "users", "default")
		if err := os.MkdirAll(account, 0o700); err != nil {
			t.Fatal(err)
		}
		whole := map[string]string{"default.json": `{"status": "valid"}`, "default.key": "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"}
		for name, content := range whole {
			if err := os.WriteFile(filepath.Join(account, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := newAuthority(t, time.Hour)
		m, log := open(t, dir, a)
		if w := warnings(log, ""); len(w) > 0 {
			t.Errorf("a whole account: %q", w)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		cut(t, filepath.Join(account, file))
		m, log = open(t, dir, a)
		if w := warnings(log, "another is registered"); len(w) != 1 {
			t.Errorf("%s: %q", file, w)
		}
		if _, err := os.Stat(account); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the account is still there: %v", file, err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
