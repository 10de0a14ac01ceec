package weircaddy

import (
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/weirlimit/weir/identity"
)

// A clientDoubt finds the client's address by the server's trusted_proxies, and logs once if they
// are read in a way that a client can deceive.
type clientDoubt struct {
	log    *slog.Logger
	logged atomic.Bool
}

// client returns the address of the client as Caddy knows it; empty if it does not. All callers
// without an address share one budget.
//
// Without trusted_proxies_strict Caddy takes the leftmost address of the field, which a client
// writes itself if its proxy appends to the field. So if there are several addresses, the last one
// counts: that of the client if there is one proxy, and else that of a proxy, whose clients then
// share a budget.
func (c *clientDoubt) client(r *http.Request) string {
	ctx := r.Context()
	client, _ := caddyhttp.GetVar(ctx, caddyhttp.ClientIPVarKey).(string)
	if trusted, _ := caddyhttp.GetVar(ctx, caddyhttp.TrustedProxyVarKey).(bool); !trusted {
		return client
	}
	s, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || s.TrustedProxiesStrict > 0 {
		return client
	}
	last, several := lastAddress(r.Header, s.ClientIPHeaders)
	if !several {
		return client
	}
	if !c.logged.Swap(true) {
		c.log.Warn("the last address of a client's field is counted, because the first one may be made up; set trusted_proxies_strict",
			"fields", s.ClientIPHeaders)
	}
	if identity.ParsePeer(last).IsValid() {
		return last
	}
	return r.RemoteAddr
}

// lastAddress returns the last element of the fields that name clients, and whether there are
// several.
func lastAddress(h http.Header, fields []string) (last string, several bool) {
	n := 0
	for _, name := range fields {
		for _, line := range h.Values(name) {
			n += 1 + strings.Count(line, ",")
			last = line
		}
	}
	return strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:]), n > 1
}
