package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The names of contestants.
const (
	nginxName = "nginx, limit_req"
	// the ratio of two equal contestants, which shows the noise of all ratios
	againName    = "nginx, again"
	haproxyName  = "HAProxy, stick table"
	fasthttpName = "fasthttp, bare page"
	proxyName    = "ReverseProxy, bare"
	floorName    = "floor: bytes unread"
	soleName     = "weir" // a binary without --engine
	stdName      = "weir, --engine std"
	autoName     = "weir, --engine auto"
)

// plenty is a limit that no run reaches.
const plenty = 2_000_000_000

// A setup is what a case requires of every contestant.
type setup struct {
	limit    int64  // a minute, or without an end if there are no windows
	by       string // what Weir counts by; others count by address
	cost     string // the cost of a request, as Weir's policy spells it; empty: 1
	tls      bool
	http2    bool // with tls
	silent   bool // no access log
	upstream string
}

// A contestant is a server that can be started.
type contestant struct {
	name  string
	bare  bool // no aim refers to it, except that of the first case
	start func(ctx context.Context, w *world, s setup) (*server, error)
}

func (c contestant) isWeir() bool { return strings.HasPrefix(c.name, "weir") }

// contestants returns them in the order of the tables. A binary without --engine is measured once.
func (w *world) contestants() []contestant {
	bare := func(name string) func(context.Context, *world, setup) (*server, error) {
		return func(ctx context.Context, w *world, s setup) (*server, error) { return startBare(ctx, w, name, s) }
	}
	of := func(engine ...string) func(context.Context, *world, setup) (*server, error) {
		return func(ctx context.Context, w *world, s setup) (*server, error) { return startWeir(ctx, w, s, engine...) }
	}
	all := []contestant{
		{nginxName, false, startNginx}, {againName, true, startNginx}, {haproxyName, false, startHAProxy}, {floorName, true, bare("floor")}, {fasthttpName, true, bare("fasthttp")}, {proxyName, true, bare("proxy")},
	}
	if !w.engines {
		return append(all, contestant{soleName, false, of()})
	}
	return append(all, contestant{stdName, false, of("--engine", "std")}, contestant{autoName, false, of("--engine", "auto")})
}

// startBare starts a contestant that is part of this program. It writes no access log.
func startBare(ctx context.Context, w *world, name string, s setup) (*server, error) {
	cert, key := "", ""
	if s.tls {
		cert, key = w.cert, w.certKey
	}
	return startSelf(ctx, w, gatewayCore, name, s.upstream, strconv.FormatInt(s.limit, 10), cert, key)
}

func startWeir(ctx context.Context, w *world, s setup, engine ...string) (*server, error) {
	dir, err := os.MkdirTemp(w.dir, "weir-data")
	if err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "policy.yaml")
	// Paths below /session/ and /key/ require a verified credential, so that a case can check that
	// its own is one.
	cost := ""
	if s.cost != "" {
		cost = "    cost: " + s.cost + "\n"
	}
	text := fmt.Sprintf("limiters:\n  - name: all\n    routes: [/api/*]\n    windows: [%d per minute by %s]\n%s"+
		"  - name: proof\n    routes: [/session/*]\n    windows: [%d per minute by session]\n    requires: session\n", s.limit, s.by, cost, plenty)
	if s.by == byKey {
		text += fmt.Sprintf("  - name: proof-of-key\n    routes: [/key/*]\n    windows: [%d per minute by token]\n    requires: token\n", plenty)
		engine = append(slices.Clone(engine), "--token-file", w.keys, "--token-from", "header:X-Api-Key")
	}
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		return nil, err
	}
	address, err := spareAddress()
	if err != nil {
		return nil, err
	}
	admin := "off"
	if w.profiled {
		if admin, err = spareAddress(); err != nil {
			return nil, err
		}
	}
	command := []string{w.weir, "serve", "--listen", address, "--admin", admin, "--upstream", "http://" + s.upstream, "--policy", policy,
		"--data", filepath.Join(dir, "data"), "--jwt-key", w.secret}
	if s.tls {
		command = append(command, "--tls-cert", w.cert, "--tls-key", w.certKey)
	}
	if s.silent {
		command = append(command, "--access-log=off")
	}
	started, err := start(ctx, w, gatewayCore, address, nil, append(command, engine...)...)
	if err != nil {
		return nil, err
	}
	started.admin, started.token = admin, filepath.Join(dir, "data", "admin.token")
	return started, nil
}

// startNginx starts Debian's nginx with the fastest settings: kept upstream connections, streamed
// bodies, a buffered access log, no error log line for a refusal, no added fields, and the best
// body buffers of those tried here (16 KiB to 1 MiB).
func startNginx(ctx context.Context, w *world, s setup) (*server, error) {
	dir, err := os.MkdirTemp(w.dir, "nginx")
	if err != nil {
		return nil, err
	}
	address, err := spareAddress()
	if err != nil {
		return nil, err
	}
	user, tls, rate, burst := "", "", "1r/m", "burst=1"
	if os.Getuid() == 0 {
		user = "user root;"
	}
	if s.limit == plenty {
		rate, burst = "1000000r/s", "burst=1000000"
	}
	if s.tls {
		tls = fmt.Sprintf("ssl_certificate %s; ssl_certificate_key %s; ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;", w.cert, w.certKey)
		address += " ssl"
		if s.http2 {
			address += " http2"
		}
	}
	path := filepath.Join(dir, "access.log")
	log := path + " combined buffer=64k flush=1s"
	if s.silent {
		log = "off"
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, nginxConf, user, dir, log, rate, s.upstream, address, tls, burst), 0o600); err != nil {
		return nil, err
	}
	listen, _, _ := strings.Cut(address, " ")
	one, err := start(ctx, w, gatewayCore, listen, []string{path}, w.nginx, "-p", dir, "-c", file, "-e", filepath.Join(dir, "error.log"))
	if err != nil {
		return nil, err
	}
	if one.pid, err = onlyChild(ctx, one.cmd.Process.Pid); err != nil {
		one.stop()
		return nil, fmt.Errorf("find nginx's worker: %w", err)
	}
	return one, nil
}

// nginxConf has placeholders for user, directory, access log, rate, upstream, address, TLS and
// burst.
const nginxConf = `%[1]s
daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid %[2]s/pid;
error_log %[2]s/error.log error;
events { worker_connections 18000; }
http {
	access_log %[3]s;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	client_max_body_size 0;
	keepalive_timeout 600s;
	keepalive_requests 1000000000;
	limit_req_zone $binary_remote_addr zone=all:10m rate=%[4]s;
	limit_req_status 429;
	limit_req_log_level info;
	proxy_http_version 1.1;
	proxy_set_header Connection "";
	proxy_request_buffering off;
	proxy_max_temp_file_size 0;
	upstream back {
		server %[5]s;
		keepalive 1024;
		keepalive_requests 1000000000;
		keepalive_timeout 600s;
	}
	server {
		listen %[6]s backlog=4096;
		%[7]s
		location / {
			limit_req zone=all %[8]s nodelay;
			proxy_pass http://back;
		}
		location = /api/large {
			proxy_buffers 8 32k;
			proxy_buffer_size 32k;
			limit_req zone=all %[8]s nodelay;
			proxy_pass http://back;
		}
		location = /api/upload {
			client_body_buffer_size 1m;
			limit_req zone=all %[8]s nodelay;
			proxy_pass http://back;
		}
	}
}
`
