package identity

import "github.com/weirlimit/weir"

func (c *Caller) appendHost(dst []byte, _ string) ([]byte, bool) {
	return weir.AppendHost(dst, c.request.Host())
}
