package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// reserved is what a request is charged before its answer in these tests, of 1000 units.
const reserved = 100

// costFrom is a policy whose answers tell their cost.
func costFrom(t testing.TB, from string) *settled {
	t.Helper()
	reading, err := weir.ParseReading(from)
	if err != nil {
		t.Fatal(err)
	}
	return settling(t, []string{"1000 per hour by ip"}, func(l *weir.Limiter) { l.Cost, l.Actual = reserved, reading })
}

// An answer that tells its cost in a wrong way charges what was reserved. It never gives a credit,
// to this request or another, and the client gets it as it is.
func TestAnAnswerThatTellsItsCostWronglyGivesNoCredit(t *testing.T) {
	const field, member = "header:X-Cost", "json:usage.total_tokens"
	const end = "Content-Length: 0\r\n\r\n"
	told := func(value string) string { return `{"usage":{"total_tokens":` + value + `}}` }
	json := func(body string) string {
		return fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	deep := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for _, test := range []struct {
		name, from, answer string
		spends             int64
	}{
		{"a field", field, "X-Cost: 7\r\n" + end, 7},
		{"a field in lower case", field, "x-cost: 7\r\n" + end, 7},
		{"a negative field", field, "X-Cost: -7\r\n" + end, reserved},
		{"a field of 2^31", field, "X-Cost: 2147483648\r\n" + end, reserved},
		{"a field of 2^63", field, "X-Cost: 9223372036854775808\r\n" + end, reserved},
		{"a field of 2^64 and 7", field, "X-Cost: 18446744073709551623\r\n" + end, reserved},
		{"a fraction in a field", field, "X-Cost: 7.0\r\n" + end, reserved},
		{"a text in a field", field, "X-Cost: seven\r\n" + end, reserved},
		{"an empty field", field, "X-Cost: \r\n" + end, reserved},
		{"no field", field, end, reserved},
		{"a field twice", field, "X-Cost: 7\r\nX-Cost: 7\r\n" + end, reserved},
		{"a field twice, in two spellings", field, "X-Cost: 7\r\nx-cost: 0\r\n" + end, reserved},
		{"two values in a field", field, "X-Cost: 7, 0\r\n" + end, reserved},
		{"a field in a trailer", field, "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Cost: 7\r\n\r\n", reserved},
		{"a field in an announced trailer", field, "Trailer: X-Cost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Cost: 7\r\n\r\n", reserved},

		{"a member", member, json(told("7")), 7},
		{"a negative member", member, json(told("-7")), reserved},
		{"a member of 2^31", member, json(told("2147483648")), reserved},
		{"a member of 2^63", member, json(told("9223372036854775808")), reserved},
		{"a fraction", member, json(told("7.5")), reserved},
		{"an exponent", member, json(told("7e0")), reserved},
		{"a text", member, json(told(`"7"`)), reserved},
		{"no member", member, json(`{"total_tokens":7}`), reserved},
		{"a member twice", member, json(`{"usage":{"total_tokens":7,"total_tokens":0}}`), reserved},
		{"an object twice", member, json(`{"usage":{"total_tokens":7},"usage":{"total_tokens":0}}`), reserved},
		{"a text that goes on", member, json(told("7") + told("0")), reserved},
		{"a text that breaks off", member, json(told("7")[:27]), reserved},
		{"10,000 deep", member, json(`{"a":` + deep(9_999) + `,` + told("7")[1:]), 7},
		{"100,000 deep", member, json(`{"a":` + deep(99_999) + `,` + told("7")[1:]), reserved},
		{"never closed", member, json(strings.Repeat(`{"usage":`, 50_000)), reserved},
		{"not JSON", member, "Content-Type: text/html\r\n" + json(told("7")), reserved},
		{"compressed", member, "Content-Encoding: gzip\r\n" + json(told("7")), reserved},
		{"a member in a trailer", member, "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Usage: " + told("7") + "\r\n\r\n", reserved},
	} {
		t.Run(test.name, func(t *testing.T) {
			policy := costFrom(t, test.from)
			o := answering(t, "HTTP/1.1 200 OK\r\n"+test.answer)
			e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
			c := e.caller()
			for n := range int64(2) {
				c.request("GET /")
				if res, _ := c.readAnswer("GET"); res.StatusCode != http.StatusOK {
					t.Errorf("the status is %d", res.StatusCode)
				}
				eventually(t, "the request has ended", func() bool { return e.gateway.InFlight() == 0 })
				if got := policy.spent(); got != (n+1)*test.spends {
					t.Errorf("%d units are spent after %d requests, want %d each", got, n+1, test.spends)
				}
			}
		})
	}
}

// An upstream whose connection brings an answer before it is asked gives nobody a credit by it.
func TestAnAnswerBeforeTheRequestGivesNoCredit(t *testing.T) {
	policy := costFrom(t, "header:X-Cost")
	o := newOrigin(t, func(s *served) {
		s.answers("HTTP/1.1 200 OK\r\nX-Cost: 0\r\nContent-Length: 0\r\n\r\n")
		for r := s.request(); r != nil; r = s.request() {
			s.answers("HTTP/1.1 200 OK\r\nX-Cost: 7\r\nContent-Length: 0\r\n\r\n")
		}
	})
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	last := int64(0)
	for range 5 {
		c := e.caller()
		c.request("GET /")
		res, _ := c.readAnswer("GET")
		c.Close()
		eventually(t, "the request has ended", func() bool { return e.gateway.InFlight() == 0 })
		spent := policy.spent()
		if told := res.Header.Get("X-Cost"); spent < last || told == "" && spent-last != reserved || told != "" && fmt.Sprint(spent-last) != told {
			t.Errorf("status %d with the cost %q spends %d", res.StatusCode, told, spent-last)
		}
		last = spent
	}
}

// A stream is a body of any length, in chunks of 1 MiB: a long text, and then the cost.
func stream(s *served, mebibytes int, end string) {
	const size = 1 << 20
	s.answers("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{\"text\":\"\r\n")
	chunk := []byte(fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat("long text ", size/10+1)[:size]))
	for range mebibytes {
		if _, err := s.Conn.Write(chunk); err != nil {
			return
		}
	}
	s.answers("%x\r\n%s\r\n0\r\n\r\n", len(end), end)
}

