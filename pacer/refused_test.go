package pacer_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// A reply is one answer of a scripted server.
type reply struct {
	status int
	header map[string]string
	err    error
}

// A script answers requests with its replies in order, then with the last one. It
// records when each request came.
type script struct {
	mu      sync.Mutex
	replies []reply
	at      []time.Duration
	bodies  []string
	closed  int // closed bodies of answers
	began   time.Time
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	pass(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.at = append(s.at, time.Since(s.began))
	s.bodies = append(s.bodies, string(body))
	answer := s.replies[0]
	if len(s.replies) > 1 {
		s.replies = s.replies[1:]
	}
	if answer.err != nil {
		return nil, answer.err
	}
	h := http.Header{}
	for name, value := range answer.header {
		switch value {
		case "now":
			value = time.Now().UTC().Format(http.TimeFormat)
		case "in an hour":
			value = time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
		case "in 7 s":
			value = time.Now().Add(7 * time.Second).UTC().Format(http.TimeFormat)
		}
		if seconds, ok := strings.CutPrefix(value, "now+"); ok {
			d, err := time.ParseDuration(seconds + "s")
			if err != nil {
				panic(err)
			}
			value = unix(time.Now().Add(d))
		}
		h.Set(name, value)
	}
	return &http.Response{StatusCode: answer.status, Header: h, Request: r, Body: &closing{strings.NewReader("the answer"), s}}, nil
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// closing counts how often the bodies of answers are closed.
type closing struct {
	io.Reader
	s *script
}

func (c *closing) Close() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.closed++
	return nil
}

func get(t *testing.T) *http.Request {
	t.Helper()
	r, err := http.NewRequest("GET", "http://api.example.com/v1/wp/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer wpt_abc_def")
	return r
}

func fields(limit, remaining, reset string) map[string]string {
	return map[string]string{"Date": "now", "X-RateLimit-Limit": limit, "X-RateLimit-Remaining": remaining, "X-RateLimit-Reset": reset}
}

func with(h map[string]string, name, value string) map[string]string {
	out := map[string]string{name: value}
	for k, v := range h {
		if k != name {
			out[k] = v
		}
	}
	return out
}

func without(h map[string]string, name string) map[string]string {
	out := with(h, name, "")
	delete(out, name)
	return out
}

// after reports whether got is want, or later by at most the jitter.
func after(got, want time.Duration) bool { return got >= want && got <= want+150*time.Millisecond }

func TestA429IsWaitedFor(t *testing.T) {
	ok := reply{status: 204, header: fields("60", "59", "now+60")}
	full := fields("60", "0", "now+60")
	for name, c := range map[string]struct {
		header map[string]string
		want   time.Duration
	}{
		"seconds":                             {with(full, "Retry-After", "60"), 60 * time.Second},
		"longer than until Reset":             {with(full, "Retry-After", "90"), 90 * time.Second},
		"sooner than Reset, which holds then": {with(full, "Retry-After", "5"), 60 * time.Second},
		"a date":                              {with(full, "Retry-After", "in 7 s"), 60 * time.Second},
		"a date alone":                        {map[string]string{"Date": "now", "Retry-After": "in 7 s"}, 7 * time.Second},
		"seconds alone, no Date":              {map[string]string{"Retry-After": "7"}, 7 * time.Second},
		"zero":                                {map[string]string{"Retry-After": "0"}, time.Second},
		"garbage with a Reset":                {with(full, "Retry-After", "soon"), 60 * time.Second},
		"none with a Reset":                   {full, 60 * time.Second},
		"10 years with a Reset":               {with(full, "Retry-After", "315360000"), 60 * time.Second},
		"seconds with a Reset that is past":   {with(fields("60", "0", "now+-5"), "Retry-After", "7"), 7 * time.Second},
		"seconds with fields that are broken": {with(fields("sixty", "0", "now+60"), "Retry-After", "7"), 7 * time.Second},
		"no Date, and Remaining not 0":        {without(with(fields("60", "9", "now+60"), "Retry-After", "60"), "Date"), 60 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{replies: []reply{{status: 429, header: c.header}, ok}}
				var refusals []pacer.Refusal
				p := pacer.New(&pacer.Options{Base: s, OnRefused: func(r pacer.Refusal) { refusals = append(refusals, r) }})
				response, err := p.RoundTrip(get(t))
				if err != nil || response.StatusCode != 204 {
					t.Fatalf("answered %v, %v", response, err)
				}
				if len(s.at) != 2 || !after(s.at[1], c.want) {
					t.Errorf("sent at %v, want a second time after %v", s.at, c.want)
				}
				if s.closed != 1 {
					t.Errorf("%d bodies of refusals were closed, want 1", s.closed)
				}
				if len(refusals) != 1 || !refusals[0].Again || refusals[0].Attempt != 1 || refusals[0].Limiter != "wp-plugin" {
					t.Errorf("OnRefused received %+v", refusals)
				}
			})
		})
	}
}

