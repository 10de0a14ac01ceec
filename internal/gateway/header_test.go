package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
)

// byField starts a gateway before an upstream, with a limiter of these windows. The
// upstream returns the X-Api-Key it received.
func byField(t *testing.T, windows ...string) *edge {
	t.Helper()
	l := weir.Limiter{Name: "keyed", Routes: []weir.Route{{Path: "/", Prefix: true}}}
	for _, spelled := range windows {
		w, err := weir.ParseWindow(spelled)
		if err != nil {
			t.Fatal(err)
		}
		l.Windows = append(l.Windows, w)
	}
	upstream := behind(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q", r.Header["X-Api-Key"])
	})
	return open(t, nil, func(o *Options) {
		upstream(o)
		o.TrustedProxies = loopback
		o.Decider = testDecider(t, weir.Policy{Limiters: []weir.Limiter{l}})
	})
}

const perKey = 5

// Exactly the limit of requests with one value is admitted, over any number of
// connections. Two values never share a budget.
func TestEachValueOfAFieldHasItsBudget(t *testing.T) {
	e := byField(t, fmt.Sprintf("%d per day by header:X-Api-Key or ip", perKey))
	long := strings.Repeat("k", 256)
	values := []string{"", "k", "K", "k2", "a, b", "203.0.113.1", "ip", long, long + "1", long + "2", "\xff\xfe"}
	admitted := make([]atomic.Int64, len(values))
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for i, value := range values {
				fields := []string{"X-Forwarded-For: 203.0.113.1"}
				if value != "" {
					fields = append(fields, "X-Api-Key: "+value)
				}
				if e.ask("GET /", fields...).StatusCode == http.StatusOK {
					admitted[i].Add(1)
				}
			}
		})
	}
	senders.Wait()
	for i, value := range values {
		if n := admitted[i].Load(); n != perKey {
			t.Errorf("%.20q (%d bytes): %d of 8 requests were admitted, want %d", value, len(value), n, perKey)
		}
	}
}

// Once a value's budget is spent, another spelling of the value, or hiding it, can
// only spend the address's budget.
func TestNoSpellingOfAFieldHasANewBudget(t *testing.T) {
	e := byField(t, fmt.Sprintf("%d per day by header:X-Api-Key or ip", perKey))
	for range perKey {
		if res := e.ask("GET /", "X-Api-Key: k", "X-Forwarded-For: 203.0.113.1"); res.StatusCode != http.StatusOK {
			t.Fatalf("status %d", res.StatusCode)
		}
	}
	const from = "X-Forwarded-For: 203.0.113.2"
	for _, same := range []string{"X-Api-Key: k", "x-api-key: k", "X-API-KEY: k", "X-Api-Key:k", "X-Api-Key: k \t", "X-Api-Key:\t  k"} {
		if res := e.ask("GET /", same, from); res.StatusCode != http.StatusTooManyRequests || res.Header.Get("X-RateLimit-Remaining") != "0" {
			t.Errorf("%q: status %d", same, res.StatusCode)
		}
	}
	// A line that continues in the next one (obs-fold) is rejected, or read as the
	// value without the fold.
	for _, folded := range []string{"X-Api-Key: k\r\n ", "X-Api-Key:\r\n k", "X-Api-Key : k", "X-Api-Key: k\r\n\t"} {
		if res := e.ask("GET /", folded, from); res.StatusCode != http.StatusBadRequest && res.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%q: status %d", folded, res.StatusCode)
		}
	}
	// None of these has exactly one value, so each is counted by address.
	for i, none := range []string{
		"", "X-Api-Key:\r\n", "X-Api-Key: \t \r\n", "X-Api-Key: k\r\nX-Api-Key: k\r\n", "X-Api-Key: new\r\nx-api-key: newer\r\n", "X-Api-Key: \r\nX-Api-Key: new\r\n",
		"X_Api_Key: new\r\n", "X-Api_Key: new\r\n", "X-Api-Key: new\r\nConnection: X-Api-Key\r\n", "Connection: keep-alive, x-api-key\r\nX-Api-Key: newer\r\n",
		"Transfer-Encoding: chunked\r\nTrailer: X-Api-Key\r\n\r\n0\r\nX-Api-Key: new\r\n",
	} {
		head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: weir.test\r\nX-Forwarded-For: 203.0.113.%d\r\n", 10+i)
		if !strings.Contains(none, "chunked") {
			none += "Content-Length: 0\r\n"
		}
		for n, fields := range []string{none, "Content-Length: 0\r\n", none} {
			res := e.send(head + fields + "\r\n")
			if got, want := res.Header.Get("X-RateLimit-Remaining"), fmt.Sprint(perKey-1-n); res.StatusCode != http.StatusOK || got != want {
				t.Errorf("%q: status %d, Remaining %s, want %s of the address's budget", fields, res.StatusCode, got, want)
			}
		}
	}
}