// The cost is found behind a long body, and the body passes. TestTheCostIsFoundBehindAGigabyte
// sends more.
func TestTheCostIsFoundBehindALongBody(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	for _, test := range []struct {
		name, end string
		spends    int64
	}{
		{"once", `","usage":{"total_tokens":7}}`, 7},
		{"twice", `","usage":{"total_tokens":7,"total_tokens":0}}`, reserved},
	} {
		t.Run(test.name, func(t *testing.T) { findsCost(t, 16, test.end, test.spends) })
	}
}

// findsCost sends a body of so many MiB and then its end, and checks what the request spends.
func findsCost(t *testing.T, mebibytes int, end string, spends int64) {
	t.Helper()
	policy := costFrom(t, "json:usage.total_tokens")
	o := newOrigin(t, func(s *served) {
		if s.request() != nil {
			stream(s, mebibytes, end)
		}
	})
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	res, err := http.Get(e.url("/"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	n, err := io.Copy(io.Discard, res.Body)
	if want := int64(9+mebibytes<<20) + int64(len(end)); n != want || err != nil {
		t.Errorf("%d bytes arrive, %v, want %d", n, err, want)
	}
	eventually(t, "the request has ended", func() bool { return e.gateway.InFlight() == 0 })
	if got := policy.spent(); got != spends {
		t.Errorf("%d units are spent, want %d", got, spends)
	}
}

// A client that reads a few bytes at a time holds its slot, and what is reserved, until it has all.
func TestAClientThatReadsSlowlyHoldsItsSlot(t *testing.T) {
	const mebibytes = 32 // more than the sockets' buffers hold
	policy := settling(t, []string{"1000 per hour by ip"}, func(l *weir.Limiter) {
		l.Cost, l.Actual = reserved, weir.Reading{Form: weir.ReadJSON, Name: "usage.total_tokens"}
		l.InFlight = weir.InFlight{Limit: 1, Key: weir.Key{{"ip"}}}
	})
	o := newOrigin(t, func(s *served) {
		if s.request() != nil {
			stream(s, mebibytes, `","usage":{"total_tokens":7}}`)
		}
	})
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	c := e.caller()
	c.request("GET /")
	slow := bufio.NewReaderSize(c.Conn, 16) // and not more ahead
	c.Reader = slow
	for range 100 {
		if _, err := slow.ReadByte(); err != nil {
			t.Fatal(err)
		}
	}
	if slots, spent := policy.slots(), policy.spent(); slots != 1 || spent != reserved {
		t.Errorf("%d slots are held and %d units are spent while it reads", slots, spent)
	}
	other := e.caller()
	other.request("GET /")
	if res, body := other.readAnswer("GET"); res.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "at the same time") {
		t.Errorf("another request is answered %d %s", res.StatusCode, body)
	}
	c.Reader = bufio.NewReader(c.Conn)
	if _, err := io.CopyN(io.Discard, c, mebibytes<<20); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, c) }()
	eventually(t, "the slot is free", func() bool { return policy.slots() == 0 })
	if spent := policy.spent(); spent != 7 {
		t.Errorf("%d units are spent, want 7", spent)
	}
}
