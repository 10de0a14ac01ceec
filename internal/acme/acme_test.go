package acme

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEachNameGetsACertificateOfItsOwnAndARestartKeepsIt(t *testing.T) {
	data := t.TempDir()
	if os.Geteuid() == 0 { // root serves for another user
		if err := os.Chown(data, 61234, 61235); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(data, "acme")
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 90*24*time.Hour)
		m, log := open(t, dir, a)
		if err := m.Missing(time.Now()); err == nil || !strings.Contains(err.Error(), "api.example.com, www.example.com") {
			t.Errorf("missing: %v", err)
		}
		stop := m.run(t)
		synctest.Wait()
		time.Sleep(time.Second)
		if err := m.Missing(time.Now()); err != nil {
			t.Error(err)
		}
		for _, name := range []string{api, www} {
			if c := m.Certificate(name); c == nil || c.Leaf.VerifyHostname(name) != nil || len(c.Leaf.DNSNames) != 1 {
				t.Errorf("%s has %v", name, c)
			}
		}
		stop()
		if w := warnings(log, ""); len(w) > 0 {
			t.Errorf("warned: %q", w)
		}

		a.fails(errors.New("nothing is to be asked for"))
		again, _ := open(t, dir, a)
		if again.serial(api) != m.serial(api) || again.serial(www) != m.serial(www) {
			t.Error("a restart does not use what is stored")
		}
		stop = again.run(t)
		time.Sleep(time.Hour)
		stop()
		if asked, _ := a.counts(); asked != 2 {
			t.Errorf("the authority was asked %d times", asked)
		}
	})
	checkModes(t, dir)
	checkOwners(t, data)
}

// checkModes checks that nobody else can read a directory and what is in it.
func checkModes(t *testing.T, dir string) {
	t.Helper()
	keys := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if filepath.Ext(path) == ".key" {
			keys++
		}
		return err
	})
	if err != nil || keys != 2 {
		t.Errorf("%d keys: %v", keys, err)
	}
}

// One WARN a name, however often it is tried again; the other name is not affected.
func TestAFailureIsReportedOnceAndTriedUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 90*24*time.Hour)
		a.fails(errors.New("the name does not resolve"))
		m, log := open(t, t.TempDir(), a)
		stop := m.run(t)
		time.Sleep(time.Hour)
		asked, _ := a.counts()
		if asked < 8 || asked > 30 {
			t.Errorf("it was asked %d times for two names in an hour", asked)
		}
		for _, name := range []string{api, www} {
			w := warnings(log, "name="+name)
			if len(w) != 1 || !strings.Contains(w[0], "the name does not resolve") || !strings.Contains(w[0], "level=WARN") || !strings.Contains(w[0], "port 443") {
				t.Errorf("%s: %q", name, w)
			}
		}
		if m.Certificate(api) != nil || m.Missing(time.Now()) == nil {
			t.Error("there is a certificate")
		}
		a.fails(nil)
		time.Sleep(time.Hour)
		if err := m.Missing(time.Now()); err != nil {
			t.Error(err)
		}
		stop()
	})
}

// A certificate is renewed while it is served. If that fails, it stays in use, also past its end.
func TestARenewalThatFailsKeepsTheCertificateInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 12*time.Hour)
		m, log := open(t, t.TempDir(), a)
		stop := m.run(t)
		time.Sleep(6 * time.Hour)
		first := m.serial(api)
		if first == 0 || len(warnings(log, "")) > 0 {
			t.Fatalf("serial %d, %q", first, warnings(log, ""))
		}
		time.Sleep(4 * time.Hour) // renewed when a third was left
		second := m.serial(api)
		if second == first {
			t.Fatal("it was not renewed")
		}

		a.fails(errors.New("too many certificates"))
		time.Sleep(15 * time.Hour)
		if m.serial(api) != second {
			t.Error("another certificate is in use")
		}
		w := warnings(log, "name="+api)
		if len(w) != 1 || !strings.Contains(w[0], "could not be renewed, and stays in use") || !strings.Contains(w[0], "too many certificates") {
			t.Errorf("warned %d times: %q", len(w), w)
		}
		if err := m.Missing(time.Now()); err == nil {
			t.Error("it has expired, and nothing is missing")
		}
		m.Warn(time.Now())
		if w := warnings(log, "has expired"); len(w) != 2 {
			t.Errorf("warned of %q", w)
		}
		if end := m.Expiries()[api]; !end.Equal(m.Certificate(api).Leaf.NotAfter) {
			t.Errorf("it expires at %v", end)
		}

		a.fails(nil)
		time.Sleep(6 * time.Hour)
		if m.serial(api) == second || m.Missing(time.Now()) != nil {
			t.Error("it was not renewed after the failure")
		}
		a.fails(errors.New("too many again"))
		time.Sleep(10 * time.Hour)
		if w := warnings(log, "too many again"); len(w) != 2 { // one a name
			t.Errorf("warned of the second failure: %q", w)
		}
		// Certmagic has its pauses in a variable, so the next test would begin with one.
		a.fails(nil)
		time.Sleep(6 * time.Hour)
		stop()
	})
}