// If a 429 leaves enough of the reported budget, it comes from another limit, such
// as GitHub's secondary one. All calls wait for its Retry-After, and not until that
// budget's Reset.
func TestA429OfAnotherLimitLeavesTheBudgetOpen(t *testing.T) {
	open := fields("5000", "4987", "now+3000")
	for name, c := range map[string]struct {
		header map[string]string
		want   time.Duration
	}{
		"seconds":                            {with(open, "Retry-After", "1"), time.Second},
		"seconds, no Date":                   {without(with(open, "Retry-After", "1"), "Date"), time.Second},
		"five minutes":                       {with(open, "Retry-After", "300"), 5 * time.Minute},
		"no Retry-After":                     {open, time.Minute},
		"no Retry-After, and a nearer Reset": {fields("5000", "4987", "now+20"), 20 * time.Second},
		"another dialect": {map[string]string{"Date": "now", "RateLimit-Limit": "5000", "RateLimit-Remaining": "4987",
			"RateLimit-Reset": "3000", "Retry-After": "1"}, time.Second},
	} {
		for _, path := range []string{"/v1/wp/status", "/repos"} { // with a route, and without
			t.Run(name+" "+path, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := &script{replies: []reply{
						{status: 200, header: fields("5000", "4988", "now+3000")}, {status: 429, header: c.header},
						{status: 200, header: fields("5000", "4986", "now+3000")}}}
					p := pacer.New(&pacer.Options{Base: s})
					for range 2 {
						if response, err := p.RoundTrip(request(t, path)); err != nil || response.StatusCode != 200 {
							t.Fatalf("answered %v, %v", response, err)
						}
					}
					if len(s.at) != 3 || !after(s.at[2]-s.at[1], c.want) {
						t.Errorf("sent at %v, want the third %v after the second", s.at, c.want)
					}
				})
			})
		}
	}
}

// Later calls wait for such a 429, too.
func TestLaterCallsWaitForAnotherLimitsRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{
			{status: 429, header: with(fields("5000", "4987", "now+3000"), "Retry-After", "7")},
			{status: 200, header: fields("5000", "4986", "now+3000")},
		}}
		p := pacer.New(&pacer.Options{Base: s})
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				pass(time.Duration(i) * time.Second / 2)
				if _, err := p.RoundTrip(request(t, "/repos")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(s.at) != 11 || s.at[1] < 7*time.Second || s.at[10] > 8*time.Second {
			t.Errorf("sent at %v, want the first at once, and the others from 7s to 8s", s.at)
		}
	})
}

