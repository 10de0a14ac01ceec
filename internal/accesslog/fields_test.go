package accesslog_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/accesslog"
)

func TestLogFormatsAsNginxHasThem(t *testing.T) {
	const main = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for"`
	const user = "192.0.2.1 - x [01/Jan/2000:00:00:00 +0000] y [01/Mar/2026:12:00:00 +0000] "
	for _, test := range []struct{ name, format, text, want string }{
		{"the default main", main, user + `"GET /\x22 HTTP/1.1" 200 5 "-" "a \x22b\x22" "203.0.113.1"`,
			`1 2026-03-01T12:00:00Z peer="192.0.2.1" method="GET" target="/\"" agent="a \"b\"" status=200`},
		{"as the configuration has it", "log_format main '$remote_addr - $remote_user [$time_local] \"$request\" '\n\t'$status $body_bytes_sent';", user + `"GET / HTTP/1.1" 200 5`,
			`1 2026-03-01T12:00:00Z peer="192.0.2.1" method="GET" target="/" agent="" status=200`},
		{"in double quotes", `"$msec $request"`, `1.5 GET /a b HTTP/1.1`,
			`1 1970-01-01T00:00:01.5Z peer="" method="GET" target="/a b" agent="" status=0`},
		{"JSON", `log_format j escape=json '{"t":"$time_iso8601","m":"$request_method","u":"$request_uri","s":$status,"a":"$http_user_agent","d":$request_time}'`,
			`{"t":"2026-03-01T12:00:00+00:00","m":"GET","u":"/a\"\u0001","s":429,"a":"\"\\","d":0.250}`,
			`1 2026-03-01T11:59:59.75Z peer="" method="GET" target="/a\"\x01" agent="\"\\" status=429`},
		{"a path and its arguments", `$msec $request_method $uri$is_args$args "$http_user_agent"`, `1.000 GET /a?b=c "x"`,
			`1 1970-01-01T00:00:01Z peer="" method="GET" target="/a?b=c" agent="x" status=0`},
		{"a path without arguments", `$msec $request_method $uri$is_args$args "$http_user_agent"`, `1.000 GET /a "x"`,
			`1 1970-01-01T00:00:01Z peer="" method="GET" target="/a" agent="x" status=0`},
		{"a path at the end", `$msec $request_method $uri$is_args$args`, `1.000 GET /a`,
			`1 1970-01-01T00:00:01Z peer="" method="GET" target="/a" agent="" status=0`},
		{"a host before the target", `$msec $request_method $scheme://$host$request_uri ${status}x`, `1.000 GET https://example.com/a?b 200x`,
			`1 1970-01-01T00:00:01Z peer="" method="GET" target="/a?b" host="example.com" agent="" status=200`},
		{"the Host field, and the host of an absolute form before it", `$msec "$request" $http_host $server_name`, `1.000 "GET / HTTP/1.1" Shop.example.com:8443 _
2.000 "GET http://api.example.com:80/a HTTP/1.1" shop.example.com _
3.000 "GET http://api.example.com HTTP/1.1" shop.example.com _
4.000 "GET / HTTP/1.0" - example.com`,
			`1 1970-01-01T00:00:01Z peer="" method="GET" target="/" host="Shop.example.com:8443" agent="" status=0
2 1970-01-01T00:00:02Z peer="" method="GET" target="/a" host="api.example.com:80" agent="" status=0
3 1970-01-01T00:00:03Z peer="" method="GET" target="/" host="api.example.com" agent="" status=0
4 1970-01-01T00:00:04Z peer="" method="GET" target="/" host="example.com" agent="" status=0`},
		{"JSON of nginx, as it is detected", "nginx-json", `{"msec":"1.000","request":"GET / HTTP/1.1","status":200,"host":"shop.example.com","http_host":"x","server_name":"_"}
{"msec":"2.000","request":"GET / HTTP/1.1","status":200,"host":{"name":"machine"},"server_name":"shop.example.com"}`,
			`1 1970-01-01T00:00:01Z peer="" method="GET" target="/" host="shop.example.com" agent="" status=200
2 1970-01-01T00:00:02Z peer="" method="GET" target="/" host="shop.example.com" agent="" status=200`},
		{"the finer of two times", `[$time_local] $msec "$request"`, `[01/Mar/2026:12:00:00 +0000] 1772366400.250 "GET / HTTP/1.1"`,
			`1 2026-03-01T12:00:00.25Z peer="" method="GET" target="/" agent="" status=0`},
		{"no escapes", `escape=none $msec "$request" "$http_user_agent"`, `1.000 "GET /\x22 HTTP/1.1" "a "b" \"`,
			`1 1970-01-01T00:00:01Z peer="" method="GET" target="/\\x22" agent="a \"b\" \\" status=0`},
		{"no request", main, `192.0.2.1 - - [01/Mar/2026:12:00:00 +0000] "" 400 0 "-" "-" "-"`,
			`1 2026-03-01T12:00:00Z peer="192.0.2.1" method="" target="" agent="" status=400`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := told(t, accesslog.Options{Format: test.format, Stdin: strings.NewReader(test.text)})
			if got != test.want+"\n" {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
		})
	}
}

func TestFieldsAreKept(t *testing.T) {
	for _, test := range []struct{ file, format, fields, want string }{
		{"combined.log", "", "remote_user,http_x_forwarded_for,http_referer,request,status",
			`remote_user="" http_x_forwarded_for="" http_referer="" request="GET / HTTP/1.1" status="200"
			remote_user="ada" http_x_forwarded_for="" http_referer="https://shop.example.com/cart" request="POST /api/v1/widget/messages?x=1 HTTP/2.0" status="429"
			remote_user="" http_x_forwarded_for="" http_referer="" request="GET /x HTTP/1.1" status="499"
			remote_user="" http_x_forwarded_for="198.51.100.4, 203.0.113.9" http_referer="" request="" status="408"`},
		{"vhost_combined.log", "", "server_name", `server_name="shop.example.com:443"
			server_name="shop.example.com:80"`},
		{"caddy.log", "", "request.headers.X-Session.1,status,request.tls.resumed,request.tls,no.such",
			`request.headers.X-Session.1="s-2" status="200" request.tls.resumed="false" request.tls="" no.such=""
			request.headers.X-Session.1="" status="502" request.tls.resumed="" request.tls="" no.such=""
			request.headers.X-Session.1="" status="0" request.tls.resumed="" request.tls="" no.such=""
			request.headers.X-Session.1="" status="200" request.tls.resumed="" request.tls="" no.such=""`},
		{"weir.log", "", "limiter,host", `limiter="widget-init" host="shop.example.com"
			limiter="" host=""`},
		{"envoy.log", "", "x_forwarded_for,authority", `x_forwarded_for="198.51.100.9,192.0.2.7" authority="shop.example.com"
			x_forwarded_for="" authority=""`},
		{"common.log", `$remote_addr - $who [$time_local] "$request" $status $size`, "who,size", `who="" size="2326"
			who="ada" size="312"
			who="" size=""
			who="" size="157"`},
	} {
		got := told(t, accesslog.Options{Files: []string{filepath.Join("testdata", test.file)}, Format: test.format, Fields: strings.Split(test.fields, ",")})
		lines := strings.Split(strings.TrimSpace(got), "\n")
		for i, want := range strings.Split(test.want, "\n") {
			want = strings.TrimSpace(want)
			if i >= len(lines) || !strings.HasSuffix(lines[i], want) {
				t.Errorf("%s: line %d of\n%sdoes not end in %s", test.file, i+1, got, want)
			}
		}
	}
}
