package verify

import (
	"context"
	"net/http"
	"strings"
)

// provoke sends what is answered with errors, each of a path that the policy covers.
func (d *driver) provoke(ctx context.Context) error {
	d.does("provoking errors")
	e := d.part.endpoints[0]
	dir := e.path[:strings.LastIndexByte(e.path, '/')]
	// PROPFIND changes nothing (RFC 4918), no endpoint of such an API has it, and HTTP parsers that know a list of methods know it: one
	// that is made up is refused by Node's before the API sees it.
	const wrongMethod = "PROPFIND"
	for _, r := range []request{
		{method: e.method, path: dir + "/weir-verify-nothing"},
		{method: wrongMethod, path: e.path},
		{method: e.method, path: dir + "%2fweir-verify"},
		{method: e.method, path: e.path, fields: map[string]string{"Authorization": ""}}, // without a credential
	} {
		covered := d.run.plan.routes.Match(r.method, strings.ReplaceAll(r.path, "%2f", "/")).Limiter()
		if dir == "" || covered == nil {
			continue // no limiter, no fields
		}
		if r.path != e.path || r.method != e.method {
			full := d.plain()
			r.fields, r.body = full.fields, full.body
			if r.method == wrongMethod {
				r.body = ""
			}
		}
		a, err := d.send(ctx, r)
		if err != nil {
			return err
		}
		if strings.Contains(r.path, "%") && a.status != http.StatusBadRequest {
			continue // where it is no error of the path's, it may be of another surface
		}
		d.check(a)
	}
	return nil
}

// conclude says what the whole showed.
func (d *driver) conclude() {
	t := d.now()
	if t != nil && t.refused > 0 {
		d.kept("refused-remaining", "0 on every 429")
	}
}
