package verify

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// refusedBody is refused by any validation: it is not JSON.
const refusedBody = `{"weir_verify": refuse this}`

// An endpoint is a request that a limiter covers.
type endpoint struct {
	method, path string
	valid        string // a body that is accepted; "": none is known or needed
	host         string // Host; "": the URL's
	sited        bool   // the route names the host
	under        string // what a made-up host ends in: ".example.com"; "": host is the only one
}

// harmless reports whether a request to the endpoint changes nothing without a valid body.
func (e endpoint) harmless() bool {
	switch e.method {
	case "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH":
		return true
	}
	return false
}

// isElsewhere reports whether an answer says that the endpoint's host is not served at the URL.
func (e endpoint) isElsewhere(a *answer) bool {
	return e.host != "" && a.status == http.StatusMisdirectedRequest
}

func (e endpoint) String() string { return e.method + " " + e.host + e.path }

// knownEndpoints are endpoints of the contract's surfaces: first those that are cheap to serve and
// keep nothing open. AGENT is replaced by the agent.
var knownEndpoints = []endpoint{
	{method: "POST", path: "/api/v1/widget/init", valid: `{"agent_id":"AGENT"}`},
	{method: "POST", path: "/api/v1/widget/messages", valid: `{"text":"weir verify asks whether limits hold"}`},
	{method: "POST", path: "/api/v1/widget/events", valid: `{"type":"weir.verify"}`},
	{method: "GET", path: "/api/v1/widget/conversations"},
	{method: "POST", path: "/api/v1/widget/leads", valid: `{"email":"weir-verify@example.com"}`},
	{method: "POST", path: "/api/v1/widget/typing", valid: `{"typing":true}`},
	{method: "POST", path: "/api/v1/widget/satisfaction", valid: `{"score":5}`},
	{method: "POST", path: "/api/v1/widget/coupon/apply", valid: `{"code":"WEIR-VERIFY"}`},
	{method: "GET", path: "/v1/wp/status"},
	{method: "GET", path: "/v1/wp/coupons"},
}

const initPath = "/api/v1/widget/init"

// endpointsOf returns requests that the limiter covers, at least one if any route leads to it.
// segments are the values of parameters by source; any other parameter has a value that is made up,
// and so has a star in the place of a host. authority is that of the URL.
func endpointsOf(routes *weir.Routes, l *weir.Limiter, segments map[string]string, authority string) []endpoint {
	var all []endpoint
	made := strings.ToLower(freshAgent())
	// add adds an endpoint at the host of a route.
	add := func(r weir.Route, e endpoint) bool {
		for _, e.host = range hostsOf(r, authority, made) {
			e.under, e.sited = underOf(r), r.Host != ""
			covered := routes.Match(e.method, cmp.Or(e.host, authority), e.path).Limiter()
			if covered == nil || covered.Name != l.Name {
				continue
			}
			if !slices.ContainsFunc(all, func(x endpoint) bool { return x.method == e.method && x.path == e.path && x.host == e.host }) {
				all = append(all, e)
			}
			return true
		}
		return false
	}
	for _, e := range knownEndpoints {
		if i := slices.IndexFunc(l.Routes, func(r weir.Route) bool { return onSurface(r.Path) && covers(r, e) }); i >= 0 {
			add(l.Routes[i], e)
		}
	}
	for _, r := range l.Routes {
		method := r.Method
		if method == "" {
			method = "GET"
		}
		hosts := hostsOf(r, authority, made)
		if slices.ContainsFunc(all, func(e endpoint) bool { return covers(r, e) && slices.Contains(hosts, e.host) }) {
			continue
		}
		for _, path := range pathsOf(r, segments) {
			if add(r, endpoint{method: method, path: path}) {
				break
			}
		}
	}
	return all
}

// hostsOf returns hosts that a route covers, the likeliest first; "" is the URL's, whose authority
// is given. made is what a made-up host begins with.
func hostsOf(r weir.Route, authority, made string) []string {
	own, _ := weir.AppendHost(nil, authority)
	under := underOf(r)
	switch {
	case r.Host == "", under != "" && strings.HasSuffix(string(own), under), r.Host == string(own):
		if under == "" {
			return []string{""}
		}
		return []string{"", made + under} // the URL's own may have routes of its own
	case under != "":
		return []string{made + under}
	}
	return []string{r.Host}
}

// coversHost reports whether a route covers requests for the host of another, or for all of its
// hosts.
func coversHost(r weir.Route, other string) bool {
	under := underOf(r)
	return r.Host == "" || r.Host == other || under != "" && strings.HasSuffix(other, under)
}

// underOf returns what the hosts of a route end in that are made up; "" if its host is one name.
func underOf(r weir.Route) string {
	if r.Host == "" {
		return ".example.com"
	}
	under, ok := strings.CutPrefix(r.Host, "*")
	if !ok {
		return ""
	}
	return under
}

// onSurface reports whether a path is on one of the contract's surfaces, whose endpoints are known.
func onSurface(path string) bool {
	return strings.HasPrefix(path, "/api/v1/widget/") || strings.HasPrefix(path, "/v1/wp/")
}

