package main

import "context"

// The contestants of the case in which a server reports what it does: the same server, by how much
// it reports.
const (
	silentName   = "weir, no access log"
	plainName    = "weir, an access log without further fields"
	observedName = "weir, every field, metrics and dashboard"
)

// observedFields are the fields of the case's requests: a browser's name, and a trace to continue.
const observedFields = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n" +
	"Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// observedContestants are the contestants of that case.
func observedContestants(w *world) []contestant {
	of := func(name string, flags ...string) contestant {
		if w.engines {
			flags = append(flags, "--engine", "auto")
		}
		return contestant{name, false, func(ctx context.Context, w *world, s setup) (*server, error) { return startWeir(ctx, w, s, flags...) }}
	}
	return []contestant{
		of(silentName, "--access-log=off"),
		of(plainName, "--access-log-fields", "none"),
		of(observedName, "--access-log-fields", "user_agent,upstream,request_id,traceparent,denial,caller", "--admin", "127.0.0.1:0", "--metrics", "127.0.0.1:0"),
	}
}
