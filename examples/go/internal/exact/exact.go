// Package exact tests that a service limits exactly, from outside.
package exact

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// The limits of the services: of /hello by address, and of /tenants/NAME by tenant and address.
const (
	Hello  = 10
	Tenant = 3
)

// Service checks a service. start starts it anew on loopback, and returns its URL.
func Service(t *testing.T, start func(t *testing.T) string) {
	t.Run("the first refusal has the contract's fields", func(t *testing.T) { firstRefusal(t, start(t)+"/hello") })
	t.Run("100 parallel requests", func(t *testing.T) { parallel(t, start(t)+"/hello") })
	t.Run("the router's parameter", func(t *testing.T) { tenants(t, start(t)) })
	t.Run("an error", func(t *testing.T) { notFound(t, start(t)) })
}

func firstRefusal(t *testing.T, url string) {
	for left := Hello - 1; left >= 0; left-- {
		answer, body := get(t, url)
		if answer.StatusCode != http.StatusOK || body != "hello\n" {
			t.Fatalf("with %d left: %s %q", left+1, answer.Status, body)
		}
		checkFields(t, answer, Hello, left)
		if after := answer.Header.Get("Retry-After"); after != "" {
			t.Errorf("an admitted request has Retry-After: %s", after)
		}
	}
	answer, body := get(t, url)
	if answer.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("request %d: %s", Hello+1, answer.Status)
	}
	checkFields(t, answer, Hello, 0)
	if after, err := strconv.Atoi(answer.Header.Get("Retry-After")); err != nil || after < 1 || after > 60 {
		t.Errorf("Retry-After: %q", answer.Header.Get("Retry-After"))
	}
	var refusal struct{ Error struct{ Code string } }
	if err := json.Unmarshal([]byte(body), &refusal); err != nil || refusal.Error.Code != "rate_limited" {
		t.Errorf("the body of the 429 is %q", body)
	}
}

// checkFields checks the fields that every limited response has.
func checkFields(t *testing.T, answer *http.Response, limit, left int) {
	t.Helper()
	for name, want := range map[string]int{"X-RateLimit-Limit": limit, "X-RateLimit-Remaining": left} {
		if got := answer.Header.Values(name); len(got) != 1 || got[0] != strconv.Itoa(want) {
			t.Errorf("%s: %v, want %d", name, got, want)
		}
	}
	date, err := http.ParseTime(answer.Header.Get("Date"))
	reset, e := strconv.ParseInt(answer.Header.Get("X-RateLimit-Reset"), 10, 64)
	if wait := reset - date.Unix(); err != nil || e != nil || wait < 0 || wait > 62 {
		t.Errorf("X-RateLimit-Reset %q is %d seconds after Date %q", answer.Header.Get("X-RateLimit-Reset"), wait, answer.Header.Get("Date"))
	}
}

func parallel(t *testing.T, url string) {
	var admitted, refused atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			answer, err := http.Get(url)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			switch answer.StatusCode {
			case http.StatusOK:
				admitted.Add(1)
			case http.StatusTooManyRequests:
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if admitted.Load() != Hello || refused.Load() != 100-Hello {
		t.Errorf("%d admitted and %d refused, want %d and %d", admitted.Load(), refused.Load(), Hello, 100-Hello)
	}
}

func tenants(t *testing.T, base string) {
	for left := Tenant - 1; left >= 0; left-- {
		answer, body := get(t, base+"/tenants/acme")
		if answer.StatusCode != http.StatusOK || body != "hello, acme\n" {
			t.Fatalf("acme: %s %q", answer.Status, body)
		}
		checkFields(t, answer, Tenant, left)
	}
	if answer, _ := get(t, base+"/tenants/acme"); answer.StatusCode != http.StatusTooManyRequests {
		t.Errorf("acme again: %s", answer.Status)
	}
	if answer, _ := get(t, base+"/tenants/%61cme"); answer.StatusCode != http.StatusTooManyRequests {
		t.Errorf("acme in another spelling: %s", answer.Status)
	}
	if answer, _ := get(t, base+"/tenants/other"); answer.StatusCode != http.StatusOK {
		t.Errorf("another tenant: %s", answer.Status)
	}
}

// notFound checks that a handler's error stays what it is, and has the fields.
func notFound(t *testing.T, base string) {
	answer, _ := get(t, base+"/tenants/missing")
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("a tenant that does not exist: %s", answer.Status)
	}
	checkFields(t, answer, Tenant, Tenant-1)
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}
