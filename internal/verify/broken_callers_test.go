package verify_test

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
)

// callerDefects charge the wrong budget.
func callerDefects() []defect {
	key := func(f func(x *exchange, source, value string) string) func(*api) {
		return func(a *api) { a.breaks.key = f }
	}
	// and adds something to a source's key.
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
		{"every connection has a budget", and("", connection), implies{"shared": "", "admitted": "as many as the connections times the limit are", "remaining": "each connection's counts for itself", "reset-constant": "each has a window of its own"}},
		{"every connection of a session has a budget", and("session", connection), implies{"shared@widget-session,widget-leads": "", "admitted@widget-session,widget-leads": "", "remaining@widget-session,widget-leads": "", "reset-constant@widget-session,widget-leads": "each has a window of its own"}},
		{"every endpoint has a budget", and("", func(x *exchange) string { return x.endpoint() }), implies{"shared@widget-session,wp-plugin": ""}},
		{"every method has a budget", and("", func(x *exchange) string { return x.r.Method }), implies{"shared@widget-session": "", "spelling@wp-plugin": "HEAD is a method"}},
		{"every language has a budget", and("", func(x *exchange) string { return x.r.Header.Get("Accept-Language") }), implies{"shared": ""}},
		{"every query has a budget", and("", func(x *exchange) string { return x.r.URL.RawQuery }), implies{"spelling": "", "shared": "agent_id may stand there"}},
		{"every spelling of a session's token has a budget", and("session", func(x *exchange) string { return x.claimed }), implies{"shared@widget-session,widget-leads": ""}},

		{"every token that does not verify has a budget", and("ip", func(x *exchange) string {
			if x.session == "" && x.token == "" {
				return x.claimed
			}
			return ""
		}), implies{"unverified@widget-session,widget-leads,wp-plugin": "", "shared?": "a limiter that knows no credential sees none in any bearer"}},
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
		}, implies{"unverified@widget-session,widget-leads,wp-plugin": "", "shared?": "a limiter that knows no credential sees none in any bearer"}},

		{"the leftmost X-Forwarded-For is believed", believes("X-Forwarded-For", first), implies{"forwarded@widget-init": ""}},
		{"the rightmost X-Forwarded-For is believed", believes("X-Forwarded-For", last), implies{"forwarded@widget-init": ""}},
		{"X-Real-IP is believed", believes("X-Real-IP", first), implies{"forwarded@widget-init": ""}},
		{"Forwarded is believed", believes("Forwarded", first), implies{"forwarded@widget-init": ""}},
		{"CF-Connecting-IP is believed", believes("CF-Connecting-IP", first), implies{"forwarded@widget-init": ""}},
		{"True-Client-IP is believed", believes("True-Client-IP", first), implies{"forwarded@widget-init": ""}},
		{"X-Client-IP is believed", believes("X-Client-IP", first), implies{"forwarded@widget-init": ""}},
		{"Fly-Client-IP is believed", believes("Fly-Client-IP", first), implies{"forwarded@widget-typing": ""}},
		{"X-Envoy-External-Address is believed", believes("X-Envoy-External-Address", first), implies{"forwarded@widget-typing": ""}},
		{"X-Azure-ClientIP is believed", believes("X-Azure-ClientIP", first), implies{"forwarded@widget-typing": ""}},
		{"X-Original-Forwarded-For is believed", believes("X-Original-Forwarded-For", first), implies{"forwarded@widget-typing": ""}},
		{"X-Remote-IP is believed", believes("X-Remote-IP", first), implies{"forwarded@widget-typing": ""}},
		{"X-Remote-Addr is believed", believes("X-Remote-Addr", first), implies{"forwarded@widget-typing": ""}},
		{"X-Forwarded-Host is believed", believes("X-Forwarded-Host", first), implies{"forwarded@widget-typing": ""}},
		{"a second line of X-Forwarded-For is believed", func(a *api) {
			a.breaks.peer = func(r *http.Request) string {
				if lines := r.Header.Values("X-Forwarded-For"); len(lines) > 1 {
					return lines[1]
				}
				return ""
			}
		}, implies{"forwarded@widget-typing": ""}},
	}
}