// HTTP/2 has lower-case field names. Both versions count one value together.
func TestAFieldSharesItsBudgetWithHTTP2(t *testing.T) {
	e := byField(t, fmt.Sprintf("%d per day by header:X-Api-Key or ip", perKey))
	client := h2c(t)
	get := func(from string, values ...string) (status int, remaining string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", e.url("/"), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["X-Api-Key"] = values
		r.Header.Set("X-Forwarded-For", from)
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.ProtoMajor != 2 {
			t.Fatalf("spoke %s", res.Proto)
		}
		return res.StatusCode, res.Header.Get("X-RateLimit-Remaining")
	}
	for n := range perKey {
		if n%2 == 0 {
			e.ask("GET /", "X-Api-Key: k", "X-Forwarded-For: 203.0.113.1")
		} else if status, _ := get("203.0.113.2", "k"); status != http.StatusOK {
			t.Fatalf("request %d: status %d", n, status)
		}
	}
	if status, _ := get("203.0.113.3", "k"); status != http.StatusTooManyRequests {
		t.Errorf("HTTP/2 admits one more: status %d", status)
	}
	if res := e.ask("GET /", "X-Api-Key: k", "X-Forwarded-For: 203.0.113.4"); res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("HTTP/1.1 admits one more: status %d", res.StatusCode)
	}
	if status, remaining := get("203.0.113.5", "k", "new"); status != http.StatusOK || remaining != fmt.Sprint(perKey-1) {
		t.Errorf("a field that is sent twice: status %d, Remaining %s", status, remaining)
	}
	if status, remaining := get("203.0.113.5"); status != http.StatusOK || remaining != fmt.Sprint(perKey-2) {
		t.Errorf("a field that is not sent, from the same address: status %d, Remaining %s", status, remaining)
	}
}

// If a caller invents values, a window by ip limits it.
func TestAWindowByAddressLimitsInventedValues(t *testing.T) {
	e := byField(t, "3 per day by ip+header:X-Api-Key", "7 per day by ip")
	admitted := 0
	for i := range 20 {
		if e.ask("GET /", fmt.Sprintf("X-Api-Key: made-up-%d", i), "X-Forwarded-For: 203.0.113.1").StatusCode == http.StatusOK {
			admitted++
		}
	}
	if admitted != 7 {
		t.Errorf("%d requests with made-up values were admitted, want 7", admitted)
	}
}

// A value may be a secret. It is in neither the access log, nor the log, nor an
// answer.
func TestAFieldsValueIsInNoLog(t *testing.T) {
	e := byField(t, "1 per day by header:X-Api-Key or ip")
	const key = "sk_live_27ab"
	for range 3 {
		res := e.ask("GET /", "X-Api-Key: "+key)
		if body := text(t, res); res.StatusCode != http.StatusOK && (strings.Contains(body, key) || strings.Contains(fmt.Sprint(res.Header), key)) {
			t.Errorf("the answer has the value: %v\n%s", res.Header, body)
		}
	}
	e.stop()
	if logs := e.access.String() + e.log.String(); strings.Contains(logs, key) || strings.Count(logs, "\n") < 3 {
		t.Errorf("the logs have the value, or too few lines:\n%s", logs)
	}
}
