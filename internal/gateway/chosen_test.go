package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// spends sends one request from an address of its own, and returns the status and what remains.
func (e *edge) spends(address int, line string, fields ...string) string {
	head := line + " HTTP/1.1\r\n"
	if !strings.Contains(strings.Join(fields, "\r\n"), "Host:") {
		head += "Host: weir.test\r\n"
	}
	for _, f := range append(fields, fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", address), "Content-Length: 0") {
		head += f + "\r\n"
	}
	res := e.send(head + "\r\n")
	return fmt.Sprintf("%d %s", res.StatusCode, res.Header.Get("X-RateLimit-Remaining"))
}

// All spellings of one value have one budget, wherever they come from, and two values have two.
func TestEachChosenValueHasOneBudget(t *testing.T) {
	type sent struct{ line, field string }
	for window, values := range map[string][][]sent{
		"9 per day by cookie:sid": {
			{{"GET /", "Cookie: sid=a"}, {"GET /", "cookie: theme=dark; sid=a"}, {"GET /", "Cookie: x=1\r\nCookie: sid=a"}, {"GET /", `Cookie: sid="a"`}, {"GET /", "Cookie: sid=a; sid=a"}},
			{{"GET /", "Cookie: sid=A"}, {"GET /", "Cookie: sid=%41; sid2=a"}},
			{{"GET /", "Cookie: sid=" + strings.Repeat("k", 4<<10)}},
			{{"GET /", "Cookie: sid=" + strings.Repeat("k", 4<<10) + "2"}},
		},
		"9 per day by query:tenant": {
			{{"GET /?tenant=a", ""}, {"GET /x?y=1&tenant=a", ""}, {"GET /?tenant=%61", ""}, {"GET /?%74enant=a&tenant=a", ""}},
			{{"GET /?tenant=A", ""}},
			{{"GET /?tenant=a%20b", ""}, {"GET /?tenant=a+b", ""}},
			{{"GET /?tenant=%FF%00", ""}},
		},
		"9 per day by host": {
			{{"GET /", "Host: shop.example.com"}, {"GET /", "Host: Shop.EXAMPLE.com"}, {"GET /", "Host: shop.example.com:8443"}, {"GET /", "Host: shop.example.com."}},
			{{"GET /", "Host: example.com"}},
			{{"GET /", "Host: [2001:db8::1]"}, {"GET /", "Host: [2001:DB8:0::1]:80"}},
		},
	} {
		e := byField(t, window)
		address := 0
		for _, spellings := range values {
			for n, s := range spellings {
				address++
				var fields []string
				if s.field != "" {
					fields = strings.Split(s.field, "\r\n")
				}
				if got, want := e.spends(address, s.line, fields...), fmt.Sprintf("200 %d", 8-n); got != want {
					t.Errorf("%s: %.60v: %s, want %s", window, s, got, want)
				}
			}
		}
	}
}

// What servers could read as several values is none: it is counted by the address, and never has a
// budget of its own.
func TestAChosenValueInDoubtIsCountedByAddress(t *testing.T) {
	for window, lines := range map[string][]string{
		"9 per day by cookie:sid": {"", "Cookie: sid=a; sid=b", "Cookie: sid=a\r\nCookie: sid=b", "Cookie: sid=", `Cookie: sid="a`, `Cookie: sid=a\b`,
			"Cookie: sid=\xff", "Cookie: SID=b; sid=a", "Cookie: sid=new\r\nConnection: cookie"},
		"9 per day by host": {"Host: ", "Host: a..b", "Host: ex%61mple.com", "Host: a!b"},
	} {
		e := byField(t, window)
		for n, line := range lines {
			var fields []string
			if line != "" {
				fields = strings.Split(line, "\r\n")
			}
			if got, want := e.spends(1, "GET /", fields...), fmt.Sprintf("200 %d", 8-n); got != want {
				t.Errorf("%s: %q: %s, want %s of the address's budget", window, line, got, want)
			}
		}
	}
}

// A query that servers read differently for a parameter that the limiter counts by is answered 400
// (D10), and never has a budget of its own: it spends the address's.
func TestAnAmbiguousParameterIsRefused(t *testing.T) {
	e := byField(t, "20 per day by query:tenant")
	queries := []string{"tenant=a&tenant=b", "tenant=a;tenant=b", "tenant=%zz", "Tenant=a", "tenant[]=a", "x=1;tenant=b", "tenant=&tenant=a", "%5Btenant%5D=a"}
	for n, query := range queries {
		res := e.ask("GET /?"+query, "X-Forwarded-For: 203.0.113.1")
		body := text(t, res)
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(body, `"code":"invalid_request"`) || !strings.Contains(body, "tenant") {
			t.Errorf("%q: status %d, %s", query, res.StatusCode, body)
		}
		if got, want := res.Header.Get("X-RateLimit-Remaining"), fmt.Sprint(19-n); got != want {
			t.Errorf("%q: %s remain, want %s of the address's budget", query, got, want)
		}
	}
	for _, query := range []string{"tenant=a&tenants=b", "tenant=a&agent_id=x&agent_id=y", "q=1;2", ""} {
		if res := e.ask("GET /?"+query, "X-Forwarded-For: 203.0.113.2"); res.StatusCode != http.StatusOK {
			t.Errorf("%q: status %d", query, res.StatusCode)
		}
	}
	other := byField(t, "20 per day by ip+query:other")
	if res := other.ask("GET /?tenant=a&tenant=b", "X-Forwarded-For: 203.0.113.1"); res.StatusCode != http.StatusOK {
		t.Errorf("a parameter that nobody counts by is refused: status %d", res.StatusCode)
	}
}

// HTTP/2 has the host in :authority, and may split Cookie into several fields. Both versions count
// alike.
func TestAHostAndACookieShareTheirBudgetsWithHTTP2(t *testing.T) {
	e := byField(t, "9 per day by host+cookie:sid")
	e.spends(1, "GET /", "Host: shop.example.com", "Cookie: sid=a")
	r, err := http.NewRequestWithContext(t.Context(), "GET", e.url("/"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "Shop.example.com:81"
	r.Header["Cookie"] = []string{"theme=dark", "sid=a"}
	r.Header.Set("X-Forwarded-For", "203.0.113.2")
	res, err := h2c(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := res.Header.Get("X-RateLimit-Remaining"); res.ProtoMajor != 2 || got != "7" {
		t.Errorf("HTTP/%d: %s remain, want 7", res.ProtoMajor, got)
	}
}
