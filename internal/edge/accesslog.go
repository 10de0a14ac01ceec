package edge

import "github.com/weirlimit/weir/internal/gateway"

// openAccessLog writes a log line for each request.
func openAccessLog(o *observing) error {
	if o.AccessLog == nil {
		return nil
	}
	log := gateway.NewAccessLog(o.AccessLog, o.AccessLogFormat, o.Log)
	o.own.own(log.Close)
	o.hooks.accessLog = log
	o.hooks.gateway = append(o.hooks.gateway, func(g *gateway.Options) { g.AccessLog, g.LogFields = log, o.AccessLogFields })
	return nil
}
