package pacer_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// prepared answers at once, with a budget that is never scarce.
type prepared struct{ response http.Response }

func newPrepared() *prepared {
	now := time.Now()
	h := http.Header{}
	h.Set("Date", now.UTC().Format(http.TimeFormat))
	h.Set("X-RateLimit-Limit", "2000000000")
	h.Set("X-RateLimit-Remaining", "1999999999")
	h.Set("X-RateLimit-Reset", strconv.FormatInt(now.Unix()+86400, 10))
	return &prepared{http.Response{StatusCode: http.StatusOK, Header: h, Body: http.NoBody}}
}

func (p *prepared) RoundTrip(*http.Request) (*http.Response, error) { return &p.response, nil }

// signed returns a request with a credential.
func signed(t testing.TB) *http.Request {
	r, err := http.NewRequest("GET", "http://api.example.com/v1/wp/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer wpt_abcdefghij_secretsecretsecretsecret")
	return r
}

func TestPacingAllocatesLittle(t *testing.T) {
	p, r := pacer.New(&pacer.Options{Base: newPrepared()}), signed(t)
	n := testing.AllocsPerRun(1000, func() {
		if _, err := p.RoundTrip(r); err != nil {
			t.Fatal(err)
		}
	})
	if n > 3 {
		t.Errorf("a request without a wait allocates %v times, more than 3", n)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	b.Run("base alone", func(b *testing.B) { roundTrip(b, newPrepared()) })
	b.Run("paced", func(b *testing.B) { roundTrip(b, pacer.New(&pacer.Options{Base: newPrepared()})) })
}

func roundTrip(b *testing.B, t http.RoundTripper) {
	b.ReportAllocs()
	r := signed(b)
	for b.Loop() {
		if _, err := t.RoundTrip(r); err != nil {
			b.Fatal(err)
		}
	}
}
