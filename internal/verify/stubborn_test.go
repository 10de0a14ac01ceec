package verify

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// talking answers every request on a network with a function's output, until stop
// is called.
func (n *network) talking(answer func(c net.Conn, nth int)) (stop func()) {
	var running sync.WaitGroup
	var mu sync.Mutex
	served := 0
	var open []net.Conn
	serve := func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			mu.Lock()
			served++
			nth := served
			mu.Unlock()
			answer(c, nth)
		}
	}
	running.Go(func() {
		for {
			c, err := n.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			running.Go(func() { serve(c) })
		}
	})
	return func() {
		n.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	}
}

// For any answer, a verification ends by itself, and at once when its context ends.
func TestAnEndlessAnswerDoesNotBlock(t *testing.T) {
	const switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
	for name, answer := range map[string]func(net.Conn, int){
		"another protocol, and silence": func(c net.Conn, _ int) { fmt.Fprint(c, switched) },
		"another protocol, and no end": func(c net.Conn, _ int) {
			for text := switched; ; text = "x" {
				if _, err := fmt.Fprint(c, text); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		},
		"early hints without end": func(c net.Conn, _ int) {
			for {
				if _, err := fmt.Fprint(c, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
					return
				}
			}
		},
		"silence":             func(net.Conn, int) {},
		"a body, and silence": func(c net.Conn, _ int) { fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx") },
	} {
		for _, patience := range []time.Duration{time.Second / 2, time.Hour} {
			t.Run(fmt.Sprintf("%s, %v", name, patience), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := newNetwork()
					defer n.talking(answer)()
					plan, err := NewPlan(n.options(policyOf(t, onePolicy("5 per minute by ip"))))
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					began := time.Now()
					report, _ := plan.Run(ctx) // an error or a report: either is an end
					if took := time.Since(began); took > min(patience+time.Second, 10*time.Minute) {
						t.Errorf("it took %v and %d requests", took, report.Sent)
					}
				})
			})
		}
	}
}

// refusing answers as a window of five that never ends: only the first five
// requests are admitted.
func refusing(c net.Conn, nth int, date, reset int64) {
	status, more, body, left := "200 OK", "", "{}", 5-nth
	if nth > 5 {
		status, more, body, left = "429 Too Many Requests", "Retry-After: 3\r\nContent-Type: application/json\r\n", `{"error":{"code":"rate_limited","message":"Wait."}}`, 0
	}
	fmt.Fprintf(c, "HTTP/1.1 %s\r\nDate: %s\r\nX-RateLimit-Limit: 5\r\nX-RateLimit-Remaining: %d\r\nX-RateLimit-Reset: %d\r\n%sContent-Length: %d\r\n\r\n%s",
		status, time.Unix(date, 0).UTC().Format(http.TimeFormat), left, reset, more, len(body), body)
}

// A wait for a window never exceeds MaxWait, even if Date changes during the wait.
func TestNoWaitExceedsMaxWait(t *testing.T) {
	const most = 5 * time.Second
	for name, ahead := range map[string]func(nth int) int64{ // how far Reset is ahead of Date
		"Date goes back ten years":      func(nth int) int64 { return map[bool]int64{false: 3, true: 300_000_000}[nth > 20] },
		"Date goes back a little, ever": func(nth int) int64 { return 3 + int64(max(0, nth-100)) },
		"Reset is at the end of time":   func(nth int) int64 { return map[bool]int64{false: 3, true: 1 << 52}[nth > 20] },
		"Date is constant":              func(int) int64 { return 3 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				reset := time.Now().Unix() + 1_000_000
				defer n.talking(func(c net.Conn, nth int) { refusing(c, nth, reset-ahead(nth), reset) })()
				o := n.options(policyOf(t, onePolicy("5 per 5 seconds by ip")))
				o.MaxWait = most
				began := time.Now()
				o.Progress = func(p Progress) {
					if p.Waiting > most {
						t.Errorf("it waits %v", p.Waiting)
					}
				}
				report := verified(t, o)
				// One window, and one more if it is refused in the next.
				if took := time.Since(began); took > 2*most {
					t.Errorf("it took %v:\n%s", took, table(report))
				}
			})
		})
	}
}

// hasty answers with a Retry-After that is one second too short.
type hasty struct{ http.ResponseWriter }

func (h hasty) WriteHeader(status int) {
	if n, err := strconv.Atoi(h.Header().Get("Retry-After")); err == nil {
		h.Header().Set("Retry-After", strconv.Itoa(max(n-1, 1)))
	}
	h.ResponseWriter.WriteHeader(status)
}

// A Retry-After that is too short is found even if the windows are too short to
// measure the deployment's clock.
func TestAHastyRetryAfterIsFoundInShortWindows(t *testing.T) {
	for _, per := range []string{"2", "3", "5"} {
		for after := time.Duration(0); after < time.Second; after += 170 * time.Millisecond {
			t.Run(fmt.Sprint(per, " seconds, ", after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(after)
					policy := onePolicy("10 per " + per + " seconds by ip")
					handler := limited(t, policy, http.HandlerFunc(fine))
					n := newNetwork()
					defer n.serving(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(hasty{w}, r) }))()
					report := verified(t, n.options(policyOf(t, policy)))
					for _, x := range report.Results {
						if (x.Verdict == Broken) != (x.Clause == "retry-after") {
							t.Errorf("%s is %s: %s", x.Clause, x.Verdict, x.Detail)
						}
					}
				})
			})
		}
	}
}
