package accesslog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

func TestALineHasHowLongItsRequestTook(t *testing.T) {
	for _, test := range []struct {
		format, line string
		want         time.Duration // -1: the log does not have it
	}{
		{"weir", `time=2026-03-01T12:00:01.000Z client=192.0.2.1 method=GET path=/a status=200 bytes=1 duration=1234.500ms limiter=a reserved=400 cost=120 outcome=admitted host=h proto=HTTP/1.1`, 1234500 * time.Microsecond},
		{"weir-json", `{"time":"2026-03-01T12:00:01.000Z","client":"192.0.2.1","method":"GET","path":"/a","status":200,"bytes":1,"duration_ms":1234.5,"outcome":"unlimited","host":"h","proto":"HTTP/1.1"}`, 1234500 * time.Microsecond},
		{"combined", `192.0.2.1 - - [01/Mar/2026:12:00:01 +0000] "GET /a HTTP/1.1" 200 1 "-" "curl"`, -1},
		{"traefik", `192.0.2.1 - - [01/Mar/2026:12:00:01 +0000] "GET /a HTTP/1.1" 200 1 "-" "curl" 17 "router" "server" 3000ms`, 3 * time.Second},
		{"nginx-json", `{"remote_addr":"192.0.2.1","msec":"1772366401.000","request":"GET /a HTTP/1.1","status":"200","request_time":"2.500"}`, 2500 * time.Millisecond},
		{"nginx-json", `{"remote_addr":"192.0.2.1","msec":"1772366401.000","request":"GET /a HTTP/1.1","status":"200"}`, -1},
		{"$remote_addr [$time_local] \"$request\" $status $request_time", `192.0.2.1 [01/Mar/2026:12:00:01 +0000] "GET /a HTTP/1.1" 200 0.250`, 250 * time.Millisecond},
		{"envoy", `[2026-03-01T12:00:01.000Z] "GET /a HTTP/1.1" 200 - 0 1 70 69 "192.0.2.1" "curl" "id" "example.com" "192.0.2.9:80"`, 70 * time.Millisecond},
		{"envoy", `[2026-03-01T12:00:01.000Z] "GET /a HTTP/1.1" 200 - 0 1 - - "192.0.2.1" "curl" "id" "example.com" "192.0.2.9:80"`, -1},
		{"envoy-json", `{"start_time":"2026-03-01T12:00:01.000Z","method":"GET","path":"/a","response_code":200,"duration":70,"downstream_remote_address":"192.0.2.1:9"}`, 70 * time.Millisecond},
	} {
		line, malformed := one(t, accesslog.Options{Format: test.format}, test.line)
		if malformed != "" || time.Duration(line.Duration) != test.want {
			t.Errorf("%s: %v, malformed %q; want %v", test.format, time.Duration(line.Duration), malformed, test.want)
		}
	}
}

func TestALineHasWhatWasReserved(t *testing.T) {
	for _, test := range []struct {
		format, line string
		want         int64
	}{
		{"weir", `time=2026-03-01T12:00:01.000Z client=192.0.2.1 method=GET path=/a status=200 bytes=1 duration=1.000ms limiter=a reserved=400 cost=120 outcome=admitted host=h proto=HTTP/1.1`, 400},
		{"weir", `time=2026-03-01T12:00:01.000Z client=192.0.2.1 method=GET path=/a status=429 bytes=1 duration=1.000ms limiter=a outcome=refused host=h proto=HTTP/1.1`, 0},
		{"weir", `time=2026-03-01T12:00:01.000Z client=192.0.2.1 method=GET path=/a status=200 bytes=1 duration=1.000ms limiter=a reserved=1.5 outcome=admitted host=h proto=HTTP/1.1`, 0},
		{"weir-json", `{"time":"2026-03-01T12:00:01.000Z","client":"192.0.2.1","method":"GET","path":"/a","status":200,"bytes":1,"duration_ms":1.000,"limiter":"a","reserved":400,"outcome":"admitted","host":"h","proto":"HTTP/1.1"}`, 400},
		{"weir-json", `{"time":"2026-03-01T12:00:01.000Z","client":"192.0.2.1","method":"GET","path":"/a","status":200,"bytes":1,"duration_ms":1.000,"limiter":"a","outcome":"admitted","host":"h","proto":"HTTP/1.1"}`, 0},
		{"nginx-json", `{"remote_addr":"192.0.2.1","msec":"1772366401.000","request":"GET /a HTTP/1.1","status":"200","reserved":"7"}`, 0},
	} {
		if line, malformed := one(t, accesslog.Options{Format: test.format}, test.line); malformed != "" || line.Reserved != test.want {
			t.Errorf("%s: %d are reserved, malformed %q; want %d", test.line, line.Reserved, malformed, test.want)
		}
	}
}

func TestWeirsOwnLogHasTheFieldCost(t *testing.T) {
	for _, format := range []string{"weir", "weir-json"} {
		r, err := accesslog.Open(accesslog.Options{Format: format, Fields: []string{"cost"}, Stdin: strings.NewReader("")})
		if err != nil {
			t.Errorf("the field cost of %s: %v", format, err)
			continue
		}
		_ = r.Close()
	}
}

func TestALineHasWhatTheRequestHasCost(t *testing.T) {
	for _, test := range []struct {
		format, line, want string
	}{
		{"weir", `time=2026-03-01T12:00:01.000Z client=192.0.2.1 method=GET path=/a status=200 bytes=1 duration=1.000ms limiter=a reserved=400 cost=120 outcome=admitted host=h proto=HTTP/1.1`, "120"},
		{"weir", `time=2026-03-01T12:00:01.000Z client=192.0.2.1 method=GET path=/a status=200 bytes=1 duration=1.000ms limiter=a reserved=400 cost=0 outcome=admitted host=h proto=HTTP/1.1`, "0"},
		{"weir", `time=2026-03-01T12:00:01.000Z client=192.0.2.1 method=GET path=/a status=200 bytes=1 duration=1.000ms limiter=a reserved=400 outcome=admitted host=h proto=HTTP/1.1`, ""},
		{"weir-json", `{"time":"2026-03-01T12:00:01.000Z","client":"192.0.2.1","method":"GET","path":"/a","status":200,"bytes":1,"duration_ms":1.000,"limiter":"a","reserved":400,"cost":0,"outcome":"admitted","host":"h","proto":"HTTP/1.1"}`, "0"},
		{"weir-json", `{"time":"2026-03-01T12:00:01.000Z","client":"192.0.2.1","method":"GET","path":"/a","status":200,"bytes":1,"duration_ms":1.000,"limiter":"a","reserved":400,"outcome":"admitted","host":"h","proto":"HTTP/1.1"}`, ""},
		{"nginx-json", `{"remote_addr":"192.0.2.1","msec":"1772366401.000","request":"GET /a HTTP/1.1","status":"200","cost":"7"}`, ""},
	} {
		line, malformed := one(t, accesslog.Options{Format: test.format}, test.line)
		if malformed != "" || string(line.Cost) != test.want || (line.Cost == nil) != (test.want == "") {
			t.Errorf("%s: cost %q, malformed %q; want %q", test.line, line.Cost, malformed, test.want)
		}
	}
}
