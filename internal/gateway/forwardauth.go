package gateway

import "github.com/weirlimit/weir/internal/check"

// ForwardAuth returns a door for proxies that ask about requests which they forward themselves. It
// has the settings of this gateway, apart from its sites: the policy, the credentials, the access
// log, what observes. o.Rules is replaced.
func (g *Gateway) ForwardAuth(o check.Options) (*check.Door, error) {
	o.Rules = g.options.rules()
	return check.New(o)
}
