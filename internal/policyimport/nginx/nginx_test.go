package nginx_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/policyimport/nginx"

	"github.com/weirlimit/weir/policyfile"
)

// write writes files into a directory, and returns the path of the first.
func write(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, files[0])
}

// shape describes the limiters of a policy, one a line.
func shape(p weir.Policy) string {
	var lines []string
	for _, l := range p.Limiters {
		line := fmt.Sprint(l.Routes, l.Windows)
		if l.InFlight.Limit > 0 {
			line += " in flight " + l.InFlight.String()
		}
		if l.Mode == weir.Shadow {
			line += " shadow"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

const zones = "limit_req_zone $binary_remote_addr zone=a:1m rate=10r/s; limit_req_zone $binary_remote_addr zone=m:1m rate=5r/m;\n" +
	"limit_conn_zone $binary_remote_addr zone=c:1m;\n"

func TestLimitsBecomeLimiters(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a rate", "limit_req zone=a;", "[/*] [10 per second by ip]"},
		{"a burst has a window of the same average", "limit_req zone=a burst=20;", "[/*] [30 per 3 seconds by ip]"},
		{"a rate a minute with a burst", "limit_req zone=m burst=4 nodelay;", "[/*] [5 per minute by ip]"},
		{"one more", "limit_req zone=m burst=5;", "[/*] [6 per 72 seconds by ip]"},
		{"several zones", "limit_req zone=a; limit_req zone=m;", "[/*] [10 per second by ip 1 per 12 seconds by ip]"},
		{"requests under way", "limit_conn c 4;", "[/*] [] in flight 4 by ip"},
		{"a server inherits", "limit_req zone=a; server { server_name x.example.com .y.example.com; }",
			"[x.example.com/* y.example.com/* *.y.example.com/* /*] [10 per second by ip]"},
		{"a location replaces what it inherits", "limit_req zone=a; server { location /l { limit_req zone=m; } location = /e { limit_req zone=m; } }",
			"[/* /e/*] [10 per second by ip]\n[/l* /e] [1 per 12 seconds by ip]"},
		{"another kind is inherited still", "limit_req zone=a; server { location ^~ /l/ { limit_conn c 2; } }",
			"[/*] [10 per second by ip]\n[/l/*] [10 per second by ip] in flight 2 by ip"},
		{"nested locations", "server { location /l { limit_req zone=a; location /l/m { limit_req zone=m; } } }",
			"[/l*] [10 per second by ip]\n[/l/m*] [1 per 12 seconds by ip]"},
		{"location / is the whole server", "limit_req zone=a; server { location / { limit_req zone=m; } }", "[/*] [1 per 12 seconds by ip]"},
		{"a dry run", "server { limit_req_dry_run on; limit_req zone=a; }", "[/*] [10 per second by ip] shadow"},
		{"keys", "limit_req_zone $http_x_key$host zone=k:1m rate=1r/s; limit_req_zone all zone=e:1m rate=2r/s; limit_req zone=k; limit_req zone=e;",
			"[/*] [1 per second by ip+header:X-Key+host 2 per second by everyone]"},
		{"a map of addresses", "limit_req_zone $k zone=k:1m rate=1r/s; map $o $k { 0 $binary_remote_addr; 1 \"\"; } limit_req zone=k;", "[/*] [1 per second by ip]"},
	} {
		for place, text := range map[string]string{"http": "events {}\nhttp {\n" + zones + c.text + "\n}", "a part": zones + c.text} {
			result, err := nginx.Import(write(t, "nginx.conf", text))
			if err != nil {
				t.Errorf("%s, %s: %v", c.name, place, err)
				continue
			}
			if got := shape(result.Policy); got != c.want {
				t.Errorf("%s, %s:\n%s\nwant\n%s", c.name, place, got, c.want)
			}
			if source, err := result.Source(policyfile.Reader{}, "nginx.conf"); err != nil {
				t.Errorf("%s: %v\n%s", c.name, err, source)
			}
		}
	}
}

func TestAPlaceHasTheLimitsThatItHasInNginx(t *testing.T) {
	const a, m, open = " [10 per second by ip]", " [1 per 12 seconds by ip]", " [2147483647 per second by ip]"
	for _, c := range []struct{ text, want string }{
		{"server { location /api { limit_req zone=a; } location /api/open {} }", "[/api*]" + a + "\n[/api/open*]" + open},
		{"server { location /api { limit_req zone=a; } location =/api/health {} }", "[/api* /api/health/*]" + a + "\n[/api/health]" + open},
		{"server { location /api {} location /api/open {} }", ""},
		{"server { location = / { limit_req zone=a; } }", "[/]" + a + "\n[/*]" + open},
		{"server { limit_req zone=a; location = / {} }", "[/*]" + a},
		{"limit_req zone=a; server { location /a { limit_req zone=m; } location /a/x {} location /A/y { limit_req zone=m; } }", "[/* /a/x*]" + a + "\n[/a*]" + m},
		{"limit_req zone=a; server { location /a { limit_req zone=m; location /a/x {} } }", "[/*]" + a + "\n[/a*]" + m},
		{"limit_req zone=a; server { location / { limit_req zone=m; } location /s {} }", "[/*]" + m + "\n[/s*]" + a},
		{"server { location / { location /a/b { limit_req zone=m; } } location /a { limit_req zone=a; } }", "[/a*]" + a},
		{"server { limit_req zone=a; } server { server_name static.example.com; }", "[/*]" + a + "\n[static.example.com/*]" + open},
		{"server { server_name x.com; limit_req zone=a; } server { server_name _; limit_req zone=m; }", "[x.com/* /*]" + a},
		{"server { server_name x.com; limit_req zone=a; } server { listen 80 default_server; server_name _; limit_req zone=m; }", "[x.com/*]" + a + "\n[/*]" + m},
		{"server { listen *:80; server_name x.com; limit_req zone=a; } server { listen 81; server_name _; limit_req zone=m; }", "[x.com/*]" + a + "\n[/*]" + m},
		{"server { server_name *.example.com; location /l { limit_req zone=a; } } server { server_name x.example.com X.example.net; }", "[*.example.com/l* /l*]" + a + "\n[x.example.com/* x.example.net/*]" + open},
		{"server { server_name x.com; location / { limit_req zone=a; } location /static/ {} location = /healthz { return 200; } }",
			"[x.com/* x.com/healthz/* /* /healthz/*]" + a + "\n[x.com/static/* x.com/healthz /static/* /healthz]" + open},
		{"server { server_name y.com; } server { server_name x.com; limit_req zone=a; }", "[x.com/*]" + a},
		{"server { server_name x.com; limit_req zone=a; } server { listen 81; server_name y.com; location /y { limit_req zone=m; } location /z {} }",
			"[x.com/* /*]" + a + "\n[y.com/y* /y*]" + m + "\n[y.com/*]" + open},
		{"limit_req zone=a; server { listen 80; server_name x.com; return 301 https://x.com; } server { listen 443; server_name x.com; }", "[x.com/* /*]" + a},
		{"limit_req zone=a; server { location /t { limit_req zone=m; limit_req_dry_run on; } }", "[/*]" + a + "\n[/t*]" + m + " shadow\n[/t*]" + open},
		{"server { location /api { limit_req zone=a; } location /api/u { limit_req zone=u; } }\nlimit_req_zone $request_uri zone=u:1m rate=1r/s;", "[/api*]" + a},
		{"limit_req zone=a; server { location / { return 404; } location /u { limit_req zone=none; location /u/v {} } }", "[/u*]" + a},
		{"limit_req zone=a; server { limit_conn c 2; location /u { limit_req zone=none; } location = /v { limit_conn c 0; } }", "[/*]" + a + " in flight 2 by ip"},
		{"server { limit_req zone=m; location /a { limit_req zone=a; } location /b {} location /a/u { limit_req zone=none; location /a/u/v { limit_req zone=m; } } }", "[/* /a/u/v*]" + m + "\n[/a*]" + a},
		{"server { server_name _; limit_req zone=a; } server { server_name x.com; limit_req zone=none; location /o { return 200; } }", "[/*]" + a + "\n[x.com/o*]" + open},
		{"server { server_name _; limit_req zone=a; } server { server_name x.com; limit_req zone=m; limit_req_dry_run on; }", "[/*]" + a + "\n[x.com/*]" + m + " shadow\n[x.com/*]" + open},
		{"limit_req zone=a; limit_req_dry_run on; server { server_name _; } server { server_name x.com; }", "[/* x.com/*]" + a + " shadow"},
		{"limit_req zone=a; server { location /t { limit_req zone=m; limit_req_dry_run on; location /t/u { limit_req zone=none; limit_req_dry_run off; } } }",
			"[/* /t/u*]" + a + "\n[/t*]" + m + " shadow\n[/t*]" + open},
	} {
		result, err := nginx.Import(write(t, "nginx.conf", zones+c.text))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := shape(result.Policy); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.text, got, c.want)
		}
		if notes := fmt.Sprint(result.Notes); strings.Contains(c.want, open) && !strings.Contains(notes, "so it has a limit that nothing reaches") {
			t.Errorf("%s: the notes are %s", c.text, notes)
		}
		if len(result.Policy.Limiters) == 0 {
			continue
		}
		if source, err := result.Source(policyfile.Reader{}, "nginx.conf"); err != nil {
			t.Errorf("%s: %v\n%s", c.text, err, source)
		}
	}
}

// Each address has a default server: the one that says so, or else the first. It gets the requests
// for the hosts that no server names.
func TestOtherHostsHaveTheLimitsOfTheDefaultServer(t *testing.T) {
	const a, m = "10 per second by ip", "1 per 12 seconds by ip"
	type result struct{ windows, lost string } // of hosts that no server names
	for text, want := range map[string]result{
		"server { server_name x.com; limit_req zone=a; }":                                                                                                           {a, ""},
		"server { server_name x.com; limit_req zone=a; }\nserver { server_name y.com; limit_req zone=m; }":                                                          {a, ""},
		"server { server_name x.com; limit_req zone=a; }\nserver { listen 80 default_server; server_name y.com; limit_req zone=m; }":                                {m, ""},
		"server { server_name ~^x www.*; limit_req zone=a; }":                                                                                                       {a, ""},
		"server { listen 80 default_server; server_name _; return 301 https://$host; }\nserver { listen 443 ssl; server_name example.com; limit_req zone=a; }":      {a, ""},
		"server { listen 80; listen 443 ssl; server_name _; return 444; }\nserver { listen 443 ssl; server_name example.com; limit_req zone=a; }":                   {"", ""},
		"server { listen 80; server_name _; return 444; }\nserver { listen 0.0.0.0:80; server_name example.com; limit_req zone=a; }":                                {"", ""},
		"server { listen 80; server_name _; return 444; }\nserver { listen *; server_name example.com; limit_req zone=a; }":                                         {"", ""},
		"server { listen [::1]:80; server_name _; return 444; }\nserver { listen [::1]; server_name example.com; limit_req zone=a; }":                               {"", ""},
		"server { listen 80; server_name x.com; limit_req zone=a; }\nserver { listen 81; server_name y.com; limit_req zone=a; }":                                    {a, ""},
		"server { listen 80; server_name x.com; limit_req zone=a; }\nserver { listen 81; server_name y.com; limit_req zone=m; }":                                    {a, "nginx.conf:4: /* of hosts that no server names has a limiter already"},
		"server { listen 80; server_name x.com; limit_req zone=a; }\nserver { listen 81; server_name _; limit_req zone=m; }":                                        {m, "nginx.conf:3: /* of hosts that no server names has a limiter already"},
		"server { listen 80; server_name x.com; location /p {} }\nserver { listen 81; server_name y.com; limit_req zone=a; }":                                       {a, "nginx.conf:3: nginx does not limit this; /* of hosts that no server names is limited"},
		"server { listen 80; server_name y.com; limit_req zone=a; }\nserver { listen 81; server_name x.com; location / { limit_req zone=a; }\nlocation /p { } }":    {a, "nginx.conf:5: nginx does not limit this; /p* of hosts that no server names is limited"},
		"server { listen 80; server_name x.com; location / { limit_req zone=a; }\nlocation /p { } }\nserver { listen 81; server_name y.com; limit_req zone=a; }":    {a, "nginx.conf:4: nginx does not limit this; /p* of hosts that no server names is limited"},
		"server { listen 80; server_name x.com; limit_req zone=a; }\nserver { listen 81; server_name y.com; limit_req zone=a;\nlocation /q { limit_req zone=m; } }": {a, "nginx.conf:5: /q* of hosts that no server names has other limits in another server"},
	} {
		result, err := nginx.Import(write(t, "nginx.conf", zones+text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := "" // of their /p
		for _, l := range result.Policy.Limiters {
			isOthers := func(route weir.Route) bool { return route.Host == "" && route.Path != "/q" }
			if slices.ContainsFunc(l.Routes, isOthers) {
				got += strings.Trim(fmt.Sprint(l.Windows), "[]")
			}
		}
		if got != want.windows {
			t.Errorf("%s: other hosts have %q, want %q:\n%s", text, got, want.windows, shape(result.Policy))
		}
		if lost := fmt.Sprint(result.Lost()); !strings.Contains(lost, want.lost) || want.lost == "" && len(result.Lost()) > 0 {
			t.Errorf("%s: not imported is %s, want %q", text, lost, want.lost)
		}
	}
}

// nginx counts 60r/m and 1r/s alike. A window has exactly the rate and room for the burst, and no
// shorter one has.
func TestARateHasOneWindowHoweverItIsSpelled(t *testing.T) {
	window := func(rate string, burst int64) weir.Window {
		t.Helper()
		result, err := nginx.Import(write(t, "nginx.conf", fmt.Sprintf("limit_req_zone $binary_remote_addr zone=z:1m rate=%s;\nlimit_req zone=z burst=%d;", rate, burst)))
		if err != nil {
			t.Fatal(err)
		}
		return result.Policy.Limiters[0].Windows[0]
	}
	for _, burst := range []int64{0, 1, 20, 100} {
		for _, n := range []int64{1, 2, 3, 10, 60} {
			if a, b := window(fmt.Sprintf("%dr/s", n), burst), window(fmt.Sprintf("%dr/m", 60*n), burst); a.String() != b.String() {
				t.Errorf("burst %d: %dr/s is %s, and %dr/m is %s", burst, n, a, 60*n, b)
			}
		}
		for _, n := range []int64{1, 7, 30, 59, 60, 61, 90, 600} {
			w := window(fmt.Sprintf("%dr/m", n), burst)
			seconds := int64(w.Per / time.Second)
			if w.Limit*60 != n*seconds || w.Limit <= burst {
				t.Errorf("%dr/m burst=%d is %s: want its rate, and room for %d", n, burst, w, burst+1)
			}
			for s := int64(1); s < seconds; s++ {
				if n*s%60 == 0 && n*s/60 > burst {
					t.Errorf("%dr/m burst=%d is %s, and %d per %d seconds would do", n, burst, w, n*s/60, s)
				}
			}
		}
	}
}

func TestWhatNoRouteCoversIsNamedIfItsLimitsDiffer(t *testing.T) {
	for text, want := range map[string]string{
		"server { location /api { limit_req zone=a; }\nlocation ~ [.]png$ {} }":                       "nginx.conf:4: location ~ [.]png$: a route is a path or a prefix, so its requests are limited as others with their path: nginx does not limit its requests",
		"server { limit_req zone=a; location /api {}\nlocation ~ [.]png$ {} }":                        "",
		"server { limit_req zone=a; location ^~ /api { limit_req zone=m; }\nlocation ~ [.]png$ {} }":  "",
		"server { limit_req zone=a; location /b {\nlocation ~ x { location ~ y { return 200; } } } }": "nginx.conf:4: location ~ y: a route is a path or a prefix",
		"server { limit_req zone=a;\nlocation @x { internal; } }":                                     "",
		"server { limit_req zone=a; }\nserver { listen 81; location / {} }":                           "nginx.conf:4: nginx does not limit this; /* of hosts that no server names is limited, as in another server or location",
		"server { location /Api { limit_req zone=a; }\nlocation /api { limit_req zone=m; } }":         "nginx.conf:4: /api* of hosts that no server names has a limiter already",
	} {
		result, err := nginx.Import(write(t, "nginx.conf", zones+text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if lost := result.Lost(); want == "" && len(lost) > 0 || want != "" && (len(lost) != 1 || !strings.Contains(lost[0].String(), want)) {
			t.Errorf("%s: not imported is %v, want %q", text, lost, want)
		}
	}
}

func TestWhatAPolicyCannotExpressIsNamedWithItsLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"limit_req_zone $request_uri zone=u:1m rate=1r/s;", "nginx.conf:1: the key $request_uri: no key source has $request_uri"},
		{"limit_req_zone $host zone=h:1m rate=1r/s;", "nginx.conf:1: the key $host is a value that the caller chooses, and nginx has one budget for all requests with it: counted by ip+host, so that a made-up value is no new budget; each address has a budget of its own, so the total of a value is not limited"},
		{"limit_conn_zone $k zone=k:1m; map $cookie_id $k { default $cookie_id; }", "nginx.conf:1: the key $k is a value that the caller chooses, and nginx has one budget for all requests with it: counted by ip+cookie:id"},
		{"limit_req zone=unknown;", `nginx.conf:1: limit_req: there is no zone "unknown"`},
		{"limit_req zone=a burst=x;", `nginx.conf:1: limit_req: burst "x"`},
		{"limit_req zone=m burst=999999;", "longer than the longest window"},
		{"limit_conn c 0;", `nginx.conf:1: limit_conn: "0"`},
		{"limit_req_zone $binary_remote_addr zone=x:1m;", "nginx.conf:1: limit_req_zone: it has no"},
		{"server { location ~ x { limit_req zone=a; } }", "nginx.conf:1: location ~ x: a route is a path or a prefix"},
		{"server { location @x { limit_req zone=a; } }", "nginx.conf:1: location @x"},
		{"server { return 403; } server { server_name ~x; limit_req zone=a; }", "nginx.conf:1: server_name ~x"},
		{"limit_conn c 1; limit_conn c 2;", "a limiter has one limit in flight"},
		{"server { location / { limit_rate 10k; } }", "nginx.conf:1: limit_rate"},
		{"server { location / {\nproxy_limit_rate 10k; } }", "nginx.conf:2: proxy_limit_rate: a policy limits requests, not bytes"},
		{"fastcgi_limit_rate 10k;", "nginx.conf:1: fastcgi_limit_rate: a policy limits requests, not bytes"},
		{"uwsgi_limit_rate 10k;", "nginx.conf:1: uwsgi_limit_rate: a policy limits requests, not bytes"},
		{"scgi_limit_rate 10k;", "nginx.conf:1: scgi_limit_rate: a policy limits requests, not bytes"},
		{"server { if ($slow) {\nset $limit_rate 4k; } }", "nginx.conf:2: set $limit_rate: a policy limits requests, not bytes"},
		{"server {\nset_by_lua_block $limit_rate { return 4096 } }", "nginx.conf:2: set_by_lua_block $limit_rate: a policy limits requests, not bytes"},
		{"server { auth_request /x;\nauth_request_set $Limit_Rate $upstream_http_rate; }", "nginx.conf:2: auth_request_set $Limit_Rate: a policy limits"},
		{"limit_req_zone $k zone=k:1m rate=1r/s; map $o $k {\n 0 $binary_remote_addr;\n 1 \"\";\n}", "nginx.conf:1: map $o $k: requests for which it is empty are not limited"},
		{"server { limit_req zone=a; } server { listen 81; limit_req zone=m; }", "has a limiter already"},
		{"limit_req_zone $server_name zone=s:1m rate=1r/s;", "nginx.conf:1: the key $server_name: no key source"},
		{"limit_req zone=a; limit_conn c 1; limit_req_dry_run on;", "nginx refuses requests by its limit_conn"},
		{"limit_conn c 1; limit_conn_dry_run on;", "refuses requests here"},
		{"stream { limit_conn c 1; }", "limit_conn in stream"},
	} {
		file := write(t, "nginx.conf", c.text+"\n"+zones)
		if strings.HasPrefix(c.text, "stream") {
			file = write(t, "nginx.conf", "http {\n"+zones+"}\n"+c.text)
		}
		result, err := nginx.Import(file)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		named := false
		for _, n := range result.Notes {
			named = named || n.Lost && strings.Contains(n.String(), c.want)
		}
		if !named {
			t.Errorf("%s: the notes are %v, want %q", c.text, result.Notes, c.want)
		}
	}
}

// nginx counts a request after the rewrites, in the location that it has then.
func TestARewriteIsNamedIfItCanChangeTheLimits(t *testing.T) {
	const two = "location / { limit_req zone=a; } location /api { limit_req zone=m; }"
	const moved, answered = ": nginx limits these requests by the path that they get", ": nginx answers these requests before it counts them"
	for text, want := range map[string]string{
		"server { " + two + "\nrewrite ^/old/(.*)$ /api/$1 last; }":                                                                                        "not imported: nginx.conf:4: rewrite ^/old/(.*)$ /api/$1 last" + moved,
		"server { " + two + "\nrewrite ^/old /api break; }":                                                                                                "not imported: nginx.conf:4: rewrite ^/old /api break" + moved,
		"server { " + two + "\nif ($arg_x) { rewrite ^ /api; } }":                                                                                          "not imported: nginx.conf:4: rewrite ^ /api" + moved,
		"server { " + two + " location /b {\nrewrite ^ /api last; } }":                                                                                     "not imported: nginx.conf:4: rewrite ^ /api last" + moved,
		"server { " + two + " location ~ x {\nlimit_req zone=a; rewrite ^ /api last; } }":                                                                  "not imported: nginx.conf:4: rewrite ^ /api last" + moved,
		"server { " + two + " location /b {\nrewrite ^ /api break; } }":                                                                                    "",
		"server { limit_req zone=a; location /b {\nrewrite ^ /api last; } location /api {} }":                                                              "",
		"server { " + two + " location /api/b { limit_req zone=m;\nrewrite ^/api/b(.*) /c$1 permanent; } }":                                                "changed: nginx.conf:4: rewrite ^/api/b(.*) /c$1 permanent" + answered,
		"server { limit_req zone=a;\nrewrite ^ https://example.com/; }":                                                                                    "changed: nginx.conf:4: rewrite ^ https://example.com/" + answered,
		"server { location /api { limit_req zone=m; } location /b {\nrewrite ^ /c redirect; } }":                                                           "",
		"server { location /api { limit_req zone=m; } location /b {\nreturn 301 /c; rewrite ^ /api last; } }":                                              "",
		"server { listen 81; server_name x.com; " + two + "} server { listen 81; server_name _;\nrewrite ^ /api last; location /c { limit_req zone=a; } }": "",
	} {
		result, err := nginx.Import(write(t, "nginx.conf", zones+text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		source, err := result.Source(policyfile.Reader{}, "nginx.conf")
		if got := string(source); err != nil || (want == "") == strings.Contains(got, ": rewrite ") || !strings.Contains(strings.ReplaceAll(got, result.Notes[0].File, "nginx.conf"), want) {
			t.Errorf("%s: %v, want %q in\n%s", text, err, want, got)
		}
	}
}

// nginx answers a return of an if block before it counts.
func TestARequestThatAnIfBlockAnswersIsNamed(t *testing.T) {
	const answered = ": nginx answers these requests before it counts them"
	for text, want := range map[string]string{
		"server { limit_req zone=a;\nif ($http_x = bad) { return 403; } }":                        "nginx.conf:4: return 403 if ($http_x = bad)" + answered,
		"server {\nif ($arg_x) { return 444; } location /api { limit_req zone=a; } }":             "nginx.conf:4: return 444 if ($arg_x)" + answered,
		"server {\nrewrite ^/old /new permanent; location /api { limit_req zone=a; } }":           "nginx.conf:4: rewrite ^/old /new permanent" + answered,
		"server { location /api { limit_req zone=a;\nif ($arg_x) { return 429 x; } } }":           "nginx.conf:4: return 429 x if ($arg_x)" + answered,
		"server { location /api { limit_req zone=a; }\nlocation /b { if ($a) { return 403; } } }": "",
		"server { location /api {\nif ($arg_x) { return 403; } } }":                               "",
	} {
		result, err := nginx.Import(write(t, "nginx.conf", zones+text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if notes := fmt.Sprint(result.Notes); !strings.Contains(notes, want) || (want == "") == strings.Contains(notes, answered) {
			t.Errorf("%s: the notes are %s, want %q", text, notes, want)
		}
	}
}

// A return that answers everything is the reason that a policy lacks limits.
func TestAReturnBeforeLimitsIsNamed(t *testing.T) {
	const server, location = ": nginx answers all requests of this server before it counts them", ": nginx answers all requests of this location before it counts them"
	for _, c := range []struct {
		text, want string
		note       bool // not only the reason of a policy without limits
	}{
		{"server { limit_req zone=a;\nreturn 301 https://x.com; }", "nginx.conf:4: return 301 https://x.com" + server, true},
		{"server { location / { limit_conn c 1; }\nreturn 301 https://x.com; }", "nginx.conf:4: return 301 https://x.com" + server, true},
		{"limit_req zone=a; server {\nreturn 301 https://x.com; }", "nginx.conf:4: return 301 https://x.com" + server, false},
		{"server { location /a { limit_req zone=a;\nreturn 200; } }", "nginx.conf:4: return 200" + location, true},
		{"server { location ~ x { limit_req zone=a;\nreturn 200; } }", "nginx.conf:4: return 200" + location, true},
		{"server { location /a { location /a/b { limit_req zone=a; }\nreturn 200; } }", "", false},
		{"server { return 301 https://x.com; }", "", false},
		{"server { limit_req zone=a; if ($x) { return 403; } }", "", false},
	} {
		result, err := nginx.Import(write(t, "nginx.conf", zones+c.text))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := fmt.Sprint(result.Unreached); !strings.Contains(got, c.want) || c.want == "" && len(result.Unreached) > 0 {
			t.Errorf("%s: unreached is %s, want %q", c.text, got, c.want)
		}
		if notes := fmt.Sprint(result.Notes); strings.Contains(notes, "nginx answers all requests") != c.note || len(result.Lost()) > 0 {
			t.Errorf("%s: the notes are %s, want one of the return: %t", c.text, notes, c.note)
		}
	}
}

func TestThatRequestsWithAnEmptyKeyAreLimitedIsNoted(t *testing.T) {
	const empty = "nginx does not limit it; "
	for key, want := range map[string]string{
		"$http_x_api_key":                    "nginx.conf:1: a request for which the key $http_x_api_key is empty: " + empty + "ip+header:X-Api-Key counts it by its address",
		"$cookie_id":                         empty + "ip+cookie:id",
		"$arg_t$http_x":                      empty + "ip+query:t+header:X",
		"$http_x_api_key$host":               "",
		"$http_x_api_key$binary_remote_addr": "",
		"$binary_remote_addr":                "",
		"$http_x-all":                        "",
		"all":                                "",
	} {
		result, err := nginx.Import(write(t, "nginx.conf", "limit_req_zone "+key+" zone=k:1m rate=1r/s; limit_req zone=k;"))
		if err != nil {
			t.Errorf("%s: %v", key, err)
		} else if notes := fmt.Sprint(result.Notes); !strings.Contains(notes, want) || (want == "") == strings.Contains(notes, empty) {
			t.Errorf("%s: the notes are %s, want %q", key, notes, want)
		}
	}
}

func TestWhatIsSaidOfAPlaceIsTrue(t *testing.T) {
	const u = "limit_req_zone $binary_remote_addr$uri zone=u:1m rate=1r/s; "
	for _, c := range []struct{ text, want, not string }{
		{"server { limit_req zone=a;\nlocation /uri { limit_req zone=u; } }", "nginx.conf:4: /uri*: its limit_req could not be imported, so its requests are limited as others with their path, by limit_req zone=a (", "nginx does not limit"},
		{"server {\nlocation /uri { limit_req zone=u; } }", "nginx.conf:4: /uri*: its limits in nginx could not be imported, and nothing around it is limited, so it is unlimited", "limited as others"},
		{"server { limit_req zone=a; }\nserver { server_name x.com; limit_req zone=u; }", "nginx.conf:4: x.com/*: its limits in nginx could not be imported, and nothing of this host around it is limited, so it is unlimited where no route", "limited as others"},
		{"server {\nlocation /uri { limit_req zone=u; limit_conn c 5; } }", "nginx.conf:4: /uri*: its limit_req could not be imported, and nothing around it has one that could, so its rate is unlimited", "limited as others"},
		{"limit_req zone=a; server { limit_req zone=m; limit_req_dry_run on;\nlocation /uri { limit_req zone=u; limit_req_dry_run off; } }",
			"nginx.conf:4: /uri*: its limits in nginx could not be imported, and nginx only tries out the limits around it (limit_req_dry_run), so it is unlimited", "requests are limited as others"},
		{"server { limit_req zone=m; limit_req_dry_run on;\nlocation /uri { limit_req zone=u; limit_req_dry_run off; limit_conn c 5; } }",
			"nginx.conf:4: /uri*: its limit_req could not be imported, and nginx only tries out those around it (limit_req_dry_run), so its rate is unlimited", "nothing around it"},
		{"server {\nlocation /uri { limit_req zone=a; limit_conn c 0; } }", "nginx.conf:4: /uri*: its limit_conn could not be imported, and nothing around it has one that could, so its requests under way are unlimited", "limited as others"},
		{"server { limit_req zone=a; }\nserver { listen 81; limit_req zone=u; }", "nginx.conf:4: its limits in nginx could not be imported; /* of hosts that no server names is limited", "nginx does not limit"},
		{"server { limit_req zone=a;\nlocation ~ x { limit_req zone=u; } }", "nginx.conf:4: location ~ x: a route is a path or a prefix, so its requests are limited as others with their path: its limits are left out", "nginx does not limit"},
		{"server { limit_req zone=u;\nlocation = /p { limit_req zone=a; } }", "nginx.conf:4: /p also covers what begins with /p/ or /p., whose limits in nginx could not be imported", "nginx does not limit"},
		{"server { limit_req zone=m;\nlocation = /h { return 200; } }", "nginx.conf:4: /h also covers /h/, /h;x and what begins with /h., which have other limits in nginx", ""},
		{"server { limit_req zone=m; location = /h {} }", "", "also covers"},
		{"server { limit_req zone=m;\nlocation /api/ { limit_req zone=a; } }", "nginx.conf:4: /api/* also covers /api, which has the limits of another location in nginx", ""},
		{"server { limit_req zone=m;\nlocation /api/ { limit_req zone=a; proxy_pass http://x; } }", "nginx.conf:4: /api/* also covers /api, which nginx redirects to /api/ without a limit", ""},
		{"server { limit_req zone=m; location /api/ { limit_req zone=a; } location = /api { return 301 /api/; } }", "", "also covers /api,"},
		{"server { limit_req zone=m; location /api/ { limit_req zone=a; } location /api { limit_req zone=a; } }", "", "also covers /api,"},
		{"server { limit_req zone=m; location /api/ { root /x; } }", "", "also covers /api,"},
		{"server { server_name x.com; limit_req zone=a; }\nserver { server_name \"\"; limit_req zone=m; }", "nginx.conf:4: this server has no name, and is not the default server: it gets only requests without a Host", "it gets no requests"},
		{"server { server_name x.com; limit_req zone=a; }\nserver { server_name _; limit_req zone=m; }", "it gets no requests", "without a Host"},
	} {
		result, err := nginx.Import(write(t, "nginx.conf", u+zones+c.text))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		} else if notes := fmt.Sprint(result.Notes); !strings.Contains(notes, c.want) || c.not != "" && strings.Contains(notes, c.not) {
			t.Errorf("%s: the notes are %s, want %q and not %q", c.text, notes, c.want, c.not)
		}
	}
}

func TestThatIPv6IsCountedByNetworkIsNotedForEachZone(t *testing.T) {
	for text, want := range map[string]int{
		zones + "limit_req zone=a; limit_req zone=m; limit_conn c 5;":                                                                                                    2,
		"map $o $k { 0 $binary_remote_addr; }\nlimit_req_zone $k zone=k:1m rate=1r/s; limit_req zone=k;":                                                                 1,
		"limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\nlimit_req_zone $remote_addr$host zone=b:1m rate=1r/s;\nlimit_conn_zone $binary_remote_addr zone=c:1m;": 3,
		"limit_req_zone $http_x_key zone=k:1m rate=1r/s; limit_req zone=k;":                                                                                              0,
		"limit_req_zone $server_name zone=k:1m rate=1r/s; limit_conn_zone all zone=c:1m; limit_conn c 2;":                                                                0,
	} {
		result, err := nginx.Import(write(t, "nginx.conf", text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if n := strings.Count(fmt.Sprint(result.Notes), "Weir counts those of one /64 together"); n != want {
			t.Errorf("%s: noted %d times, want %d: %v", text, n, want, result.Notes)
		}
	}
}

// Each limiter more is a budget more: nginx has one count for a zone. It delays nothing without a
// burst, and a policy delays nothing at all. A window can have room for several bursts.
func TestPlacesWithTheSameLimitsOfAZoneAreOneLimiter(t *testing.T) {
	for a, b := range map[string]string{
		"limit_req zone=a nodelay;":            "limit_req zone=a;",
		"limit_req zone=a delay=5;":            "limit_req zone=a;",
		"limit_req zone=a burst=20 nodelay;":   "limit_req burst=20 zone=a;",
		"limit_req zone=a burst=5;":            "limit_req zone=a burst=9;",
		"limit_req zone=a; limit_req zone=m;":  "limit_req zone=m; limit_req zone=a;",
		"limit_req zone=a; limit_req zone=no;": "limit_req zone=a;",
	} {
		result, err := nginx.Import(write(t, "nginx.conf", zones+"server { location /a { "+a+" }\nlocation /b { "+b+" } }"))
		if err != nil {
			t.Errorf("%s: %v", a, err)
			continue
		}
		notes := fmt.Sprint(result.Notes)
		if len(result.Policy.Limiters) != 1 || fmt.Sprint(result.Policy.Limiters[0].Routes) != "[/a* /b*]" || strings.Contains(notes, "one count") {
			t.Errorf("%s and %s:\n%s\nwith the notes %s, want one limiter", a, b, shape(result.Policy), notes)
		}
		for i, text := range []string{a, b} {
			delays := strings.Contains(text, "burst") && !strings.Contains(text, "nodelay")
			if strings.Contains(notes, fmt.Sprintf("nginx.conf:%d: limit_req zone=a: nginx delays", i+3)) != delays {
				t.Errorf("%s and %s: the notes are %s, want a delay in the second line: %t", a, b, notes, delays)
			}
		}
	}
}

func TestAZoneOfSeveralLimitersIsNamedOnce(t *testing.T) {
	for text, want := range map[string]string{
		"server { location /a {\nlimit_req zone=a; } location /b {\nlimit_req zone=a burst=20; } location /c {\nlimit_req zone=a burst=99; } location /d { limit_req zone=a; } }": "nginx.conf:4: zone a has one count in nginx, and one in each of the limiters a (nginx.conf:4), a-2 (nginx.conf:5) and a-3 (nginx.conf:6)",
		"limit_req zone=a; server { server_name x.com; }\nserver { server_name y.com; limit_conn c 1;\nlocation /b {\nlimit_conn c 2; } }":                                        "nginx.conf:4: zone c has one count in nginx, and one in each of the limiters a-2 (nginx.conf:4) and a-3 (nginx.conf:6)",
		"limit_req zone=a;\nserver { server_name x.com; }\nserver { server_name y.com;\nlimit_conn c 1; }":                                                                        "nginx.conf:4: zone a has one count in nginx, and one in each of the limiters a (nginx.conf:4) and a-2 (nginx.conf:5)",
		"server { limit_req zone=a; location /b { limit_req zone=m; } }":                                                                                                          "",
	} {
		result, err := nginx.Import(write(t, "nginx.conf", zones+text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		zone, _, _ := strings.Cut(want, " has")
		_, zone, _ = strings.Cut(zone, ": ")
		notes := strings.ReplaceAll(fmt.Sprint(result.Notes), filepath.Dir(result.Notes[0].File)+"/", "")
		if n := strings.Count(notes, zone+" has one count"); !strings.Contains(notes, want) || want != "" && n != 1 || want == "" && n > 0 {
			t.Errorf("%s: the notes are %s, want %q once", text, notes, want)
		}
	}
}

// One limiter can have places whose refusals nginx answers with different statuses.
func TestEachOtherStatusOfARefusalIsNamed(t *testing.T) {
	const plain = "nginx answers a refused request 503; Weir answers 429"
	for text, want := range map[string][]string{
		"server { location /a { limit_req zone=a; limit_req_status 429; } location /b { limit_req zone=a;\nlimit_req_status 444; } }":                   {"4: limit_req_status 444: Weir answers 429"},
		"server { location /a { limit_req zone=a; limit_req_status 429; } location /b {\nlimit_req zone=a; } }":                                         {"4: " + plain},
		"server { location /a {\nlimit_req zone=a; } location /b {\nlimit_req zone=a; } }":                                                              {"4: " + plain, "5: " + plain},
		"server { limit_req zone=a; limit_req_status 429; location /b {\nlimit_req_status 444; } }":                                                     {"4: limit_req_status 444"},
		"server { limit_req zone=a; limit_conn c 1; limit_req_status 429; limit_conn_status 429; location /b {\nlimit_conn_status 403; } }":             {"4: limit_conn_status 403"},
		"server { limit_req zone=a; limit_conn c 1; limit_req_status 429;\nlimit_conn_status 403; }":                                                    {"4: limit_conn_status 403"},
		"server { limit_req zone=a; limit_req_status 429; location /a { limit_req zone=m; }\nlocation /A { limit_req zone=m; limit_req_status 598; } }": {"4: limit_req_status 598"},
		"server { limit_req zone=a; limit_req_status 429; }\nserver { listen 81; limit_req zone=a; limit_req_status 598; }":                             {"4: limit_req_status 598"},
		"server { limit_req zone=a; limit_req_status 429; location ~ x {\nlimit_req_status 500; } }":                                                    {"4: limit_req_status 500"},
		"server { limit_req zone=a; limit_req_status 429; location ~ x { limit_req_status 429; } location /b { limit_req zone=m; } location = /c { } }": nil,
		"limit_req_status 503; server { location /b { limit_req zone=m; limit_req_status 429; } location /c { return 200; } location /d { root /x; } }": nil,
	} {
		result, err := nginx.Import(write(t, "nginx.conf", zones+text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, n := range result.Notes {
			if strings.Contains(n.Text, "Weir answers 429") {
				got = append(got, fmt.Sprintf("%d: %s", n.Line, n.Text))
			}
		}
		same := slices.EqualFunc(got, want, strings.HasPrefix)
		if !same {
			t.Errorf("%s: the notes are %q, want %q", text, got, want)
		}
	}
}

func TestLuaCodeIsNotRead(t *testing.T) {
	for _, code := range []string{
		`local x = "}"`, `local x = '{'`, `local x = "\"}"`, `-- don't }`, `--[[ } ]]`, `--[==[ } ]] } ]==]`, `local x = [[ }" ]]`, `local t = {a = {1}}`,
		`local x = t[1]; limit_req zone=m;`, `local x = [=[ ' ]=]`, `x = "a;" # t`,
	} {
		for _, directive := range []string{"content_by_lua_block {", "content_by_lua_block{", "set_by_lua_block $x {", "set $a ${b}; # it's {\nset $c '}'; log_by_lua_block {"} {
			text := zones + "server { location / { " + directive + "\n" + code + "\n} }\nlimit_req zone=a burst=x; limit_conn c 1; }"
			result, err := nginx.Import(write(t, "nginx.conf", text))
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			line := fmt.Sprintf("nginx.conf:%d: limit_req: burst", 1+strings.Count(text[:strings.Index(text, "burst=x")], "\n"))
			if got, notes := shape(result.Policy), fmt.Sprint(result.Notes); got != "[/*] [] in flight 1 by ip" || !strings.Contains(notes, line) {
				t.Errorf("%s: %s with the notes %s, want %q", text, got, notes, line)
			}
		}
	}
	_, err := nginx.Import(write(t, "nginx.conf", zones+"server { content_by_lua_block { x = \"} } }"))
	if want := `nginx.conf:3: the Lua code of content_by_lua_block has no end`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func FuzzImport(f *testing.F) {
	f.Add(zones + "limit_req zone=a burst=9; server { server_name x; location / { limit_conn c 1; } }")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "include") {
			return // of files of this machine
		}
		result, err := nginx.Import(write(t, "nginx.conf", text))
		if err != nil || len(result.Policy.Limiters) == 0 {
			return
		}
		if source, err := result.Source(policyfile.Reader{}, "nginx.conf"); err != nil {
			t.Errorf("%v\n%s", err, source)
		}
	})
}
