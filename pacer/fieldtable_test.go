package pacer

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
)

// A fieldsRow is one response, and what its fields mean.
type fieldsRow struct {
	Name   string `json:"name"`
	Status int    `json:"status"`
	Fields sends  `json:"fields"`
	Means  *means `json:"means"` // nil: nothing
	// false: such a first answer, at tableClock, leaves nothing known
	Believed *bool `json:"believed"`
	// ms, or null if a 429 states no wait; other responses have none
	RetryAfter json.RawMessage `json:"retryAfter"`
}

// means is the budget that a response describes.
type means struct {
	Limit     int64   `json:"limit"` // 0: unknown
	Remaining int64   `json:"remaining"`
	Reset     int64   `json:"reset,omitempty"` // Unix seconds; 0: see After
	After     float64 `json:"after,omitempty"` // ms
	Name      string  `json:"name,omitempty"`
}

func TestWhatFieldsMean(t *testing.T) {
	p := New(nil)
	for name, row := range named(t, table[fieldsRow](t, "fields.json"), func(r fieldsRow) string { return r.Name }) {
		t.Run(name, func(t *testing.T) {
			response := &http.Response{StatusCode: row.Status, Header: row.Fields.header()}
			a := p.read(response)
			var got *means
			if f := a.fields; a.kind == binding {
				got = &means{Limit: f.Limit, Remaining: f.Remaining, After: float64(f.after) / float64(time.Millisecond), Name: f.name}
				if f.after == 0 {
					got.Reset = f.Reset
				}
			}
			if got, want := must(json.Marshal(got)), must(json.Marshal(row.Means)); string(got) != string(want) {
				t.Errorf("the fields mean %s, want %s", got, want)
			}
			var wait json.RawMessage
			if row.Status == http.StatusTooManyRequests {
				wait = []byte("null")
				if w, ok := retryAfter(response.Header); ok {
					wait = must(json.Marshal(milliseconds(int64(w))))
				}
			}
			if string(wait) != string(row.RetryAfter) {
				t.Errorf("a retry is due after %q ms, want %q", wait, row.RetryAfter)
			}
			believed := true
			if a.kind == binding {
				now := tableClock * int64(time.Millisecond)
				var fresh budget
				believed = fresh.observe(sent{cost: 1, place: fresh.begin(ask{cost: 1}, now), at: now, now: now}, a.fields, a.refused) > 0
			}
			if want := row.Believed == nil || *row.Believed; believed != want {
				t.Errorf("the fields are believed: %v, want %v", believed, want)
			}
		})
	}
}

// named yields the rows of a table by their names, which differ.
func named[T any](t *testing.T, rows []T, name func(T) string) func(func(string, T) bool) {
	seen := map[string]bool{}
	for _, row := range rows {
		if n := name(row); seen[n] || n == "" {
			t.Errorf("two rows are named %q, or one has no name", n)
		} else {
			seen[n] = true
		}
	}
	return func(yield func(string, T) bool) {
		for _, row := range rows {
			if !yield(name(row), row) {
				return
			}
		}
	}
}

// A requestsRow is some requests, and which of them share a budget.
type requestsRow struct {
	Name   string `json:"name"`
	Routes []struct {
		Name    string   `json:"name"`
		Routes  []string `json:"routes"`
		Windows []string `json:"windows"`
	} `json:"routes"` // instead of the contract's
	Requests []struct {
		Method  string `json:"method"`
		URL     string `json:"url"`
		Headers sends  `json:"headers"`
		Body    string `json:"body"`
	} `json:"requests"`
	Budgets  []int    `json:"budgets"`  // requests with the same number share all their windows
	Limiters []string `json:"limiters"` // empty: no route covers the request
	Windows  []struct {
		Limit   int64 `json:"limit"`
		Seconds int64 `json:"seconds"`
	} `json:"windows"` // of the first request, as declared
}

// options are those of a client with the row's routes.
func (row *requestsRow) options(t *testing.T) *Options {
	if row.Routes == nil {
		return nil
	}
	var p weir.Policy
	for _, r := range row.Routes {
		l := weir.Limiter{Name: r.Name}
		for _, s := range r.Routes {
			route, err := weir.ParseRoute(s)
			if err != nil {
				t.Fatal(err)
			}
			l.Routes = append(l.Routes, route)
		}
		for _, s := range r.Windows {
			w, err := weir.ParseWindow(s)
			if err != nil {
				t.Fatal(err)
			}
			l.Windows = append(l.Windows, w)
		}
		p.Limiters = append(p.Limiters, l)
	}
	routes, err := weir.NewRoutes(p)
	if err != nil {
		t.Fatal(err)
	}
	return &Options{Routes: routes}
}

func TestWhichRequestsShareABudget(t *testing.T) {
	for name, row := range named(t, table[requestsRow](t, "requests.json"), func(r requestsRow) string { return r.Name }) {
		t.Run(name, func(t *testing.T) {
			p := New(row.options(t))
			var lines []*line
			var budgets []int
			var limiters []string
			for _, one := range row.Requests {
				r, err := http.NewRequest(one.Method, one.URL, strings.NewReader(one.Body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header = one.Headers.header()
				l := p.line(r)
				at := slices.Index(lines, l)
				if at < 0 {
					at, lines = len(lines), append(lines, l)
				}
				budgets, limiters = append(budgets, at), append(limiters, l.limiter)
			}
			if !slices.Equal(budgets, row.Budgets) {
				t.Errorf("the budgets are %v, want %v", budgets, row.Budgets)
			}
			for i, want := range row.Windows {
				if got := lines[0].ways[0].windows[i].declared; got.limit != want.Limit || got.length != want.Seconds {
					t.Errorf("window %d is %+v, want %+v", i, got, want)
				}
			}
			if n := len(lines[0].ways[0].windows); row.Windows != nil && n != len(row.Windows) {
				t.Errorf("it has %d windows, want %d", n, len(row.Windows))
			}
			if !slices.Equal(limiters, row.Limiters) {
				t.Errorf("the limiters are %q, want %q", limiters, row.Limiters)
			}
		})
	}
}

// A client in another language that lacks a dialect has to fail the table.
func TestEveryDialectIsInTheTable(t *testing.T) {
	var all strings.Builder
	for _, row := range table[fieldsRow](t, "fields.json") {
		for name := range row.Fields {
			all.WriteString(strings.ToLower(name) + "\n")
		}
	}
	for _, name := range []string{headers.Limit, headers.Remaining, headers.Reset, headers.RetryAfter, headers.Date, headers.RateLimit, headers.Policy,
		"X-RateLimit-Reset-After", "RateLimit-Limit", "X-Rate-Limit-Limit", "X-RateLimit-Limit-Requests", "X-RateLimit-Limit-Tokens",
		"Anthropic-RateLimit-Requests-Limit", "Anthropic-RateLimit-Tokens-Limit", "X-RateLimit-Bucket", "X-RateLimit-Resource", "Age"} {
		if !strings.Contains(all.String(), strings.ToLower(name)+"\n") {
			t.Errorf("no row has the field %s", name)
		}
	}
}