// pretenceDefects make a budget depend on a field that any client can set.
func pretenceDefects() []defect {
	by := func(f func(x *exchange) string) func(*api) {
		return func(a *api) {
			a.breaks.key = func(x *exchange, _, value string) string { return value + f(x) }
		}
	}
	field := func(name string) func(*api) { return by(func(x *exchange) string { return x.r.Header.Get(name) }) }
	// then lets the backend obey a field after the request was counted.
	then := func(f func(x *exchange)) func(*api) {
		return by(func(x *exchange) string { f(x); return "" })
	}
	typing := func(f func(x *exchange) string) func(*api) {
		return by(func(x *exchange) string {
			if x.rule.name != "widget-typing" {
				return ""
			}
			return f(x)
		})
	}
	return []defect{
		{"every agent has a budget of a limiter by address", typing(func(x *exchange) string { return x.r.Header.Get("X-Agent-Id") }), implies{"shared@widget-typing": ""}},
		{"every agent of a query has a budget of a limiter by address", typing(func(x *exchange) string { return x.r.URL.Query().Get("agent_id") }), implies{"shared@widget-typing": ""}},
		{"every Authorization has a budget of a limiter by address", typing(func(x *exchange) string { return x.claimed }), implies{"shared@widget-typing": ""}},
		{"every API key has a budget", field("X-Api-Key"), implies{"shared@widget-typing": ""}},
		{"every agent of a session has a budget", field("X-Agent-Id"), implies{"shared@widget-leads,widget-typing,wp-plugin": ""}},
		{"every User-Agent has a budget", field("User-Agent"), implies{"shared": ""}},
		{"every cookie has a budget", field("Cookie"), implies{"shared": ""}},
		{"every Referer has a budget", field("Referer"), implies{"shared": ""}},
		{"every Accept has a budget", field("Accept"), implies{"shared": ""}},
		{"every foreign origin has a budget", by(func(x *exchange) string {
			return strings.TrimPrefix(x.r.Header.Get("Origin"), "https://verify.example.com")
		}), implies{"shared": ""}},
		{"HEAD has a budget of its own", by(func(x *exchange) string {
			if x.r.Method == http.MethodHead {
				return "HEAD"
			}
			return ""
		}), implies{"spelling@wp-plugin": ""}},
		{"every method that X-HTTP-Method-Override names has a budget", field("X-HTTP-Method-Override"), implies{"spelling": ""}},
		{"every path that X-Original-URL names has a budget", field("X-Original-URL"), implies{"spelling": ""}},
		{"every path that X-Rewrite-URL names has a budget", field("X-Rewrite-URL"), implies{"spelling": ""}},
		{"the backend believes X-HTTP-Method-Override", then(func(x *exchange) {
			if x.r.Header.Get("X-HTTP-Method-Override") == "POST" {
				x.r.Method = "POST"
			}
		}), implies{"spelling@widget-leads": ""}},
		{"the backend believes X-Original-URL", then(func(x *exchange) { x.path = cmp.Or(x.r.Header.Get("X-Original-URL"), x.path) }), implies{"spelling@widget-leads": ""}},
		{"the backend believes X-Rewrite-URL", then(func(x *exchange) { x.path = cmp.Or(x.r.Header.Get("X-Rewrite-URL"), x.path) }), implies{"spelling@widget-leads": ""}},
	}
}

// pathDefects count the spellings of one endpoint separately.
func pathDefects() []defect {
	spells := func(f func(raw, canonical string) string) func(*api) {
		return func(a *api) { a.breaks.spelled = f }
	}
	// keeps distinguishes one kind of spelling that the backend does not.
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
