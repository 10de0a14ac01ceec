package nginx

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"github.com/weirlimit/weir"
)

// A zone is a limit_req_zone or a limit_conn_zone.
type zone struct {
	name string
	key  weir.Key // nil: a policy cannot count by it
	rate int64    // requests in each per, in lowest terms of whole seconds; 0 for limit_conn_zone
	per  time.Duration
	at   *crossplane.Directive
}

func (r *reader) readZone(d *crossplane.Directive) {
	z := &zone{at: d}
	key := ""
	for _, arg := range d.Args {
		switch name, value, ok := strings.Cut(arg, "="); {
		case ok && name == "zone":
			z.name, _, _ = strings.Cut(value, ":")
		case ok && name == "rate":
			z.rate, z.per = parseRate(value)
		case arg == "sync":
			r.note(d, "sync: instances of Weir share counts by --store redis://…")
		case key == "":
			key = arg
		default:
			r.lost(d, "%s: unknown parameter %q", d.Directive, arg)
		}
	}
	if z.name == "" || d.Directive == "limit_req_zone" && z.rate == 0 {
		r.lost(d, "%s: it has no zone=NAME:SIZE, or no rate=Nr/s or rate=Nr/m", d.Directive)
		return
	}
	z.key = r.key(d, key)
	r.zones[strings.TrimSuffix(d.Directive, "_zone")+" "+z.name] = z
}

// parseRate reads a rate. nginx counts in requests a second, so 60r/m is 1r/s, and 40r/m is 2 every
// 3 seconds.
func parseRate(s string) (n int64, per time.Duration) {
	for suffix, seconds := range map[string]int64{"r/s": 1, "r/m": 60} {
		if digits, ok := strings.CutSuffix(s, suffix); ok {
			if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n > 0 && n <= weir.MaxLimit {
				common := gcd(n, seconds)
				return n / common, time.Duration(seconds/common) * time.Second
			}
		}
	}
	return 0, 0
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

var variable = regexp.MustCompile(`\$\{?([A-Za-z0-9_]+)\}?`)

// key returns the key sources of a zone's key, or nil with a note.
func (r *reader) key(d *crossplane.Directive, text string) weir.Key {
	names := variable.FindAllStringSubmatch(text, -1)
	if len(names) == 0 {
		return weir.Key{{"everyone"}}
	}
	var key weir.Key
	for _, m := range names {
		source := r.source(d, m[1])
		if source == "" {
			r.lost(d, "the key %s: no key source has $%s, so the limits of this zone are left out", text, m[1])
			return nil
		}
		if part := (weir.Part{source}); !slices.ContainsFunc(key, func(p weir.Part) bool { return slices.Equal(p, part) }) {
			key = append(key, part)
		}
	}
	if !slices.ContainsFunc(key, func(p weir.Part) bool { return p[0] == "ip" }) {
		key = append(weir.Key{{"ip"}}, key...)
		r.lost(d, "the key %s is a value that the caller chooses, and nginx has one budget for all requests with it: counted by %s, so that a made-up value is no new budget; each address has a budget of its own, so the total of a value is not limited (chosen: yes on the limiter allows to count by the value alone)", text, key)
		if variable.ReplaceAllString(text, "") == "" && canBeEmpty(key[1:]) {
			r.note(d, "a request for which the key %s is empty: nginx does not limit it; %s counts it by its address. No policy leaves it out", text, key)
		}
	} else {
		r.note(d, "nginx counts each IPv6 address by itself; Weir counts those of one /64 together, because a host chooses its address in that freely (--ipv6-prefix 128 counts each)")
	}
	return key
}

// canBeEmpty reports whether a request can have none of the parts. Every request has a host.
func canBeEmpty(key weir.Key) bool {
	return !slices.ContainsFunc(key, func(p weir.Part) bool {
		s, _ := weir.FindSource(weir.Sources(), p[0])
		return !s.Optional || s.Name == "host"
	})
}

// source returns the key source for a variable; empty if there is none.
func (r *reader) source(d *crossplane.Directive, name string) string {
	switch name {
	case "binary_remote_addr", "remote_addr":
		return "ip"
	case "host", "http_host":
		return "host"
	}
	for prefix, source := range map[string]string{"http_": "header:", "cookie_": "cookie:", "arg_": "query:"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" {
			if source == "header:" {
				rest = strings.ReplaceAll(rest, "_", "-")
			}
			if key, err := weir.ParseKey(source + rest); err == nil {
				return key[0][0]
			}
		}
	}
	if m := r.maps["$"+name]; m != nil {
		return r.mapped(d, m, name)
	}
	return ""
}

