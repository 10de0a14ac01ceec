//go:build linux

package weir

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/pebbletest"
)

// Certificates by ACME, certificates of clients and another process, together: the next process
// gets the certificate that the first one was refused, and those after it serve it at once. All of
// them ask clients for theirs, but not the authority, and count by them: exactly the limit is
// admitted, and no request fails.
func TestASwapKeepsTheCertificatesOfBothSides(t *testing.T) {
	const limit, name = 1500, "api.example.com"
	a := startPebble(t, pebbletest.Options{})
	a.Names.Resolve(false)
	clients, policy := newClientAuthority(t), filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, fmt.Sprintf("limiters: [{name: api, routes: [/*], windows: [%d per day by cert], requires: cert}]\n", limit))
	w := newSwapped(t, serveWeir(t, acmeFlags(a, name, "--policy", policy, "--upstream", nothingBehind(t), "--client-ca", clients.file)...))
	if _, err := w.stderr.await(regexp.MustCompile(`no certificate by ACME for a name: .*name=api\.example\.com`)); err != nil {
		t.Fatal(err)
	}
	a.Names.Resolve(true)
	a.TLS.To(w.url)
	w.swap()
	w.awaitIssued(t, name)

	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.Root()) {
		t.Fatal("the authority has no root")
	}
	withCertificate := func(by *clientAuthority) *tls.Config {
		pair, err := tls.LoadX509KeyPair(by.issue("billing.example.com"))
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{RootCAs: roots, ServerName: name, Certificates: []tls.Certificate{pair}}
	}
	callers := &tallyman{limits: map[int]bool{limit: true}}
	var ended atomic.Bool
	var asking sync.WaitGroup
	for i := range 4 {
		config := withCertificate(clients)
		asking.Go(func() {
			client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: i >= 2, ForceAttemptHTTP2: i%2 == 0}}
			defer client.CloseIdleConnections()
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for !ended.Load() {
				callers.ask(client, w.url+"/x")
				<-pace.C
			}
		})
	}
	for range 2 {
		callers.await(t, callers.answered()+100)
		w.swap()
		callers.await(t, callers.answered()+100)
		for who, config := range map[string]*tls.Config{
			"a client without a certificate": {RootCAs: roots, ServerName: name},
			"a stranger":                     withCertificate(newClientAuthority(t)),
		} {
			client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
			if response, err := client.Get(w.url + "/x"); err == nil {
				_ = response.Body.Close()
				t.Errorf("%s is answered %d", who, response.StatusCode)
			}
		}
	}
	callers.await(t, limit+100)
	ended.Store(true)
	asking.Wait()
	callers.check(t)
	if n := len(callers.counts); n != limit || callers.refused == 0 {
		t.Errorf("%d requests were admitted, want %d; %d were refused", n, limit, callers.refused)
	}
	w.end()
	if n := len(issuedTo(name).FindAllString(w.stderr.String(), -1)); n != 1 {
		t.Errorf("the name got %d certificates, want 1", n)
	}
}
