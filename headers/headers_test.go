package headers_test

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir/headers"
)

func TestFieldsAreReadAsTheyWereWritten(t *testing.T) {
	for _, test := range []struct {
		lines string
		want  headers.Fields
	}{
		{"X-RateLimit-Limit: 30\r\nX-RateLimit-Remaining: 29\r\nX-RateLimit-Reset: 1800000060\r\n", headers.Fields{Limit: 30, Remaining: 29, Reset: 1800000060}},
		{"X-RateLimit-Limit: 30\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1800000060\r\nRetry-After: 42\r\nDate: Fri, 15 Jan 2027 08:00:18 GMT\r\n",
			headers.Fields{Limit: 30, Reset: 1800000060, RetryAfter: 42, Date: 1800000018}},
	} {
		got, err := headers.Parse(received(t, test.lines).Values)
		if err != nil || got != test.want {
			t.Errorf("Parse of %q is %+v, %v; want %+v", test.lines, got, err, test.want)
		}
		if written := string(test.want.Append(nil)); written != test.lines {
			t.Errorf("Append writes %q, want %q", written, test.lines)
		}
	}
}

// received is a response's header as net/http would file it.
func received(t *testing.T, lines string) http.Header {
	t.Helper()
	h := http.Header{}
	for line := range strings.SplitSeq(strings.TrimSuffix(lines, "\r\n"), "\r\n") {
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("no field line: %q", line)
		}
		h.Add(name, value)
	}
	return h
}

func TestReadingRefusesWhatIsNotExactlyAllowed(t *testing.T) {
	whole := map[string][]string{headers.Limit: {"30"}, headers.Remaining: {"3"}, headers.Reset: {"1800000060"}}
	for _, test := range []struct {
		field  string
		values []string
		want   string
	}{
		{headers.Limit, []string{"+30"}, `field X-RateLimit-Limit: "+30" is not a number: only digits are allowed`},
		{headers.Limit, []string{"-1"}, `field X-RateLimit-Limit: "-1" is not a number: only digits are allowed`},
		{headers.Limit, []string{" 30"}, `field X-RateLimit-Limit: " 30" is not a number: only digits are allowed`},
		{headers.Limit, []string{"30, 30"}, `field X-RateLimit-Limit: "30, 30" is not a number: only digits are allowed`},
		{headers.Limit, []string{"٣"}, `field X-RateLimit-Limit: "٣" is not a number: only digits are allowed`},
		{headers.Limit, []string{""}, `field X-RateLimit-Limit is empty: a number in digits is required`},
		{headers.Limit, nil, `field X-RateLimit-Limit is missing: all three fields are sent together`},
		{headers.Remaining, []string{"3", "4"}, `field X-RateLimit-Remaining: "4" is one of 2 values: one is allowed`},
		{headers.Remaining, []string{"3.5"}, `field X-RateLimit-Remaining: "3.5" is not a number: only digits are allowed`},
		{headers.Reset, []string{"9223372036854775808"}, `field X-RateLimit-Reset: "9223372036854775808" is too large: at most 9223372036854775807 is allowed`},
		{headers.Reset, []string{"99999999999999999999"}, `field X-RateLimit-Reset: "99999999999999999999" is too large: at most 9223372036854775807 is allowed`},
		{headers.Reset, []string{strings.Repeat("x", 100)}, `field X-RateLimit-Reset: "` + strings.Repeat("x", 64) + `"… is not a number: only digits are allowed`},
		{headers.RetryAfter, []string{"1.5"}, `field Retry-After: "1.5" is not a number: only digits are allowed`},
		{headers.RetryAfter, []string{"soon"}, `field Retry-After: "soon" is neither a number of seconds, in digits, nor an HTTP date`},
		{headers.RetryAfter, []string{"1", "1"}, `field Retry-After: "1" is one of 2 values: one is allowed`},
		{headers.RetryAfter, []string{"Fri, 15 Jan 2027 08:00:18 GMT"}, `field Retry-After: "Fri, 15 Jan 2027 08:00:18 GMT" is a date, and the response has no Date to count from`},
		{headers.Date, []string{"yesterday"}, `field Date: "yesterday" is not an HTTP date: the form is Sun, 06 Nov 1994 08:49:37 GMT`},
		{headers.Date, []string{"Sat, 15 Jan 2027 08:00:18 GMT"}, `field Date: "Sat, 15 Jan 2027 08:00:18 GMT" is not an HTTP date: the form is Sun, 06 Nov 1994 08:49:37 GMT`},
	} {
		_, err := headers.Parse(func(name string) []string {
			if name == test.field {
				return test.values
			}
			return whole[name]
		})
		var field *headers.FieldError
		if !errors.As(err, &field) || field.Field != test.field || err.Error() != test.want {
			t.Errorf("%s %q: the error is %v\nwant %s", test.field, test.values, err, test.want)
		}
	}
}

func TestAResponseOfNoLimitedSurfaceIsTold(t *testing.T) {
	got, err := headers.Parse(received(t, "Retry-After: 7\r\n").Values)
	if !errors.Is(err, headers.ErrAbsent) || got != (headers.Fields{RetryAfter: 7}) {
		t.Errorf("Parse is %+v, %v; want the Retry-After alone, and ErrAbsent", got, err)
	}
}