func TestA429WithoutAUsableWaitIsReturned(t *testing.T) {
	for name, header := range map[string]map[string]string{
		"nothing":                      {},
		"garbage":                      {"Retry-After": "soon"},
		"10 years":                     {"Retry-After": "315360000"},
		"a date without a Date":        {"Retry-After": "in 7 s"},
		"negative":                     {"Retry-After": "-7"},
		"beyond 63 bits":               {"Retry-After": "99999999999999999999"},
		"Reset in the year 58858":      fields("60", "0", "1793417866937"),
		"Reset in the past":            fields("60", "0", "now+-60"),
		"Reset a year away":            fields("60", "0", "now+31536000"),
		"Reset in the past, no Date":   without(fields("60", "0", "now+-60"), "Date"),
		"a limit of 0":                 fields("0", "0", "now+60"),
		"negative Remaining and Reset": fields("60", "-1", "-60"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{replies: []reply{{status: 429, header: header}}}
				began := time.Now()
				response, err := pacer.New(&pacer.Options{Base: s}).RoundTrip(get(t))
				if err != nil || response.StatusCode != 429 {
					t.Fatalf("answered %v, %v", response, err)
				}
				if text, err := io.ReadAll(response.Body); string(text) != "the answer" || err != nil {
					t.Errorf("its body is %q, %v", text, err)
				}
				if len(s.at) != 1 || time.Since(began) > 2*time.Second {
					t.Errorf("sent %d times in %v", len(s.at), time.Since(began))
				}
			})
		})
	}
}

func TestImpossibleFieldsStallNoCall(t *testing.T) {
	for name, header := range map[string]map[string]string{
		"none":                           {},
		"Reset in the past":              fields("60", "0", "now+-60"),
		"Reset now":                      fields("60", "0", "now+0"),
		"Reset in the year 58858":        fields("60", "0", "1793417866937"),
		"Reset beyond any window":        fields("60", "0", "now+2764900"),
		"Reset a year away":              fields("60", "0", "now+31536000"),
		"negative Remaining":             fields("60", "-1", "now+60"),
		"a limit of 0":                   fields("0", "0", "now+60"),
		"one field alone":                {"Date": "now", "X-RateLimit-Remaining": "0"},
		"a Date of 1980":                 with(fields("60", "0", "now+60"), "Date", "Tue, 01 Jan 1980 00:00:00 GMT"),
		"a Date that is none":            with(fields("60", "0", "now+60"), "Date", "yesterday"),
		"numbers with signs and spaces":  fields("+60", " 0", "now+60"),
		"an answer of a cache":           with(fields("60", "0", "now+60"), "Age", "30"),
		"Reset in seconds that are none": fields("60", "0", "0"),
		"Reset in the future, a date":    fields("60", "0", "2058-01-01T00:00:00Z"),
		"Reset in the past without Date": without(fields("60", "0", "now+-60"), "Date"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{replies: []reply{{status: 200, header: header}}}
				p := pacer.New(&pacer.Options{Base: s})
				began := time.Now()
				for range 100 {
					if response, err := p.RoundTrip(get(t)); err != nil || response.StatusCode != 200 {
						t.Fatalf("answered %v, %v", response, err)
					}
				}
				if took := time.Since(began); took > 200*time.Millisecond {
					t.Errorf("100 requests took %v", took)
				}
			})
		})
	}
}

func TestFalseFieldsCauseNoStall(t *testing.T) {
	// The server reports plenty and refuses anyway. Each 429 is waited for, and
	// after the last retry the caller gets it.
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 429, header: with(fields("60", "59", "now+60"), "Retry-After", "1")}}}
		response, err := pacer.New(&pacer.Options{Base: s, Retries: 3}).RoundTrip(get(t))
		if err != nil || response.StatusCode != 429 || len(s.at) != 4 {
			t.Errorf("answered %v, %v after %d requests, want the 429 after 4", response, err, len(s.at))
		}
	})
	// The server reports that nothing is left although it serves. A call starts at
	// each Reset, and not earlier.
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "0", "now+5")}}}
		p := pacer.New(&pacer.Options{Base: s})
		for i := range 4 {
			if _, err := p.RoundTrip(get(t)); err != nil {
				t.Fatal(err)
			}
			if want := time.Duration(i) * 5 * time.Second; s.at[i] < want || s.at[i] > want+want/4 {
				t.Errorf("request %d was sent at %v, want about %v", i, s.at[i], want)
			}
		}
	})
}

func TestOtherCallsWaitForARefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{
			{status: 429, header: with(fields("60", "0", "now+30"), "Retry-After", "30")},
			{status: 200, header: fields("60", "59", "now+60")},
		}}
		p := pacer.New(&pacer.Options{Base: s})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if _, err := p.RoundTrip(get(t)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for i, at := range s.at[1:] {
			if at < 30*time.Second {
				t.Errorf("request %d was sent at %v, before the Reset", i+2, at)
			}
		}
		if len(s.at) != 11 {
			t.Errorf("%d requests were sent, want 11: one was refused", len(s.at))
		}
	})
}

func TestOnlyA429IsRetried(t *testing.T) {
	broken := errors.New("connection reset")
	for _, answer := range []reply{
		{status: 503, header: with(fields("60", "0", "now+1"), "Retry-After", "1")}, {status: 500}, {status: 401}, {err: broken},
	} {
		bubble(t, func(t *testing.T) {
			s := &script{replies: []reply{answer}}
			response, err := pacer.New(&pacer.Options{Base: s}).RoundTrip(get(t))
			if len(s.at) != 1 || !errors.Is(err, answer.err) || err == nil && response.StatusCode != answer.status {
				t.Errorf("sent %d times, answered %v, %v", len(s.at), response, err)
			}
		})
	}
}

func TestARefusalWithTooLongAWaitIsReturned(t *testing.T) {
	for name, c := range map[string]struct {
		options  pacer.Options
		deadline time.Duration
		timeout  bool
	}{
		"longer than MaxWait":      {pacer.Options{MaxWait: 20 * time.Second}, 0, false},
		"no waiting at all":        {pacer.Options{MaxWait: pacer.NoWait}, 0, false},
		"longer than the deadline": {pacer.Options{}, 20 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{replies: []reply{{status: 429, header: with(fields("60", "0", "now+30"), "Retry-After", "30")}}}
				c.options.Base = s
				r := get(t)
				if c.deadline > 0 {
					ctx, cancel := context.WithTimeout(r.Context(), c.deadline)
					defer cancel()
					r = r.WithContext(ctx)
				}
				began := time.Now()
				_, err := pacer.New(&c.options).RoundTrip(r)
				wait := asWait(t, err)
				if time.Since(began) > time.Second || len(s.at) != 1 || s.closed != 1 {
					t.Errorf("it took %v, %d requests, %d bodies closed", time.Since(began), len(s.at), s.closed)
				}
				if wait.Reason != pacer.Refused || !after(wait.Wait, 30*time.Second) || !after(time.Until(wait.Until), 30*time.Second-time.Second/100) {
					t.Errorf("%+v: %v", wait, wait)
				}
				if errors.Is(err, context.DeadlineExceeded) != c.timeout || wait.Timeout() != c.timeout {
					t.Errorf("%v matches context.DeadlineExceeded: %v", err, !c.timeout)
				}
			})
		})
	}
}

func TestAnswersWithoutFieldsCostNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{replies: []reply{{status: 200, header: fields("60", "59", "now+60")}, {status: 200}}}
		p := pacer.New(&pacer.Options{Base: s})
		began := time.Now()
		for range 200 {
			if _, err := p.RoundTrip(get(t)); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("200 requests of which one was limited took %v", took)
		}
	})
}

func TestRequestsWithoutAnAnswerMayHaveBeenCharged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken := errors.New("connection reset")
		s := &script{replies: []reply{{status: 200, header: fields("60", "9", "now+60")}, {err: broken}}}
		p := pacer.New(&pacer.Options{Base: s, MaxWait: pacer.NoWait})
		sent := 0
		for range 20 {
			_, err := p.RoundTrip(get(t))
			var wait *pacer.WaitError
			if errors.As(err, &wait) {
				break
			}
			sent++
		}
		if sent != 6 { // one that reported 9, and the lost ones: 9, 8, 7, 6 and 5 left
			t.Errorf("%d were sent of a budget of which 9 were left", sent)
		}
	})
}