// What fails before the authority is asked is reported once too, and tried again.
func TestADirectoryThatCannotBeUsedIsReported(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "acme")
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 12*time.Hour)
		m, log := open(t, dir, a)
		// Root may write everywhere, but not below a file.
		obstruct := func() {
			if err := errors.Join(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		clear := func() {
			if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
				t.Fatal(err)
			}
		}
		obstruct()
		stop := m.run(t)
		time.Sleep(3 * time.Hour)
		if w := warnings(log, "name="+api); len(w) != 1 || !strings.Contains(w[0], "no certificate by ACME") {
			t.Errorf("before the first: %q", w)
		}
		clear()
		time.Sleep(3 * time.Hour)
		first := m.serial(api)
		if first == 0 {
			t.Fatal("there is no certificate")
		}
		obstruct()
		time.Sleep(10 * time.Hour)
		if w := warnings(log, "name="+api); len(w) != 2 || !strings.Contains(w[1], "could not be renewed, and stays in use") || m.serial(api) != first {
			t.Errorf("before a renewal: %q", w)
		}
		clear()
		time.Sleep(6 * time.Hour)
		if m.serial(api) == first {
			t.Error("it was not renewed")
		}
		if w := warnings(log, "api"); len(w) != 2 {
			t.Errorf("warned of %q", w)
		}
		stop()
	})
}

// A certificate that expires tonight is renewed by a server that starts.
func TestAStoredCertificateThatExpiresTonightIsRenewed(t *testing.T) {
	const day = 24 * time.Hour
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 90*day)
		m, _ := open(t, dir, a)
		stop := m.run(t)
		time.Sleep(time.Hour)
		stop()
		old := m.serial(api)
		time.Sleep(89*day + 12*time.Hour)
		m, log := open(t, dir, a)
		if m.serial(api) != old {
			t.Error("it is not in use meanwhile")
		}
		m.Warn(time.Now())
		if w := warnings(log, "expires soon"); len(w) != 2 {
			t.Errorf("warned of %q", w)
		}
		stop = m.run(t)
		time.Sleep(time.Hour)
		if m.serial(api) == old || m.serial(api) == 0 {
			t.Error("it was not renewed")
		}
		stop()
	})
}

// A server that ends while the authority is asked has not failed.
func TestTheEndOfTheServerIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 12*time.Hour)
		a.silent = true
		m, log := open(t, t.TempDir(), a)
		stop := m.run(t)
		time.Sleep(time.Second)
		if asked, _ := a.counts(); asked != 2 {
			t.Errorf("asked %d times", asked)
		}
		// putAside takes the lock that certmagic holds meanwhile.
		if ok, err := m.files.TryLock(t.Context(), issueLock(api)); ok || err != nil {
			t.Errorf("locked: %t, %v", ok, err)
		}
		stop()
		if w := warnings(log, ""); len(w) > 0 {
			t.Errorf("warned: %q", w)
		}
	})
}

// Two servers share a directory: each name is asked for once, and both use what it gets.
func TestServersThatShareADirectoryAskOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, 6*24*time.Hour)
		one, _ := open(t, dir, a)
		other, _ := open(t, dir, a)
		stopOne, stopOther := one.run(t), other.run(t)
		for day := range 12 {
			time.Sleep(24 * time.Hour)
			if one.serial(api) == 0 || one.serial(api) != other.serial(api) || one.serial(www) != other.serial(www) {
				t.Errorf("day %d: they have %d and %d", day, one.serial(api), other.serial(api))
			}
		}
		if asked, issued := a.counts(); asked != int(issued) || issued != 6 { // on days 0, 4 and 8
			t.Errorf("asked %d times, issued %d", asked, issued)
		}
		stopOne()
		stopOther()
	})
}

// Whatever name and protocol a client sends, no other name gets a certificate or a challenge.
func TestOtherNamesAreNeverServed(t *testing.T) {
	a := newAuthority(t, time.Hour)
	m, _ := open(t, t.TempDir(), a)
	for _, hello := range []*tls.ClientHelloInfo{
		{ServerName: "other.example.com", SupportedProtos: []string{Protocol}},
		{ServerName: "", SupportedProtos: []string{Protocol}},
		{ServerName: api, SupportedProtos: []string{Protocol, "h2"}},
		{ServerName: api, SupportedProtos: []string{"h2"}},
		{ServerName: "../" + api, SupportedProtos: []string{Protocol}},
	} {
		if m.Challenge(hello) != nil {
			t.Errorf("%q %q is a challenge", hello.ServerName, hello.SupportedProtos)
		}
	}
	if m.Challenge(&tls.ClientHelloInfo{ServerName: "API.example.com", SupportedProtos: []string{Protocol}}) == nil {
		t.Error("a challenge is none")
	}
	if m.Certificate("other.example.com") != nil || m.Has("other.example.com") {
		t.Error("another name has a certificate")
	}
	if asked, _ := a.counts(); asked != 0 {
		t.Errorf("the authority was asked %d times", asked)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
