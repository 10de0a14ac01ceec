package main

import (
	"cmp"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
)

// The variables of envoyproxy/ratelimit that --rls-env reads, by what is done with them.
// docs/envoy.md has the same table.
var (
	// rlsRefused are settings that the server cannot keep, with the values that are none. A server
	// with another value does not start.
	rlsRefused = []rlsVariable{
		{"CONFIG_TYPE", []string{"FILE", "GRPC_XDS_SOTW"}, "limits come from files (FILE) or from a control plane (GRPC_XDS_SOTW)"},
		{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", nil, "the name in CONFIG_GRPC_XDS_SERVER_URL is verified: unset it"},
		{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", nil, "the control plane gets no further fields: unset it"},
		{"BACKEND_TYPE", []string{"redis"}, "counts are kept in this process or in Redis: unset it, and MEMCACHE_HOST_PORT"},
		{"REDIS_PERSECOND", rlsOff, "all counts are in one Redis: unset it"},
		{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", rlsOff, "the certificate of Redis is always verified: give its authority with REDIS_TLS_CACERT"},
		{"GRPC_CLIENT_TLS_SAN", nil, "every certificate of the authority in GRPC_CLIENT_TLS_CACERT is accepted: give Envoy an authority of its own"},
		{"USE_STATSD", rlsOff, "no statsd is sent: set it to false, and scrape metrics (USE_PROMETHEUS=true, or --metrics)"},
		{"USE_DOG_STATSD", rlsOff, "no statsd is sent: set it to false, and scrape metrics (USE_PROMETHEUS=true, or --metrics)"},
		{"PROMETHEUS_PATH", []string{"/metrics"}, "metrics are at /metrics: unset it"},
		{"EXTRA_TAGS", nil, "add labels where metrics are scraped: unset it"},
		{"TRACING_ENABLED", rlsOff, "set it to false; --traces traces requests that Weir forwards itself"},
	}
	rlsOff = []string{"false", "0", "f", "F", "FALSE", "False"}
	rlsOn  = []string{"true", "1", "t", "T", "TRUE", "True"}
)

// An rlsVariable is a variable that is refused with another value than those that are allowed.
type rlsVariable struct {
	name    string
	allowed []string
	hint    string
}

// An rlsEnvironment sets flags of weir serve from the variables of envoyproxy/ratelimit.
type rlsEnvironment struct {
	cli.Environment
	cmd *cobra.Command
	err error // the first one
}

// readRLSVariables sets the flags that were not given from the variables of envoyproxy/ratelimit,
// if --rls-env is on. Those that it does not know have no effect.
func (f *serveFlags) readRLSVariables(cmd *cobra.Command, env cli.Environment) error {
	if !bool(f.rls.env) {
		return nil
	}
	for _, v := range rlsRefused {
		if value := env[v.name]; value != "" && !slices.Contains(v.allowed, value) {
			return cli.UsageError(v.hint, "variable %s=%q of envoyproxy/ratelimit has a meaning that Weir does not have", v.name, value)
		}
	}
	e := &rlsEnvironment{Environment: env, cmd: cmd}
	e.listeners()
	e.configuration()
	e.answers()
	e.redis()
	return e.err
}

func (e *rlsEnvironment) set(flag, value, variable string) {
	if e.err == nil && value != "" {
		e.err = cli.SetFrom(e.cmd, flag, value, variable)
	}
}

// isOn reports whether a variable is true.
func (e *rlsEnvironment) isOn(name string) bool {
	value := e.Environment[name]
	if value != "" && e.err == nil && !slices.Contains(rlsOn, value) && !slices.Contains(rlsOff, value) {
		e.err = cli.UsageError("correct or unset "+name, "variable %s=%q: expected true or false", name, value)
	}
	return slices.Contains(rlsOn, value)
}

// switchOn sets a flag to on if a variable is true.
func (e *rlsEnvironment) switchOn(flag, name string) {
	if e.isOn(name) {
		e.set(flag, "on", name)
	}
}

func (e *rlsEnvironment) listeners() {
	at := func(host, port, fallback string) string {
		host = e.Environment[host]
		if host == "0.0.0.0" {
			host = ""
		}
		return net.JoinHostPort(host, cmp.Or(e.Environment[port], fallback))
	}
	if socket := e.Environment["GRPC_UDS"]; socket != "" {
		e.set("rls", "unix:"+socket, "GRPC_UDS")
	} else {
		e.set("rls", at("GRPC_HOST", "GRPC_PORT", "8081"), "GRPC_PORT")
	}
	e.set("rls-http", at("HOST", "PORT", "8080"), "PORT")
	if e.isOn("USE_PROMETHEUS") {
		e.set("metrics", cmp.Or(e.Environment["PROMETHEUS_ADDR"], ":9090"), "PROMETHEUS_ADDR")
		e.set("metrics-open", "on", "USE_PROMETHEUS")
	}
	if e.isOn("GRPC_SERVER_USE_TLS") {
		e.set("tls-cert", e.Environment["GRPC_SERVER_TLS_CERT"], "GRPC_SERVER_TLS_CERT")
		e.set("tls-key", e.Environment["GRPC_SERVER_TLS_KEY"], "GRPC_SERVER_TLS_KEY")
		e.set("rls-client-ca", e.Environment["GRPC_CLIENT_TLS_CACERT"], "GRPC_CLIENT_TLS_CACERT")
	}
	e.set("rls-max-connection-age", e.Environment["GRPC_MAX_CONNECTION_AGE"], "GRPC_MAX_CONNECTION_AGE")
	e.set("log-format", strings.ToLower(e.Environment["LOG_FORMAT"]), "LOG_FORMAT")
	// Both have a listener at port 8081 by default.
	e.set("admin", "off", "GRPC_PORT")
}

func (e *rlsEnvironment) configuration() {
	e.switchOn("rls-merge-domains", "MERGE_DOMAIN_CONFIG")
	if e.Environment["CONFIG_TYPE"] == "GRPC_XDS_SOTW" {
		e.controlPlane()
		return
	}
	root := cmp.Or(e.Environment["RUNTIME_ROOT"], "/srv/runtime_data/current")
	e.set("rls-config", filepath.Join(root, e.Environment["RUNTIME_SUBDIRECTORY"], cmp.Or(e.Environment["RUNTIME_APPDIRECTORY"], "config")), "RUNTIME_ROOT")
}

func (e *rlsEnvironment) controlPlane() {
	e.set("rls-xds", cmp.Or(e.Environment["CONFIG_GRPC_XDS_SERVER_URL"], "localhost:18000"), "CONFIG_GRPC_XDS_SERVER_URL")
	e.set("rls-xds-node", e.Environment["CONFIG_GRPC_XDS_NODE_ID"], "CONFIG_GRPC_XDS_NODE_ID")
	if !e.isOn("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
		return
	}
	if e.Environment["CONFIG_GRPC_XDS_SERVER_TLS_CACERT"] == "" && e.err == nil {
		e.err = cli.UsageError("set it to a file with the authority of the control plane", "variable CONFIG_GRPC_XDS_SERVER_USE_TLS needs CONFIG_GRPC_XDS_SERVER_TLS_CACERT")
	}
	e.set("rls-xds-ca", e.Environment["CONFIG_GRPC_XDS_SERVER_TLS_CACERT"], "CONFIG_GRPC_XDS_SERVER_TLS_CACERT")
	e.set("rls-xds-cert", e.Environment["CONFIG_GRPC_XDS_CLIENT_TLS_CERT"], "CONFIG_GRPC_XDS_CLIENT_TLS_CERT")
	e.set("rls-xds-key", e.Environment["CONFIG_GRPC_XDS_CLIENT_TLS_KEY"], "CONFIG_GRPC_XDS_CLIENT_TLS_KEY")
}

func (e *rlsEnvironment) answers() {
	e.set("rls-near-ratio", e.Environment["NEAR_LIMIT_RATIO"], "NEAR_LIMIT_RATIO")
	e.switchOn("rls-shadow", "SHADOW_MODE")
	e.switchOn("rls-quota", "QUOTA_MODE")
	e.switchOn("rls-metadata", "RESPONSE_DYNAMIC_METADATA")
	if e.isOn("LIMIT_RESPONSE_HEADERS_ENABLED") {
		names := make([]string, len(theirHeaders))
		for i, variable := range []string{"LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"} {
			names[i] = cmp.Or(e.Environment[variable], theirHeaders[i])
		}
		e.set("rls-headers", strings.Join(names, ","), "LIMIT_RESPONSE_HEADERS_ENABLED")
	}
}

// redis sets --store. Without REDIS_URL, counts are kept in this process.
func (e *rlsEnvironment) redis() {
	at := e.Environment["REDIS_URL"]
	if at == "" {
		return
	}
	store, err := e.storeURL(at)
	if err != nil {
		e.err = cmp.Or(e.err, err)
		return
	}
	e.set("store", store, "REDIS_URL")
}

// storeURL returns the value of --store for Redis at an address.
func (e *rlsEnvironment) storeURL(at string) (string, error) {
	env := e.Environment
	if kind := env["REDIS_SOCKET_TYPE"]; kind != "" && kind != "tcp" && kind != "tls" || strings.HasPrefix(at, "/") {
		return "", cli.UsageError("set REDIS_SOCKET_TYPE=tcp and REDIS_URL=HOST:PORT, or give --store redis://HOST:PORT", "variables REDIS_URL and REDIS_SOCKET_TYPE: Redis is reached over TCP alone")
	}
	scheme, user := "redis", ""
	if e.isOn("REDIS_TLS") {
		scheme = "rediss"
	}
	if given, rest, isURL := strings.Cut(at, "://"); isURL {
		if given == "rediss" {
			scheme = given
		}
		at = rest
	}
	if i := strings.LastIndexByte(at, '@'); i >= 0 {
		user, at = at[:i+1], at[i+1:]
	} else if secret := env["REDIS_AUTH"]; secret != "" {
		name, password, both := strings.Cut(secret, ":")
		if !both {
			name, password = "", secret
		}
		user = url.UserPassword(name, password).String() + "@"
	}
	query := url.Values{}
	for parameter, variable := range map[string]string{"ca": "REDIS_TLS_CACERT", "cert": "REDIS_TLS_CLIENT_CERT", "key": "REDIS_TLS_CLIENT_KEY"} {
		if value := env[variable]; value != "" && scheme == "rediss" {
			query.Set(parameter, value)
		}
	}
	if prefix := env["CACHE_KEY_PREFIX"]; prefix != "" {
		query.Set("prefix", prefix)
	}
	switch kind := strings.ToUpper(env["REDIS_TYPE"]); kind {
	case "", "SINGLE", "CLUSTER":
	case "SENTINEL":
		master, hosts, ok := strings.Cut(at, ",")
		if !ok {
			return "", cli.UsageError("give the master's name and the Sentinels: MASTER,HOST:PORT,HOST:PORT", "variable REDIS_URL names no Sentinel")
		}
		if secret := env["REDIS_SENTINEL_AUTH"]; secret != "" {
			name, password, both := strings.Cut(secret, ":")
			if !both {
				name, password = "", secret
			} else {
				query.Set("sentinel_user", name)
			}
			query.Set("sentinel_password", password)
		}
		scheme, at = scheme+"-sentinel", hosts+"/"+url.PathEscape(master)
	default:
		return "", cli.UsageError("set it to SINGLE, CLUSTER or SENTINEL", "variable REDIS_TYPE=%s is none of Redis's kinds", strconv.Quote(kind))
	}
	store := scheme + "://" + user + at
	if len(query) > 0 {
		store += "?" + query.Encode()
	}
	return store, nil
}