func TestRetryAfterMayBeADate(t *testing.T) {
	for value, want := range map[string]int64{
		"Fri, 15 Jan 2027 08:01:00 GMT":   42,
		"Friday, 15-Jan-27 08:01:00 GMT":  42,
		"Fri Jan 15 08:01:00 2027":        42,
		"Fri, 15 Jan 2027 08:00:00 GMT":   0, // has passed
		"9223372036854775807":             math.MaxInt64,
		"0000000000000000000000000000042": 42,
	} {
		t.Run(value, func(t *testing.T) {
			h := received(t, "X-RateLimit-Limit: 1\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1\r\nDate: Fri, 15 Jan 2027 08:00:18 GMT\r\nRetry-After: "+value)
			got, err := headers.Parse(h.Values)
			if err != nil || got.RetryAfter != want {
				t.Errorf("Retry-After %q is %d, %v; want %d", value, got.RetryAfter, err, want)
			}
		})
	}
}

func TestDatesAreReadExactly(t *testing.T) {
	for _, s := range []string{
		"", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 UTC", "sun, 06 Nov 1994 08:49:37 GMT", "Sun, 6 Nov 1994 08:49:37 GMT",
		"Sun, 06 Nov 1994 08:49:37.5 GMT", "Mon, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT", "Wed, 31 Dec 1969 23:59:59 GMT",
		"Sun, 06 Nov 1994 08:49:37 GMT ",
	} {
		if unix, ok := headers.ParseDate(s); ok {
			t.Errorf("%q is read as %d, want it refused", s, unix)
		}
	}
	if unix, ok := headers.ParseDate("Sun, 06 Nov 1994 08:49:37 GMT"); !ok || unix != 784111777 {
		t.Errorf("the RFC's own example is %d, %v", unix, ok)
	}
}

func TestNegativeValuesAreWrittenAsZero(t *testing.T) {
	got := string(headers.Fields{Limit: -1, Remaining: math.MinInt64, Reset: -5, RetryAfter: -1, Date: -1}.Append(nil))
	if want := "X-RateLimit-Limit: 0\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 0\r\n"; got != want {
		t.Errorf("Append writes %q, want %q", got, want)
	}
}

func TestWritingAllocatesNothing(t *testing.T) {
	f := headers.Fields{Limit: 30, Remaining: 29, Reset: 1800000060, RetryAfter: 42, Date: 1800000018}
	members := []headers.Member{{Name: "widget-init 60s", Quota: 1000, Window: 60, Remaining: 999, Reset: 42}, {Name: "widget-init in flight", Quota: 9, Remaining: 3, Concurrent: true}}
	var dates headers.DateCache
	buffer := make([]byte, 0, 1024)
	n := testing.AllocsPerRun(100, func() {
		buffer = f.Append(buffer[:0])
		buffer = headers.AppendInt(buffer[:0], f.Reset)
		buffer = headers.AppendPolicy(buffer[:0], members)
		buffer = headers.AppendLimits(buffer[:0], members)
		buffer = append(buffer, dates.At(f.Date)...)
	})
	if n != 0 {
		t.Errorf("writing allocates %v times", n)
	}
}

func TestADateCacheFollowsTheClockBothWays(t *testing.T) {
	var dates headers.DateCache
	for _, at := range []int64{1800000018, 1800000018, 1800000019, 1800000017, -5, math.MaxInt64} {
		if got, want := dates.At(at), string(headers.AppendDate(nil, at)); got != want {
			t.Errorf("At(%d) is %q, want %q", at, got, want)
		}
	}
	if got := dates.At(math.MaxInt64); got != "Fri, 31 Dec 9999 23:59:59 GMT" {
		t.Errorf("the end of time is %q", got)
	}
}

func FuzzFieldsWrittenAreRead(f *testing.F) {
	f.Add(int64(30), int64(29), int64(1800000060), int64(42), int64(1800000018))
	f.Add(int64(math.MaxInt64), int64(0), int64(-1), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, limit, remaining, reset, retryAfter, date int64) {
		const endOfTime = 253402300799
		want := headers.Fields{Limit: limit, Remaining: remaining, Reset: reset, RetryAfter: retryAfter, Date: date}
		got, err := headers.Parse(received(t, string(want.Append(nil))).Values)
		want = headers.Fields{Limit: max(limit, 0), Remaining: max(remaining, 0), Reset: max(reset, 0), RetryAfter: max(retryAfter, 0), Date: min(max(date, 0), endOfTime)}
		if err != nil || got != want {
			t.Fatalf("written %+v, read %+v, %v", want, got, err)
		}
	})
}

func FuzzFieldsReadAreStable(f *testing.F) {
	f.Add("30", "29", "1800000060", "42", "Fri, 15 Jan 2027 08:00:18 GMT")
	f.Add("007", "0", "9223372036854775807", "Friday, 15-Jan-27 08:01:00 GMT", "Fri Jan 15 08:00:18 2027")
	f.Add("+1", "", "99999999999999999999", "\x00", "\xff")
	f.Fuzz(func(t *testing.T, limit, remaining, reset, retryAfter, date string) {
		values := map[string]string{headers.Limit: limit, headers.Remaining: remaining, headers.Reset: reset, headers.RetryAfter: retryAfter, headers.Date: date}
		first, err := headers.Parse(func(name string) []string {
			if v := values[name]; v != "-" { // absent
				return []string{v}
			}
			return nil
		})
		if err != nil {
			if !errors.Is(err, headers.ErrAbsent) && err.Error() == "" {
				t.Fatal("an error says nothing")
			}
			return
		}
		if first.Limit < 0 || first.Remaining < 0 || first.Reset < 0 || first.RetryAfter < 0 || first.Date < 0 {
			t.Fatalf("a negative number was read: %+v", first)
		}
		second, err := headers.Parse(received(t, string(first.Append(nil))).Values)
		if err != nil || second != first {
			t.Fatalf("read %+v, written and read again %+v, %v", first, second, err)
		}
	})
}