// mapped returns the key source for a variable of a map whose values are one variable, or empty,
// which exempts in nginx.
func (r *reader) mapped(d, m *crossplane.Directive, name string) string {
	source, exempts := "", false
	for _, row := range m.Block {
		if len(row.Args) == 0 {
			continue
		}
		value := strings.Trim(row.Args[len(row.Args)-1], "{}")
		if value == "" {
			exempts = true
			continue
		}
		v := variable.FindStringSubmatch(value)
		if v == nil || v[0] != value || v[1] == name || r.maps["$"+v[1]] != nil {
			return ""
		}
		one := r.source(d, v[1])
		if one == "" || source != "" && source != one {
			return ""
		}
		source = one
	}
	if exempts && source != "" {
		r.lost(m, "%s %s: requests for which it is empty are not limited in nginx, and are limited here: exempt names networks of callers, and the routes of a limiter name methods and paths", m.Directive, strings.Join(m.Args, " "))
	}
	return source
}

// window returns the window of a limit_req, and notes what it does differently.
//
// nginx admits burst+1 requests at once, and then the rate, one at a time. The window is the
// shortest one with exactly that average and room for the burst, so that it admits as few more at
// once as a window can. However a rate is spelled, its window is the same.
func (r *reader) window(d *crossplane.Directive) (w weir.Window, ok bool) {
	z, burst, nodelay, ok := r.request(d)
	if !ok {
		return weir.Window{}, false
	}
	units := (burst + 1 + z.rate - 1) / z.rate
	if units > int64(weir.MaxPer/z.per) || z.rate > weir.MaxLimit/units {
		r.lost(d, "limit_req zone=%s: a burst of %d is longer than the longest window", z.name, burst)
		return weir.Window{}, false
	}
	w = weir.Window{Limit: z.rate * units, Per: time.Duration(units) * z.per, Key: z.key}
	was := "one request every " + (z.per / time.Duration(z.rate)).String()
	if burst > 0 {
		was += fmt.Sprintf(" after a burst of %d", burst+1)
	}
	r.note(d, "limit_req zone=%s: nginx admits %s; %q admits them at any time in the window, and up to twice as many around its end", z.name, was, w)
	if burst > 0 && !nodelay {
		r.note(d, "limit_req zone=%s: nginx delays requests of a burst; here they go on at once", z.name)
	}
	return w, true
}

// request reads the parameters of a limit_req.
func (r *reader) request(d *crossplane.Directive) (z *zone, burst int64, nodelay, ok bool) {
	name := ""
	for _, arg := range d.Args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "zone":
			name = value
		case "burst":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 || n > weir.MaxLimit {
				r.lost(d, "limit_req: burst %q is no whole number from 0", value)
				return nil, 0, false, false
			}
			burst = n
		case "nodelay":
			nodelay = true
		case "delay":
		default:
			r.lost(d, "limit_req: unknown parameter %q", arg)
			return nil, 0, false, false
		}
	}
	z = r.zones["limit_req "+name]
	return z, burst, nodelay, r.usable(d, z, name)
}

// usable reports whether a zone exists and can be counted by; it notes why not.
func (r *reader) usable(d *crossplane.Directive, z *zone, name string) bool {
	switch {
	case z == nil:
		r.lost(d, "%s: there is no zone %q", d.Directive, name)
	case z.key == nil:
		r.lost(d, "%s: the key of zone %s cannot be counted by", d.Directive, name)
	default:
		return true
	}
	return false
}

// slots returns the limit in flight of a limit_conn.
func (r *reader) slots(d *crossplane.Directive) (f weir.InFlight, ok bool) {
	if len(d.Args) != 2 {
		r.lost(d, "limit_conn: expected a zone and a number")
		return f, false
	}
	z := r.zones["limit_conn "+d.Args[0]]
	if !r.usable(d, z, d.Args[0]) {
		return f, false
	}
	n, err := strconv.ParseInt(d.Args[1], 10, 64)
	if err != nil || n < 1 || n > weir.MaxLimit {
		r.lost(d, "limit_conn: %q is no whole number from 1", d.Args[1])
		return f, false
	}
	return weir.InFlight{Limit: n, Key: z.key}, true
}
