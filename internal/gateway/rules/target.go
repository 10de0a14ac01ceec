package rules

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/wire"
)

// IsPlain reports whether a path is counted as it came, and is forwarded with its query byte for
// byte. It may be false for such a path, too.
func (r *Rules) IsPlain(path, query string) bool {
	return target.IsPlain(path) && (r.Paths != target.AsSent || target.IsPlainAsSent(path)) &&
		target.IsPlainQuery(query) && target.Query(query) == query && r.ShownQuery(query) == query
}

// Read sets what the target of a request decides. received is the target as it came, and u the same
// parsed: it is brought to its canonical form, unless the target is forwarded as sent.
func (r *Rules) Read(asked *target.Request, received string, u *url.URL) {
	path, sent := r.sent(received)
	switch {
	case !sent:
		asked.Read(u)
	case target.IsPlainQuery(u.RawQuery):
		_ = asked.ReadAsSent(path) // Raw is set then
	default:
		asked.Raw = path
	}
}

// Target returns the target that the upstream is asked for, without the base path. received and u
// are what Read was given.
func (r *Rules) Target(received string, u *url.URL) (path, query string) {
	if path, sent := r.sent(received); sent {
		return path, r.ShownQuery(u.RawQuery)
	}
	return u.EscapedPath(), target.Query(r.ShownQuery(u.RawQuery))
}

// sent returns the path of a target that is forwarded as it came. ok is false if the options do not
// say so, or if the target is no path.
func (r *Rules) sent(received string) (path string, ok bool) {
	if r.Paths != target.AsSent || received == "" || received[0] != '/' {
		return "", false
	}
	path, _, _ = strings.Cut(received, "?")
	return path, true
}

// CheckMethod returns why a method cannot be accepted beside the known ones; nil if it can.
func CheckMethod(m string) error {
	switch {
	case target.IsMethod(m):
		return fmt.Errorf("method %s is always accepted: name others than %s", m, AllMethods)
	case m == http.MethodConnect:
		return errors.New("method CONNECT opens a tunnel, through which requests would pass uncounted: leave it out")
	case m == http.MethodTrace:
		return errors.New("method TRACE has a backend send back the fields of a request, credentials included: leave it out")
	case m == "PRI":
		return errors.New("method PRI begins a connection of HTTP/2 (RFC 9113, section 3.4): leave it out")
	case !wire.IsToken(m) || m != strings.ToUpper(m):
		return fmt.Errorf("method %q: expected a word in capital letters, such as PROPFIND or PURGE", m)
	}
	return nil
}
