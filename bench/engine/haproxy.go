package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// startHAProxy starts Debian's HAProxy with one thread and its fastest settings: upstream
// connections that all callers share, bodies spliced by the kernel, no added fields. It counts
// requests of an address in a stick table. Its access log goes to a file, as it has no socket to
// wait for then; unlike nginx it writes each line at once.
func startHAProxy(ctx context.Context, w *world, s setup) (*server, error) {
	dir, err := os.MkdirTemp(w.dir, "haproxy")
	if err != nil {
		return nil, err
	}
	address, err := spareAddress()
	if err != nil {
		return nil, err
	}
	bind, log := address, "log stderr format raw local0\n\toption httplog"
	if s.silent {
		log = ""
	}
	if s.tls {
		bind += " ssl crt " + w.certBoth + " ssl-min-ver TLSv1.3 ciphersuites TLS_AES_128_GCM_SHA256 alpn "
		if s.http2 {
			bind += "h2,"
		}
		bind += "http/1.1"
	}
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, fmt.Appendf(nil, haproxyConf, log, bind, s.limit, s.upstream), 0o600); err != nil {
		return nil, err
	}
	return start(ctx, w, gatewayCore, address, nil, w.haproxy, "-db", "-f", file)
}

// haproxyConf has placeholders for the access log, the address with TLS, the limit and the
// upstream. Without strict-limits HAProxy only warns if the limit of open files is less than it
// needs for maxconn at worst, which is twice the connections and the pipes for bodies.
const haproxyConf = `global
	nbthread 1
	maxconn 18000
	no strict-limits

defaults
	mode http
	%[1]s
	option splice-auto
	http-reuse always
	timeout connect 5s
	timeout client 600s
	timeout server 600s
	timeout http-keep-alive 600s

frontend all
	bind %[2]s backlog 4096
	stick-table type ip size 100k expire 1m store http_req_rate(1m)
	http-request track-sc0 src
	http-request deny deny_status 429 if { sc_http_req_rate(0) gt %[3]d }
	default_backend back

backend back
	server back %[4]s
`
