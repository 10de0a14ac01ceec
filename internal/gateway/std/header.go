package std

import (
	"net/http"
	"strings"

	"github.com/weirlimit/weir/internal/gateway/rules"
)

// A header is net/http's as the rules' Header.
type header http.Header

// Values implements rules.Header.
func (h header) Values(name string) []string { return h[name] }

// Put implements rules.Header.
func (h header) Put(name string, values []string) { h[name] = values }

// Remove implements rules.Header.
func (h header) Remove(name string) { delete(h, name) }

// stripNominated removes the fields that a request's Connection names: the backend does not get
// them (RFC 9110, section 7.6.1), so they name no caller either. Withheld fields stay, for those
// that name the client are meant for this hop; so do the fields by which this hop itself is spoken
// to.
func stripNominated(h http.Header) {
	for _, line := range h["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			if name := strings.Trim(option, " \t"); name != "" && rules.IsForwarded(name) {
				delete(h, http.CanonicalHeaderKey(name))
			}
		}
	}
}
