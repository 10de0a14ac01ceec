package gateway

// An Engine selects what speaks HTTP with clients.
type Engine uint8

const (
	// EngineAuto is the fast engine before Sites, and net/http before Backend, or if Wrap or
	// TraceUpstream is set: these need net/http's requests.
	EngineAuto Engine = iota
	// EngineStd is net/http.
	EngineStd
)

// String returns the engine as --engine spells it.
func (e Engine) String() string {
	if e == EngineStd {
		return "std"
	}
	return "auto"
}

// isFast reports whether requests are served by the fast engine, which has a loop for each version
// of HTTP.
func (o *Options) isFast() bool {
	return o.Engine == EngineAuto && len(o.Sites) > 0 && o.Wrap == nil && o.TraceUpstream == nil
}
