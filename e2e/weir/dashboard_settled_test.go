package weir

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What requests have cost, what is in flight, and why a request was refused in flight, as the
// operator sees it.
func TestTheDashboardShowsReservationsAndSlots(t *testing.T) {
	held, entered := make(chan struct{}), make(chan struct{}, 2)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/poll" {
			entered <- struct{}{}
			<-held
		}
		w.Header().Set("X-Cost", r.Header.Get("X-Costs"))
	}))
	t.Cleanup(upstream.Close)
	s := serveWeir(t, "--upstream", upstream.URL, "--policy", policyFile(t, `
limiters:
  - name: ask
    routes: [POST /ask]
    windows: [5000 per minute by ip, 60 requests per minute by ip]
    cost: {reserve: 400, from: header:X-Cost}
  - name: poll
    routes: [/poll]
    in_flight: 2 by ip
`))
	send := func(method, path, costs string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Costs", costs)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for _, costs := range []string{"100", "450", "none"} {
		if status := send(http.MethodPost, "/ask", costs); status != http.StatusOK {
			t.Fatalf("a request is answered %d", status)
		}
	}
	ended := make(chan int, 2)
	for range 2 {
		go func() { ended <- send(http.MethodGet, "/poll", "") }()
		<-entered
	}
	if status := send(http.MethodGet, "/poll", ""); status != http.StatusTooManyRequests {
		t.Fatalf("a third request at the same time is answered %d", status)
	}
	b := dashboard(t, s)
	card := func(limiter, part string) string {
		return `document.querySelector("article[data-limiter=` + limiter + `] .` + part + `").innerText`
	}
	b.until(card("poll", "units") + ` === "2 slots in use here"`)
	for limiter, want := range map[string]string{"ask": "5000 per minute by ip\n60 requests per minute by ip", "poll": "2 in flight by ip"} {
		if got := ask[string](b, card(limiter, "window")); got != want {
			t.Errorf("the windows of %s are %q, want %q", limiter, got, want)
		}
	}
	if got, want := ask[string](b, card("ask", "units")), "1,200 units reserved, 300 given back; 50 beyond the reserve; 1 cost not reported"; got != want {
		t.Errorf("the units are %q, want %q", got, want)
	}
	ask[bool](b, `(document.querySelector(".refusals button").click(), true)`)
	b.until(`document.querySelector(".explained dl")`)
	if got := b.text(".explained dl"); !strings.Contains(got, "2 of 2 requests at the same time") || !strings.Contains(got, "when one of them has ended") || strings.Contains(got, "spent") {
		t.Errorf("the refusal is explained as\n%s", got)
	}
	b.until(`document.querySelector("#callers-rows tr[data-limiter=poll] .count").innerText === "at most 2 in flight"`)
	units := func(limiter string) string {
		cell := `document.querySelector("#callers-rows tr[data-limiter=` + limiter + `] .units")`
		return ask[string](b, cell+`.innerText.replace(/[\d,]+/g, "n") + "; " + `+cell+`.title`)
	}
	if got, want := units("ask"), "n\nof n reserved; what the requests have cost where that is known, else what was reserved for them; halves every five minutes"; got != want {
		t.Errorf("the units of a caller whose requests are settled are %q, want %q", got, want)
	}
	if got, want := units("poll"), "n; "; got != want {
		t.Errorf("the units of a caller whose requests are not settled are %q, want %q", got, want)
	}
	id := ask[string](b, `ask("status?after=0").then((s) => s.watch.refusals.list[0].denial)`)
	at, _ := operating(t, s)
	for command, want := range map[string]string{
		"denial " + id:            "in flight    2 of 2 requests\n",
		"key show --ip 127.0.0.1": "requests under way: only their end gives it back\n",
	} {
		var out, errors bytes.Buffer
		args := append(strings.Fields(command), "--admin", at, "--data", s.data)
		if status := run(args, nil, nil, &out, &errors); status != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("weir %.20s… exits with %d and prints\n%s%s\nwant %q in it", command, status, &out, &errors, want)
		}
	}
	close(held)
	for range 2 {
		if status := <-ended; status != http.StatusOK {
			t.Errorf("a request that was held is answered %d", status)
		}
	}
	b.until(card("poll", "units") + ` === "0 slots in use here"`)
}
