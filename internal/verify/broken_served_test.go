package verify_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// reported formats an answer's status, Limit, Remaining, seconds until Reset, and
// Retry-After.
func reported(t *testing.T, res *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	reset := res.Header.Get(resetField)
	if at, err := time.ParseDuration(reset + "s"); err == nil && reset != "" {
		reset = (at - time.Duration(time.Now().Unix())*time.Second).String()
	}
	s := strings.Join([]string{res.Status[:3], res.Header.Get(limitField), res.Header.Get(remainingField), reset, res.Header.Get(afterField)}, " ")
	if res.StatusCode == http.StatusTooManyRequests && !strings.HasPrefix(string(body), `{"error":{"code":"rate_limited","message":"Too many`) {
		t.Errorf("429 with the body %s", body)
	}
	return strings.TrimSpace(s)
}

// A test of the verifier is worthless if its correct server is wrong.
func TestTheServerForTestsKeepsTheContract(t *testing.T) {
	rules := small()
	rules[2].spans[0].limit, rules[3].spans[0].limit = 20, 22
	a := newAPI(rules)
	inBubble(t, a, func(t *testing.T, l *pipes) {
		transport := &http.Transport{DialContext: l.dial}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		ask := func(method, path, credential, body string) string {
			t.Helper()
			r, err := http.NewRequest(method, "http://127.0.0.1:8080"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if credential != "" {
				r.Header.Set("Authorization", "Bearer "+credential)
			}
			res, err := client.Do(r)
			return reported(t, res, err)
		}
		const widget = "/api/v1/widget/"
		x := &exchange{api: a, now: time.Now()}
		one, two := x.mint(), x.mint()
		for _, step := range []struct {
			wait                           time.Duration
			times                          int
			method, path, credential, body string
			want                           string
		}{
			{0, 1, "POST", widget + "leads", one, `{"email":"a@example.com"}`, "201 20 19 1m0s"},
			{0, 1, "POST", widget + "leads", one, `{}`, "400 20 18 1m0s"},
			{0, 1, "POST", "/api//v1/./widget/Leads", one, `{}`, "400 20 17 1m0s"},
			{0, 17, "POST", widget + "leads", one, `{}`, "400 20 0 1m0s"},
			{700 * time.Millisecond, 9, "POST", widget + "leads", one, `{}`, "429 20 0 59s 59"},
			{0, 1, "POST", widget + "leads", two, `{}`, "400 20 19 1m0s"},
			{0, 1, "POST", widget + "leads", two + "A", `{}`, "401 20 19 1m0s"},
			{0, 1, "GET", widget + "leads", one, ``, "405 160 159 1m0s"},
			{0, 1, "GET", widget + "nothing%2f", one, ``, "400 160 158 1m0s"},
			{58*time.Second + 999*time.Millisecond - 400*time.Millisecond, 1, "POST", widget + "leads", one, `{}`, "429 20 0 1s 1"},
			{401 * time.Millisecond, 1, "POST", widget + "leads", one, `{}`, "400 20 19 1m0s"},
			{0, 1, "GET", "/v1/wp/status", tokenA, ``, "200 22 21 1m0s"},
			{0, 1, "DELETE", "/v1/wp/elsewhere", tokenA, ``, "404 22 20 1m0s"},
			{0, 1, "GET", "/v1/wp/status", tokenB, ``, "200 22 21 1m0s"},
			{0, 1, "GET", "/v1/wp/status", tokenB + "x", ``, "401 22 21 1m0s"},
			{0, 30, "POST", widget + "init", "", `{"agent_id":"demo"}`, "201 30 0 1m0s"},
			{0, 1, "POST", widget + "init", "", `{"agent_id":"demo"}`, "429 30 0 1m0s 60"},
			{0, 30, "POST", widget + "init", "", `{"agent_id":"other"}`, "404 30 0 1m0s"},
			{0, 30, "POST", widget + "init?agent_id=third", "", ``, "404 30 0 1m0s"},
			{0, 10, "POST", widget + "init?agent_id=fourth", "", ``, "404 100 0 1h0m0s"},
			{0, 1, "POST", widget + "init?agent_id=fifth", "", ``, "429 100 0 1h0m0s 3600"},
			{time.Minute, 1, "POST", widget + "init", "", `{"agent_id":"demo"}`, "429 100 0 59m0s 3540"},
			{0, 1, "GET", "/elsewhere", "", ``, "404"},
		} {
			pause(step.wait)
			got := ""
			for range step.times {
				got = ask(step.method, step.path, step.credential, step.body)
			}
			if got != step.want {
				t.Errorf("%s %s as %.12s: %q, want %q", step.method, step.path, step.credential, got, step.want)
			}
		}
	})
}
