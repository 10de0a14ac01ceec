package rules

import (
	"strings"
	"testing"
)

// Fields that applications normally use are forwarded.
func TestOrdinaryFieldsAreForwarded(t *testing.T) {
	for _, name := range []string{
		"Accept", "Accept-Language", "Authorization", "Cache-Control", "Content-Encoding", "Content-Type", "Cookie", "DNT", "ETag", "If-Match",
		"If-None-Match", "Idempotency-Key", "Link", "Origin", "Prefer", "Priority", "Range", "Referer", "Sec-Fetch-Mode", "Sec-WebSocket-Key",
		"User-Agent", "Via", "X-API-Key", "X-Agent-Id", "X-Amz-Date", "X-CSRF-Token", "X-Foo", "X-Goog-Api-Key", "X-Hub-Signature-256",
		"X-Original-Filename", "X-Request-Id", "X-Requested-With", "X-Shopify-Topic", "X-WP-Nonce", "b3", "traceparent", "tracestate", "1", "-",
		"Proxied", "X-Forward", "Scripts", "X-Hosts", strings.Repeat("x", 1000),
	} {
		if IsWithheld(name) {
			t.Errorf("%.40s is withheld", name)
		}
	}
	if !IsWithheld("") {
		t.Error("a field without a name is not withheld")
	}
}

func TestFindingAWithheldFieldAllocatesNothing(t *testing.T) {
	names := []string{"Accept-Language", "User-Agent", "X-Requested-With", "X_A"}
	for _, f := range WithheldFamilies {
		for _, name := range f.Names {
			names = append(names, strings.ToLower(strings.Replace(name, "*", "-Made-Up", 1)))
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, name := range names {
			IsWithheld(name)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkIsWithheld(b *testing.B) {
	names := []string{"Host", "User-Agent", "Accept", "Accept-Language", "Accept-Encoding", "Cookie", "Content-Type", "X-Requested-With", "Authorization", "Sec-Fetch-Mode"}
	for b.Loop() {
		for _, name := range names {
			IsWithheld(name)
		}
	}
}