// covers reports whether an endpoint represents the route, on a host that it covers.
func covers(r weir.Route, e endpoint) bool {
	return (r.Method == "" || r.Method == e.method) && (r.Path == e.path || r.Prefix && strings.HasPrefix(e.path, r.Path))
}

// pathsOf returns paths that match a route, the likeliest first.
func pathsOf(r weir.Route, segments map[string]string) []string {
	path := r.Path
	for _, name := range r.Parameters() {
		path = strings.Replace(path, "{"+name+"}", cmp.Or(segments[sourcePath+":"+name], madeUpSegment), 1)
	}
	switch {
	case !r.Prefix:
		return []string{path}
	case strings.HasSuffix(path, "/"):
		return []string{path + madeUpSegment, path}
	}
	return []string{path, path + "/" + madeUpSegment, path + madeUpSegment}
}

// madeUpSegment is a segment of a path that the verifier makes up.
const madeUpSegment = "weir-verify"

// begins reports whether a path can begin with a prefix, if a parameter of either is any segment.
func begins(path, prefix string) bool {
	segments := strings.Split(path, "/")
	all := strings.Split(prefix, "/")
	for i, want := range all {
		switch {
		case i == len(segments):
			return false
		case strings.HasPrefix(want, "{"), strings.HasPrefix(segments[i], "{") && want != "":
		case i == len(all)-1 && strings.HasPrefix(segments[i], want):
		case segments[i] != want:
			return false
		}
	}
	return true
}

// A caller sends requests.
type caller struct {
	authorization string         // a credential; "": none
	place         identity.Place // where that is
	agent         string
	chosen        map[string]string // made-up values that the limiter counts by, by source
	segments      map[string]string // the part's: what a value of path:NAME replaces
	under         string            // the part's: what a value of host ends in
}

// another returns a caller with another value of a source that callers choose.
func (c caller) another(source string) caller {
	if source == sourceAgent {
		c.agent = freshAgent()
		return c
	}
	if source == sourceHost {
		return c.valued(source, freshAgent()+c.under)
	}
	return c.valued(source, freshAgent())
}

// valued returns a caller with that value of a source.
func (c caller) valued(source, value string) caller {
	if c.chosen = maps.Clone(c.chosen); c.chosen == nil {
		c.chosen = make(map[string]string)
	}
	c.chosen[source] = value
	return c
}

// request returns the caller's request to an endpoint.
func (c caller) request(o *Options, e endpoint) request {
	r := request{method: e.method, host: e.host, path: e.path, fields: make(map[string]string)}
	if c.authorization != "" {
		r = presented(r, c.place, c.authorization)
	}
	if c.agent != "" {
		r.fields["X-Agent-Id"] = c.agent
	}
	for _, source := range slices.Sorted(maps.Keys(c.chosen)) {
		r = c.choosing(r, o, source)
	}
	switch e.method {
	case "POST", "PUT", "PATCH":
		r.body = refusedBody
		if o.Real {
			r.body = "{}"
		}
		if o.Real && e.valid != "" {
			r.body = strings.ReplaceAll(e.valid, "AGENT", c.agent)
		}
	}
	return r
}

// freshAgent returns a new, unique id of an assistant, or another value that a caller may choose.
func freshAgent() string { return "weir-verify-" + strings.ToLower(rand.Text()[:12]) }

// tampered returns the credential with all its claims and its id, but with a wrong proof.
func tampered(credential string) string {
	at := secretAt(credential)
	if at >= len(credential) {
		return "x" + credential
	}
	other := byte('A')
	if credential[at] == other {
		other = 'B'
	}
	return credential[:at] + string(other) + credential[at+1:]
}

// forged returns the credential's claims or id with a random proof.
func forged(credential string) string { return credential[:secretAt(credential)] + rand.Text() }

// secretAt returns where the proof in a credential begins: the signature of a JWT, or the last
// third of a token.
func secretAt(credential string) int {
	at := strings.LastIndexByte(credential, '.') + 1
	if at == 0 || at >= len(credential) {
		at = len(credential) * 2 / 3
	}
	return at
}

// respelled returns a JWT with another spelling of the same signature: some bits of the last
// character are unused. It returns other credentials unchanged.
func respelled(credential string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	signature := credential[strings.LastIndexByte(credential, '.')+1:]
	if strings.Count(credential, ".") != 2 || len(signature)%4 < 2 {
		return credential
	}
	last := strings.IndexByte(alphabet, signature[len(signature)-1])
	if last < 0 {
		return credential
	}
	return credential[:len(credential)-1] + string(alphabet[last^1])
}

// tokenIn returns the string at a dotted path of a JSON document.
func tokenIn(body []byte, path string) (string, error) {
	var at any
	if err := json.Unmarshal(body, &at); err != nil {
		return "", fmt.Errorf("init's answer is not JSON: %w", err)
	}
	for name := range strings.SplitSeq(path, ".") {
		object, ok := at.(map[string]any)
		if !ok {
			return "", fmt.Errorf("init's answer has no %q", path)
		}
		at = object[name]
	}
	token, ok := at.(string)
	if !ok || token == "" {
		return "", fmt.Errorf("init's answer has no string at %q", path)
	}
	return token, nil
}
