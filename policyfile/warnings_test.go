package policyfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

func TestWarningsSayWhatIsValidButSurprising(t *testing.T) {
	tests := []struct {
		name   string
		source string
		want   []string // the beginning of each warning
	}{
		{"D9: a hole under a prefix that a route uses",
			"limiters:\n" +
				"- {name: leads, routes: [POST /api/leads], windows: [30 per minute by ip]}\n" +
				"- {name: events, routes: [/api/events], windows: [30 per minute by ip]}\n" +
				"- {name: deep, routes: [/api/v1/deep/x], windows: [30 per minute by ip]}\n",
			[]string{`2:26: requests under /api/ that match no route are not limited and get no headers, such as: GET /api/leads`}},
		{"D9: a prefix with one method leaves the others open",
			"limiters: [{name: a, routes: [GET /api/*], windows: [30 per minute by ip]}]",
			[]string{"1:31: requests under /api/ that match no route are not limited and get no headers, such as: POST /api/"}},
		{"D9: no hole if a limiter covers the rest, in any letter case",
			"limiters:\n" +
				"- {name: leads, routes: [POST /api/leads], windows: [30 per minute by ip]}\n" +
				"- {name: rest, routes: [/API/*], windows: [30 per minute by ip]}\n",
			nil},
		{"D9: a route that ends in a parameter leaves no hole beside it",
			"limiters: [{name: a, routes: ['/t/{tenant}'], windows: [30 per minute by ip]}]", nil},
		{"D9: a limiter with parameters covers the rest, whatever their names",
			"limiters:\n" +
				"- {name: items, routes: ['GET /t/{tenant}/items', 'GET /t/acme/users/{user}'], windows: [30 per minute by ip]}\n" +
				"- {name: rest, routes: ['/t/{any}/*'], windows: [30 per minute by ip]}\n",
			nil},
		{"D9: a hole below a parameter",
			"limiters:\n" +
				"- {name: items, routes: ['GET /t/{tenant}/items', 'GET /t/{other}/users'], windows: [30 per minute by ip]}\n" +
				"- {name: one, routes: ['/t/acme/*'], windows: [30 per minute by ip]}\n",
			[]string{"2:26: requests under /t/{tenant}/ that match no route are not limited and get no headers, such as: POST /t/{tenant}/items"}},
		{"D33: no hole if a limiter of the same host covers the rest",
			"limiters:\n" +
				"- {name: leads, routes: [POST api.example.com/api/leads, 'POST *.example.net/api/leads'], windows: [30 per minute by ip]}\n" +
				"- {name: rest, routes: [api.example.com/*, '*.example.net/*'], windows: [30 per minute by ip]}\n",
			nil},
		{"D33: a limiter of another host leaves the hole",
			"limiters:\n" +
				"- {name: leads, routes: [POST api.example.com/api/leads], windows: [30 per minute by ip]}\n" +
				"- {name: rest, routes: [shop.example.com/*], windows: [30 per minute by ip]}\n",
			[]string{"2:26: requests under api.example.com/api/ that match no route are not limited and get no headers, such as: GET api.example.com/api/leads"}},
		{"D17: the caller chooses the path",
			"limiters: [{name: a, chosen: 'yes', routes: ['/t/{tenant}/*'], windows: ['9 per minute by path:tenant']}]",
			[]string{`1:91: "9 per minute by path:tenant" is divided by path:tenant, and no other window bounds the caller`}},
		{"D33: a hole under a prefix of one host, which another host's routes do not cover",
			"limiters:\n" +
				"- {name: chat, routes: [POST api.example.com/v1/chat], windows: [30 per minute by ip]}\n" +
				"- {name: shop, routes: [shop.example.com/v1/*], windows: [30 per minute by ip]}\n",
			[]string{`2:25: requests under api.example.com/v1/ that match no route are not limited and get no headers, such as: GET api.example.com/v1/chat`}},
		{"D33: no hole if a route of the host covers the rest, of a star above it, or of all hosts",
			"limiters:\n" +
				"- {name: a, routes: [POST api.example.com/v1/chat, POST api.example.org/v1/chat, POST api.example.net/v1/chat], windows: [30 per minute by ip]}\n" +
				"- {name: b, routes: [api.example.com/v1/*, '*.example.org/v1/*', /v1/*], windows: [30 per minute by ip]}\n",
			nil},
		{"D33: a catch-all of one host leaves a hole in all others",
			"limiters:\n" +
				"- {name: a, routes: [POST /v1/chat, '*.example.com/v1/x', '*.api.example.com/v1/x'], windows: [30 per minute by ip]}\n" +
				"- {name: b, routes: [api.example.com/v1/*, '*.example.com/v1/*'], windows: [30 per minute by ip]}\n",
			[]string{`2:22: requests under /v1/ that match no route are not limited and get no headers, such as: GET /v1/chat`}},
		{"D33: all routes name one host, so host divides nothing",
			"limiters: [{name: a, routes: [GET api.example.com/*, POST API.example.com/*], windows: [30 per minute by ip+host]}]",
			[]string{`1:109: "30 per minute by ip+host" counts by host, and all routes of limiter "a" are for api.example.com: it divides nothing`}},
		{"D33: two hosts divide it",
			"limiters: [{name: a, routes: [api.example.com/*, shop.example.com/*], windows: [30 per minute by ip+host]}]",
			nil},
		{"D33: a caller can make up hosts if a route names none, or a star",
			"limiters: [{name: a, routes: [api.example.com/*, /*], windows: [30 per minute by ip+host]}, {name: b, routes: ['*.example.org/*'], windows: [30 per minute by ip+host]}, {name: c, routes: ['*.example.net/*'], windows: [30 per minute by ip+host, 99 per hour by ip]}]",
			[]string{`1:85: "30 per minute by ip+host" has a budget for each host of a caller`, `1:162: "30 per minute by ip+host" has a budget for each host`}},
		{"D33: usage on one host leaves the others to the backend",
			"limiters: [{name: a, routes: [usage.example.com/*], windows: [100 per hour by ip], answers: usage}]", nil},
		{"the root is not reported as a hole",
			"limiters: [{name: a, routes: [POST /login], windows: [30 per minute by ip]}]", nil},
		{"a cluster cannot charge windows together that begin with different sources",
			"limiters:\n- name: a\n  routes: [/*]\n  windows:\n  - 30 per minute by token or ip\n  - 300 per hour by ip\n",
			[]string{`6:21: "30 per minute by token or ip" and "300 per hour by ip" do not begin with the same key source`}},
		{"a cluster cannot charge everyone's budget together with a caller's own",
			"limiters: [{name: a, routes: [/*], windows: [600 per minute by everyone, 60 per minute by session or ip]}]",
			[]string{`1:91: "600 per minute by everyone" and "60 per minute by session or ip" do not begin with the same key source`}},
		{"D27: counting by a credential alone lets callers without it in",
			"limiters: [{name: a, routes: [/*], windows: [30 per minute by token]}]",
			[]string{`1:63: "30 per minute by token" lets in callers without a token, and counts them by address`}},
		{"D27: no surprise if the credential is required",
			"limiters: [{name: a, routes: [/*], windows: [30 per minute by token], requires: token}]", nil},
		{"D27: a claim is read from a session, which can be required",
			"limiters: [{name: a, routes: [/*], windows: ['30 per minute by claim:org.id']}]",
			[]string{`1:64: "30 per minute by claim:org.id" lets in callers without a session, and counts them by address`}},
		{"D27: no surprise if the session is required",
			"limiters: [{name: a, routes: [/*], windows: ['30 per minute by claim:org.id'], requires: session}]", nil},
		{"D27: nor if the key says what is counted otherwise",
			"limiters: [{name: a, routes: [/*], windows: [30 per minute by token or ip]}]", nil},
		{"D17: the caller chooses its agent",
			"limiters: [{name: a, routes: [/*], windows: [30 per minute by agent], chosen: yes}]",
			[]string{`1:63: "30 per minute by agent" is divided by agent, and no other window bounds the caller`}},
		{"D17: an alternative does not help, since the caller chooses whether it has an agent",
			"limiters: [{name: a, routes: [/*], windows: [30 per minute by agent or ip], chosen: yes}]",
			[]string{`1:63: "30 per minute by agent or ip" is divided by agent, and no other window bounds the caller`}},
		{"D17: the caller chooses the value of a field",
			"limiters: [{name: a, routes: [/*], windows: ['100 per minute by header:x-api-key or ip'], chosen: yes}]",
			[]string{`1:46: "100 per minute by header:X-Api-Key or ip" is divided by header:X-Api-Key, and no other window bounds the caller`}},
		{"D17: another window bounds what a caller gains by choosing",
			"limiters: [{name: a, routes: [/*], windows: ['100 per minute by header:X-Api-Key or ip', '600 per minute by ip'], chosen: yes}]",
			[]string{`1:109: "100 per minute by header:X-Api-Key or ip" and "600 per minute by ip" do not begin with the same key source`}},
		{"D17: a window that the caller divides by choosing bounds nothing",
			"limiters: [{name: a, routes: [/*], windows: [100 per hour by agent, 10 per minute by agent+ip], chosen: yes}]",
			[]string{`1:62: "100 per hour by agent" is divided by agent, and no other window bounds the caller`, `1:86: "10 per minute by agent+ip" has a budget for each agent`}},
		{"D17: a caller can make up agents without end",
			"limiters: [{name: a, routes: [/*], windows: [30 per minute by ip+agent]}]",
			[]string{`1:66: "30 per minute by ip+agent" has a budget for each agent of a caller`}},
		{"D17: an agent that subdivides an address is no surprise if another window bounds the address",
			"limiters: [{name: a, routes: [/*], windows: [30 per minute by ip+agent, 99 per hour by ip]}]", nil},
		{"D32: a new agent ends a penalty, though a later window bounds the address",
			"limiters: [{name: a, routes: [/*], windows: [2 per 2 seconds by ip+agent, 100 per minute by ip], penalty: {after: 2 refusals per minute, refuse_for: 10 minutes}}]",
			[]string{`1:107: the penalty counts by ip+agent, and the caller chooses its agent: a new value ends a penalty`}},
		{"a claim with a dot that leads nowhere",
			"limiters: [{name: a, routes: [/*], windows: ['9 per minute by claim:.+claim:a or ip', '9 per hour by claim:.+claim:org..id or claim:https://a.example/x or ip'], plans: {by: 'claim:plan.', gold: 90 per minute}}]",
			[]string{`1:63: claim:. has an empty name beside a dot`, `1:102: claim:. has`, `1:110: claim:org..id has an empty name beside a dot`, `1:175: claim:plan. has an empty name beside a dot`}},
		{"a percentage that no window can reach, and a clock for no window",
			"limiters: [{name: a, routes: [/*], in_flight: 9 by ip, notify: [75], align: clock}, {name: b, routes: [/b], windows: [9 per calendar day by ip], align: clock}]",
			[]string{`1:64: notify has no effect: limiter "a" has no window`, `1:77: align has no effect: limiter "a"`, `1:153: align has no effect: limiter "b" has no window of a fixed length`}},
		{"D32: a penalty by a value that the caller chooses is a weapon against others",
			"limiters: [{name: a, chosen: 'yes', routes: [/*], windows: ['9 per minute by header:X-User', 99 per hour by ip], penalty: {after: 9 refusals per hour, refuse_for: day}}]",
			[]string{`1:109: "9 per minute by header:X-User" and`, `1:123: the penalty counts by header:X-User, which the caller chooses`}},
		{"D32: a penalty by an address is none",
			"limiters: [{name: a, routes: [/*], windows: ['9 per minute by ip', '9 per minute by ip+header:X-User'], penalty: {after: 9 refusals per hour, refuse_for: day}}]", nil},
		{"D32: a value that divides an address ends a penalty, and nothing else bounds the address",
			"limiters: [{name: a, routes: [/*], windows: ['9 per minute by ip+header:X-User'], penalty: {after: 9 refusals per hour, refuse_for: day}}]",
			[]string{`1:66: "9 per minute by ip+header:X-User" has a budget for each header:X-User of a caller`, `1:92: the penalty counts by ip+header:X-User, and the caller chooses its header:X-User: a new value ends a penalty`}},
		{"D32: an address that is bounded may be divided",
			"limiters: [{name: a, routes: [/*], windows: ['9 per minute by ip+cookie:id', 99 per hour by ip]}]", nil},
		{"a window that another always fills up before",
			"limiters: [{name: a, routes: [/*], windows: [100 per hour by ip, 199 per minute by ip]}]",
			[]string{`1:66: "199 per minute by ip" never refuses a request: "100 per hour by ip" fills up first`}},
		{"both of two whole hours that end by the clock fall into one minute",
			"limiters: [{name: a, routes: [/*], align: clock, windows: [100 per hour by ip, 199 per minute by ip]}]",
			[]string{`1:80: "199 per minute by ip" refuses requests only around a reset of "100 per hour by ip"`}},
		{"so do two whole months",
			"limiters: [{name: a, routes: [/*], windows: [100 per calendar month in Europe/Berlin by ip, 200 per minute by ip]}]",
			[]string{`1:93: "200 per minute by ip" never refuses a request: "100 per calendar month in Europe/Berlin by ip" fills up first`}},
		{"a plan without the long window's limit needs the short one",
			"limiters: [{name: a, routes: [/*], windows: [100 per calendar month by ip, 200 per minute by ip], plans: {by: token, gold: 9000 per calendar month}}]", nil},
		{"so does an override",
			"limiters: [{name: a, routes: [/*], windows: [100 per hour by ip, 199 per minute by ip], overrides: [9000 per hour for 192.0.2.7]}]", nil},
		{"D1: up to twice the hour can pass around its reset, and the minute then still refuses",
			"limiters: [{name: a, routes: [/*], windows: [100 per hour by ip, 198 per minute by ip]}]",
			[]string{`1:66: "198 per minute by ip" refuses requests only around a reset of "100 per hour by ip", which fills up first`}},
		{"a limiter without routes",
			"limiters: [{name: a, windows: [100 per hour by ip]}]",
			[]string{`1:12: limiter "a" has no routes`}},
		{"a route that can only be answered 405",
			"limiters: [{name: a, routes: [GET /usage, POST /usage, /*], windows: [100 per hour by ip], answers: usage}]",
			[]string{`1:43: "POST /usage": limiter "a" answers usage, and only to GET and HEAD`, `1:56: "/*": limiter "a" is the only one, and answers usage to every request`}},
		{"a catch-all that answers usage beside another limiter",
			"limiters: [{name: a, routes: [/*], windows: [100 per hour by ip], answers: usage}, {name: b, routes: [/b*], windows: [100 per hour by ip]}]", nil},
		{"the path of usage alone",
			"limiters: [{name: a, routes: [GET /usage], windows: [100 per hour by ip], answers: usage}]", nil},
		{"a misspelled method",
			"limiters: [{name: a, routes: [PSOT /a, /*], windows: [100 per hour by ip]}]",
			[]string{`1:31: "PSOT" is not a standard HTTP method`}},
		{"a misspelled method of WebDAV",
			"limiters: [{name: a, routes: [PROPFND /a, PROPFIND /b, PURGE /c, /*], windows: [100 per hour by ip]}]",
			[]string{`1:31: "PROPFND" is not a standard HTTP method`}},
		{"methods that the server never forwards",
			"limiters: [{name: a, routes: [TRACE /a, CONNECT /b, /*], windows: [100 per hour by ip]}]",
			[]string{`1:31: "weir serve" answers TRACE with 405`, `1:41: "weir serve" answers CONNECT with 405`}},
		{"parameters from other routers",
			"limiters: [{name: a, routes: ['/users/:id/posts', '/posts/<post_id>', /*], windows: [100 per hour by ip]}]",
			[]string{`1:39: ":id" is matched literally`, `1:59: "<post_id>" is matched literally`}},
		{"an exempt network of all addresses",
			"limiters: [{name: a, routes: [/*], windows: [100 per hour by ip], exempt: [0.0.0.0/0, 10.0.0.0/8]}]",
			[]string{`1:76: 0.0.0.0/0 is every IPv4 address`}},
		{"an IPv6 host chooses its address within a /64",
			"limiters: [{name: a, routes: [/*], windows: [100 per hour by ip], exempt: ['2001:db8::1', '2001:db8:1::/64', '::1'], overrides: ['5 per hour for 2001:db8:2::/96', 5 per hour for 192.0.2.1]}]",
			[]string{`1:77: 2001:db8::1 is narrower than a /64: any host in 2001:db8::/64 can take this address`, `1:131: 2001:db8:2::/96 is narrower than a /64`}},
		{"D28: charged 1 until the answer tells",
			"limiters: [{name: a, routes: [/*], windows: [100 per hour by ip], cost: {from: header:X-Cost}}, {name: b, routes: [/b*], windows: [100 per hour by ip], cost: {reserve: 1, from: json:usage.total_tokens}}]",
			[]string{"1:80: a request is charged 1 until its response tells", "1:178: a request is charged 1 until"}},
		{"D28: one unit may be what is meant",
			"limiters: [{name: a, routes: [/*], windows: [100 per hour by ip], cost: {reserve: 1, from: header:X-Cost}}]", nil},
		{"D28: a second request has no room beside the reservation of the first",
			"limiters: [{name: a, routes: [/*], windows: [1000 per hour by ip, 60 per minute by ip], cost: {reserve: 60, from: header:X-Cost}}]",
			[]string{`1:105: "60 per minute by ip" has room for one reservation of 60`}},
		{"D28: two have",
			"limiters: [{name: a, routes: [/*], windows: [60 per hour by ip, 9 requests per minute by ip], cost: {reserve: 30, from: header:X-Cost}}]", nil},
		{"D28: a request may ask for less",
			"limiters: [{name: a, routes: [/*], windows: [60 per hour by ip], cost: {reserve: {from: header:X-Max, at_most: 60}, from: header:X-Cost}}]", nil},
		{"D28: a GET has no body to read",
			"limiters: [{name: a, routes: [GET /*, HEAD /b], windows: [60 per hour by ip], cost: {reserve: {from: json:max, at_most: 6}}}, {name: b, routes: [GET /c, /*], windows: [60 per hour by ip], cost: {reserve: {from: json:max, at_most: 6}}}]",
			[]string{"1:102: requests of these routes have no body that json:max could be read from: each reserves 6"}},
		{"D28: a path of JSON has names alone",
			"limiters: [{name: a, routes: [/*], windows: [60 per hour by ip], cost: {reserve: 5, from: 'json:choices[0].usage'}}]",
			[]string{"1:97: json:choices[0].usage names a member that is spelled so"}},
		{"a cost that no window counts",
			"limiters: [{name: a, routes: [/*], windows: [60 requests per hour by ip], cost: 5}, {name: b, routes: [/b], in_flight: 5 by ip, cost: {from: header:X-Cost}}]",
			[]string{`1:81: cost has no effect: no window of limiter "a" counts units`, `1:135: cost has no effect: no window of limiter "b"`}},
		{"D28: outcomes that contradict themselves",
			"limiters: [{name: a, routes: [/*], windows: [60 per hour by ip], count: {not: [2xx, 3xx, 4xx, 5xx]}}, {name: b, routes: [/b], windows: [60 per hour by ip], count: {status: [2xx, 3xx, 4xx, 5xx]}}]",
			[]string{"1:73: count leaves no status", "1:164: count has every status"}},
		{"D28: a refusal is no outcome",
			"limiters: [{name: a, routes: [/*], windows: [60 per hour by ip], count: {status: [429, 401, 4xx]}}, {name: b, routes: [/b], in_flight: 5 by ip, count: {not: [429]}}]",
			[]string{"1:83: 429 is counted only if the backend answers it", "1:83: 429 is one of 4xx", "1:88: 401 is one of 4xx", "1:152: count has no effect"}},
		{"D16: a guess at a credential is an outcome",
			"limiters: [{name: a, routes: [/*], windows: [60 per hour by token], requires: token, count: {not: [4xx]}}, {name: b, routes: [/b], windows: [60 per hour by token], requires: token, count: {not: [400, 5xx]}}]",
			[]string{"1:93: requests without a verified token are answered 401, which is not counted"}},
		{"D16: its status may be another",
			"limiters: [{name: a, routes: [/*], windows: [60 per hour by token], requires: token, count: {not: [401]}}, {name: b, routes: [/b], windows: [60 per hour by token], requires: token, count: {not: [404]}}]\nanswers: {unauthenticated: {status: 404}}",
			[]string{"1:189: requests without a verified token are answered 404, which is not counted"}},
		{"D29: all share the slots",
			"limiters: [{name: a, routes: [/*], in_flight: 5 by everyone}]",
			[]string{"1:47: 5 in flight by everyone: one caller whose requests take long can hold all of them"}},
		{"D29, D17: slots by what the caller chooses",
			"limiters: [{name: a, routes: [/*], in_flight: '5 by header:X-User', chosen: yes}]",
			[]string{`1:53: "5 in flight by header:X-User" is divided by header:X-User, and no other window bounds the caller`}},
		{"D29, D27: slots by a credential alone",
			"limiters: [{name: a, routes: [/*], in_flight: 5 by session}]",
			[]string{`1:52: "5 in flight by session" lets in callers without a session`}},
		{"D29: a cluster cannot charge slots with windows that begin otherwise",
			"limiters: [{name: a, routes: [/*], windows: [60 per hour by ip], in_flight: 5 by session or ip}]",
			[]string{`1:82: "60 per hour by ip" and "5 in flight by session or ip" do not begin with the same key source`}},
		{"a window of requests beside one of units",
			"limiters: [{name: a, routes: [/*], windows: [100 per hour by ip, 199 requests per minute by ip], cost: 9}]", nil},
		{"the answer tells the prompt's tokens too, and nothing is reserved for them",
			"limiters:\n" +
				"- {name: a, routes: [/a], windows: [99999 per day by ip], cost: {reserve: {from: json:max_tokens, at_most: 4000}, from: json:usage.total_tokens}}\n" +
				"- {name: b, routes: [/b], windows: [99999 per day by ip], cost: {reserve: {from: json:config.maxOutputTokens, times: 2, at_most: 4000}, from: json:usageMetadata.totalTokenCount}}\n",
			[]string{`2:75: json:max_tokens bounds the answer alone, and json:usage.total_tokens has the prompt as well`, `3:75: json:config.maxOutputTokens bounds the answer alone`}},
		{"something is reserved for the prompt, or the answer tells its own tokens alone, or the request's are of both",
			"limiters:\n" +
				"- {name: a, routes: [/a], windows: [99999 per day by ip], cost: {reserve: {from: json:max_tokens, plus: 100, at_most: 4000}, from: json:usage.total_tokens}}\n" +
				"- {name: b, routes: [/b], windows: [99999 per day by ip], cost: {reserve: {from: json:max_tokens, at_most: 4000}, from: json:usage.completion_tokens}}\n" +
				"- {name: c, routes: [/c], windows: [99999 per day by ip], cost: {reserve: {from: json:units, at_most: 4000}, from: json:usage.total_tokens}}\n" +
				"- {name: d, routes: [/d], windows: [99999 per day by ip], cost: {reserve: 4000, from: json:usage.total_tokens}}\n",
			nil},
		{"a text in a language that is none",
			"{limiters: [{name: a, routes: [/*], windows: [9 per hour by ip], message: slow}], messages: {slow: {en: Slow., german: Halt., de: Halt., pt-BR: Pare., zh-Hant: X., en-x-old: Hold.}}}",
			[]string{`1:120: "german" is no registered language: no caller gets this text of message "slow"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, err := reader.Parse("w.yaml", []byte(test.source))
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Warnings) != len(test.want) {
				t.Fatalf("warned of %v, want %d", f.Warnings, len(test.want))
			}
			for i, w := range f.Warnings {
				if !strings.HasPrefix(w.String(), "w.yaml:"+test.want[i]) {
					t.Errorf("%v\nwant w.yaml:%s…", w, test.want[i])
				}
				if w.Hint == "" {
					t.Errorf("%v: no hint", w)
				}
			}
		})
	}
}

// A limiter with a window by everyone and a window by caller gets the warning that a cluster cannot
// charge them together, and no other warning.
func TestCostlyEndpointsAreTheContractsWithTheClustersWarningAlone(t *testing.T) {
	f, err := reader.Load("../examples/costly.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0].Message, "do not begin with the same key source") ||
		!strings.Contains(f.Warnings[0].Hint, "on one server it makes no difference") {
		t.Errorf("warnings: %v", f.Warnings)
	}
	own := map[string]bool{"widget-messages": true}
	contract := map[string]string{}
	for _, l := range policyfile.Contract().Limiters {
		contract[l.Name] = fmt.Sprint(l.Routes, l.Windows, l.Cost, l.Message)
	}
	contract["widget-session"] = fmt.Sprint([]string{"/api/v1/widget/events*", "/api/v1/widget/conversations*"}, []string{"300 per minute by session or ip"}, 0, "widget")
	for _, l := range f.Policy.Limiters {
		if got := fmt.Sprint(l.Routes, l.Windows, l.Cost, l.Message); !own[l.Name] && got != contract[l.Name] {
			t.Errorf("%s is %s\nwant the contract's %s", l.Name, got, contract[l.Name])
		}
		delete(contract, l.Name)
	}
	if len(contract) > 0 {
		t.Errorf("the contract's limiters that are missing: %v", contract)
	}
}

func TestTheExamplesHaveNeitherProblemsNorWarnings(t *testing.T) {
	for _, path := range files(t, "../examples/policies", 3) {
		f, err := reader.Load(path)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, w := range f.Warnings {
			t.Errorf("%v (%s)", w, w.Hint)
		}
	}
}

// This checks the claims of the warnings about windows that refuse no request, or only around a
// reset. 99 requests at the end of an hour, whose first request was long before, and 100 at the
// beginning of the next one fall into one minute. A limit of 198 refuses one of them, 199 none.
func TestNearlyTwiceTheHourFallsIntoOneMinute(t *testing.T) {
	for limit, want := range map[int64]int64{198: 198, 199: 199, 1000: 199} {
		var hour, minute weir.Used
		passed := map[int64]int64{}
		for _, at := range []int64{0, 3599, 3600} {
			for range map[int64]int{0: 1, 3599: 200, 3600: 200}[at] {
				h, m := hour.At(at, at+3600), minute.At(at, at+60)
				if h.Fits(1, 100) && m.Fits(1, limit) {
					hour, minute = h.Spend(1, at+3600), m.Spend(1, at+60)
					passed[at]++
				}
			}
		}
		if got := passed[3599] + passed[3600]; got != want {
			t.Errorf("under %d a minute, %d passed around the reset, want %d", limit, got, want)
		}
	}
}
