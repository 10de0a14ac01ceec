package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// standing returns the status of a response and its fields of a window.
func standing(h http.Header, status int) string {
	one := func(name string) string { return fmt.Sprint(h[name]) }
	return fmt.Sprint(status, " ", one("X-RateLimit-Limit"), one("X-RateLimit-Remaining"), " ", len(h["Retry-After"]))
}

func TestNestedLimitersWriteTheFieldsOfTheOneThatBinds(t *testing.T) {
	for _, c := range []struct {
		name         string
		outer, inner []string
		want         []string
	}{
		{"the inner one refuses", []string{"100 per hour by ip"}, []string{"2 per minute by ip"},
			[]string{"200 [2][1] 0", "200 [2][0] 0", "429 [2][0] 1", "429 [2][0] 1"}},
		{"the outer one refuses", []string{"2 per minute by ip"}, []string{"100 per hour by ip"},
			[]string{"200 [2][1] 0", "200 [2][0] 0", "429 [2][0] 1"}},
		// a refused request costs the outer one, which has admitted it, until that has less left
		{"first the inner one, then the outer one", []string{"4 per hour by ip"}, []string{"2 per minute by ip"},
			[]string{"200 [2][1] 0", "200 [2][0] 0", "429 [2][0] 1", "429 [2][0] 1", "429 [4][0] 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := httplimit.Limit(c.outer...)(httplimit.Limit(c.inner...)(done))
			for i, want := range c.want {
				w := status(h, "192.0.2.1")
				if got := standing(w.Header(), w.Code); got != want {
					t.Errorf("request %d: %s, want %s", i+1, got, want)
				}
			}
		})
	}
}

func TestTheResetOfNestedLimitersIsThatOfTheLimit(t *testing.T) {
	h := httplimit.Limit("100 per day by ip")(httplimit.Limit("50 per hour by ip")(httplimit.Limit("1 per minute by ip")(done)))
	statuses(1, h, "192.0.2.1")
	w := status(h, "192.0.2.1")
	date, err := http.ParseTime(w.Header().Get("Date"))
	if err != nil {
		t.Fatal(err)
	}
	var reset, after int64
	if _, err := fmt.Sscan(w.Header()["X-RateLimit-Reset"][0], &reset); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(w.Header().Get("Retry-After"), &after); err != nil {
		t.Fatal(err)
	}
	if got := standing(w.Header(), w.Code); got != "429 [1][0] 1" || reset-date.Unix() != after || after > 60 || !strings.Contains(w.Body.String(), "rate_limited") {
		t.Errorf("%s, Reset in %d seconds, Retry-After: %d, and %s", got, reset-date.Unix(), after, w.Body)
	}
}

// A middleware between the two that answers in place of the inner one has the outer one's fields.
func TestAnAnswerInPlaceOfANestedLimitersHasTheOuterFields(t *testing.T) {
	inner := httplimit.Limit("1 per minute by ip")(done)
	h := httplimit.Limit("100 per hour by ip")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept := httptest.NewRecorder()
		inner.ServeHTTP(kept, r)
		w.WriteHeader(http.StatusTeapot)
	}))
	w := status(h, "192.0.2.1")
	if got := standing(w.Header(), w.Code); got != "418 [100][99] 0" {
		t.Error(got)
	}
}

// A 429 of the handler leaves nothing of the inner limit, which then binds.
func TestAHandlersOwn429InsideNestedLimitersHasTheFieldsOfOne(t *testing.T) {
	h := httplimit.Limit("100 per hour by ip")(httplimit.Limit("200 per minute by ip")(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	})))
	w := status(h, "192.0.2.1")
	if got := standing(w.Header(), w.Code); got != "429 [200][0] 1" || w.Header().Get("Retry-After") != "7" {
		t.Errorf("%s, Retry-After: %s", got, w.Header().Get("Retry-After"))
	}
}

// ietf returns the contract's limit and remaining units, and the fields of the IETF draft without
// the time until the reset.
func ietf(h http.Header) string {
	got := fmt.Sprint(h["X-RateLimit-Limit"], h["X-RateLimit-Remaining"])
	for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
		for spelled, values := range h {
			if strings.EqualFold(spelled, name) {
				got += " " + strings.Join(values, " and ")
			}
		}
	}
	return regexp.MustCompile(";t=[0-9]+").ReplaceAllString(got, "")
}

// Whichever limiter has the fields of the draft switched on, they describe the window that the
// contract's fields describe, or the response has neither (D4, D23).
func TestTheIETFFieldsOfNestedLimitersAreThoseOfTheOneThatBinds(t *testing.T) {
	const (
		off, on  = false, true
		innerOne = `[2] [1] "inner";r=1 "inner";q=2;w=60`
		innerOut = `[2] [0] "inner";r=0 "inner";q=2;w=60`
		outerOne = `[2] [1] "outer";r=1 "outer";q=2;w=60`
		outerOut = `[2] [0] "outer";r=0 "outer";q=2;w=60`
	)
	limit := func(name string, ietf bool, window string) func(http.Handler) http.Handler {
		return httplimit.Setup{Limiter: weir.Limiter{Name: name}, Options: httplimit.Options{IETF: ietf}}.Limit(window)
	}
	// fields of the backend's own are replaced, too
	backend := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["RateLimit"], w.Header()["Ratelimit-Policy"] = []string{`"backend";r=7`}, []string{`"backend";q=9`}
	})
	for _, c := range []struct {
		name         string
		outer, inner bool
		windows      [2]string // of the outer and the inner one
		want         []string
	}{
		{"the inner one binds, on in the outer one", on, off, [2]string{"100 per hour by ip", "2 per minute by ip"}, []string{innerOne, innerOut, innerOut}},
		{"the inner one binds, on in the inner one", off, on, [2]string{"100 per hour by ip", "2 per minute by ip"}, []string{innerOne, innerOut, innerOut}},
		{"the inner one binds, on in both", on, on, [2]string{"100 per hour by ip", "2 per minute by ip"}, []string{innerOne, innerOut, innerOut}},
		{"the outer one binds, on in the outer one", on, off, [2]string{"2 per minute by ip", "100 per hour by ip"}, []string{outerOne, outerOut, outerOut}},
		{"the outer one binds, on in the inner one", off, on, [2]string{"2 per minute by ip", "100 per hour by ip"}, []string{outerOne, outerOut, "[2] [0]"}},
		{"the outer one binds, on in both", on, on, [2]string{"2 per minute by ip", "100 per hour by ip"}, []string{outerOne, outerOut, outerOut}},
	} {
		for _, between := range []string{"", "another limiter between them"} {
			t.Run(strings.TrimSuffix(c.name+", "+between, ", "), func(t *testing.T) {
				h := limit("inner", c.inner, c.windows[1])(backend)
				if between != "" {
					h = limit("between", off, "1000 per hour by ip")(h)
				}
				h = limit("outer", c.outer, c.windows[0])(h)
				for i, want := range c.want {
					if got := ietf(status(h, "192.0.2.1").Header()); got != want {
						t.Errorf("request %d: %s, want %s", i+1, got, want)
					}
				}
			})
		}
	}
}

// A response of limiters without the fields of the draft keeps those of the backend.
func TestNestedLimitersWithoutTheIETFFieldsLeaveTheBackends(t *testing.T) {
	h := httplimit.Limit("100 per hour by ip")(httplimit.Limit("2 per minute by ip")(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["RateLimit"] = []string{`"backend";r=7`}
	})))
	if got, want := ietf(status(h, "192.0.2.1").Header()), `[2] [1] "backend";r=7`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
