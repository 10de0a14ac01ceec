package verify_test

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
)

// callerDefects are those of whose budget is spent.
func callerDefects() []defect {
	key := func(f func(x *exchange, source, value string) string) func(*api) {
		return func(a *api) { a.breaks.key = f }
	}
	// with adds something to the key of a source.
	and := func(source string, f func(x *exchange) string) func(*api) {
		return key(func(x *exchange, s, value string) string {
			if source == "" || s == source {
				value += f(x)
			}
			return value
		})
	}
	one := func(source string) func(*api) {
		return key(func(_ *exchange, s, value string) string {
			if s == source {
				return "all"
			}
			return value
		})
	}
	connection := func(x *exchange) string { return x.r.RemoteAddr }
	believes := func(field string, read func(string) string) func(*api) {
		return func(a *api) {
			a.breaks.peer = func(r *http.Request) string { return read(r.Header.Get(field)) }
		}
	}
	first := func(s string) string { s, _, _ = strings.Cut(s, ","); return strings.TrimSpace(s) }
	last := func(s string) string { return strings.TrimSpace(s[strings.LastIndex(s, ",")+1:]) }
	return []defect{
		{"all sessions have one budget", one("session"), implies{"separate@widget-session,widget-leads": ""}},
		{"all API tokens have one budget", one("token"), implies{"separate@wp-plugin": ""}},
		{"all agents have one budget", one("agent"), implies{"separate@widget-init": ""}},
		{"every connection has a budget", and("", connection), implies{"shared": "", "admitted": "as many as the connections times the limit are", "remaining": "each connection's counts for itself"}},
		{"every connection of a session has a budget", and("session", connection), implies{"shared@widget-session,widget-leads": "", "admitted@widget-session,widget-leads": "", "remaining@widget-session,widget-leads": ""}},
		{"every endpoint has a budget", and("", func(x *exchange) string { return x.endpoint() }), implies{"shared@widget-session,wp-plugin": ""}},
		{"every method has a budget", and("", func(x *exchange) string { return x.r.Method }), implies{"shared@widget-session": ""}},
		{"every language has a budget", and("", func(x *exchange) string { return x.r.Header.Get("Accept-Language") }), implies{"shared": ""}},
		{"every query has a budget", and("", func(x *exchange) string { return x.r.URL.RawQuery }), implies{"spelling": ""}},
		{"every spelling of a session's token has a budget", and("session", func(x *exchange) string { return x.claimed }), implies{"shared@widget-session,widget-leads": ""}},

		{"every token that does not verify has a budget", and("ip", func(x *exchange) string {
			if x.session == "" && x.token == "" {
				return x.claimed
			}
			return ""
		}), implies{"unverified@widget-session,widget-leads,wp-plugin": ""}},
		{"a session is charged for tokens that do not verify", func(a *api) {
			a.breaks.verify = func(x *exchange) {
				if id, ok := sessionOf(x.claimed, x.now.Unix()); !ok && id != "" {
					x.session, x.forged = id, true
				}
			}
		}, implies{"unverified@widget-session,widget-leads": ""}},
		{"API tokens are known by their id alone", func(a *api) {
			a.breaks.verify = func(x *exchange) {
				if id := strings.Split(x.claimed, "_"); len(id) > 2 {
					x.token = id[1]
				}
			}
		}, implies{"unverified@wp-plugin": ""}},
		{"what does not verify is refused 403", edits(func(x *exchange) {
			if x.status == http.StatusUnauthorized {
				x.status = http.StatusForbidden
			}
		}), implies{"unverified": ""}},
		{"what does not verify is counted nowhere", func(a *api) {
			var n atomic.Int64
			a.breaks.key = func(x *exchange, source, value string) string {
				if x.claimed != "" && x.session == "" && x.token == "" {
					value += strconv.FormatInt(n.Add(1), 10)
				}
				return value
			}
		}, implies{"unverified@widget-session,widget-leads,wp-plugin": ""}},

		{"the leftmost X-Forwarded-For is believed", believes("X-Forwarded-For", first), implies{"forwarded@widget-init": ""}},
		{"the rightmost X-Forwarded-For is believed", believes("X-Forwarded-For", last), implies{"forwarded@widget-init": ""}},
		{"X-Real-IP is believed", believes("X-Real-IP", first), implies{"forwarded@widget-init": ""}},
		{"Forwarded is believed", believes("Forwarded", first), implies{"forwarded@widget-init": ""}},
		{"CF-Connecting-IP is believed", believes("CF-Connecting-IP", first), implies{"forwarded@widget-init": ""}},
		{"True-Client-IP is believed", believes("True-Client-IP", first), implies{"forwarded@widget-init": ""}},
		{"X-Client-IP is believed", believes("X-Client-IP", first), implies{"forwarded@widget-init": ""}},
	}
}

// pathDefects are those of endpoints that go by several names.
func pathDefects() []defect {
	spells := func(f func(raw, canonical string) string) func(*api) {
		return func(a *api) { a.breaks.spelled = f }
	}
	// keeps tells one kind of spelling apart, where the backend does not.
	keeps := func(mark string) func(*api) {
		return spells(func(raw, canonical string) string {
			if strings.Contains(raw[1:], mark) {
				return raw
			}
			return spelled(canonical)
		})
	}
	return []defect{
		{"capital letters escape", spells(func(_, canonical string) string { return canonical }), implies{"spelling": ""}},
		{"a trailing slash escapes", spells(func(raw, canonical string) string {
			if strings.HasSuffix(raw, "/") {
				return "/api/v1/widget/elsewhere"
			}
			return spelled(canonical)
		}), implies{"spelling": ""}},
		{"a double slash escapes", keeps("//"), implies{"spelling@widget-leads": ""}},
		{"an escaped letter escapes", spells(func(raw, canonical string) string {
			if decoded, err := url.PathUnescape(raw); err != nil || decoded != raw {
				return raw
			}
			return spelled(canonical)
		}), implies{"spelling@widget-leads": ""}},
		{"dot segments escape", keeps("/."), implies{"spelling@widget-leads": ""}},
		{"parameters escape", keeps(";"), implies{"spelling@widget-leads": ""}},
		{"an extension escapes", spells(func(raw, canonical string) string {
			if strings.HasSuffix(raw, ".json") {
				return "/api/v1/widget/elsewhere"
			}
			return spelled(canonical)
		}), implies{"spelling": ""}},
		{"preflights spend the endpoint's budget", func(a *api) {
			a.breaks.preflight = func(x *exchange) string {
				method := x.r.Method
				defer func() { x.r.Method = method }()
				x.r.Method = x.r.Header.Get("Access-Control-Request-Method")
				for i := range x.rules {
					for _, route := range x.rules[i].routes {
						if covers(route, x.r.Method, spelled(x.path)) {
							return x.rules[i].name
						}
					}
				}
				return fallback
			}
		}, implies{"preflight-free@widget-typing": ""}},
	}
}
