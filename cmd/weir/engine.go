package main

import "github.com/weirlimit/weir/internal/gateway"

// The values of --engine.
const (
	engineAuto = "auto"
	engineStd  = "std"
)

var engines = map[string]gateway.Engine{engineAuto: gateway.EngineAuto, engineStd: gateway.EngineStd}

// engineLine is what start-up says of who speaks HTTP with callers, and why where that is net/http alone.
func (e *edge) engineLine(f *serveFlags) string {
	switch {
	case e.gateway.Fast():
		return "Weir's own for HTTP/1.1, net/http for HTTP/2"
	case len(f.upstream) == 0:
		return "net/http, as always for the sample backend"
	case f.engine.Value == engineStd:
		return "net/http, since --engine is std"
	}
	return "net/http, since traces are on"
}
