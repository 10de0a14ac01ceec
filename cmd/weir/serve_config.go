package main

import (
	"io"
	"log/slog"

	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/telemetry"
	"github.com/weirlimit/weir/redisstore"
)

// The values of --engine.
const (
	engineAuto = "auto"
	engineStd  = "std"
)

// The values of --leases.
const (
	leasesOff  = "off"
	leasesAuto = "auto"
)

// The values of --paths.
const (
	pathsStrict = "strict"
	pathsAsSent = "as-sent"
)

// The values of --client-cert.
const (
	certRequired = "required"
	certOptional = "optional"
)

var pathForms = map[string]gateway.Paths{pathsStrict: gateway.Strict, pathsAsSent: gateway.AsSent}

var leasings = map[string]redisstore.Leasing{leasesOff: redisstore.LeasesOff, leasesAuto: redisstore.LeasesAuto}

var engines = map[string]gateway.Engine{engineAuto: gateway.EngineAuto, engineStd: gateway.EngineStd}

// config returns the server that the flags describe, under a policy. Its logs go to log, its access
// log to stderr.
func (f *serveFlags) config(document *live.Document, log *slog.Logger, stderr io.Writer) edge.Config {
	b := thisBuild()
	c := edge.Config{
		Listen:      string(f.listen),
		AdminListen: f.admin.At,
		AdminHosts:  f.adminHosts,

		ACME:           f.acme.settings(),
		RedirectListen: string(f.acme.redirect),
		RedirectPort:   uint16(f.acme.redirectPort.Value),

		ForwardAuth: f.forwardAuth.settings(),
		RLS:         f.rls.settings(),

		MetricsListen: string(f.metrics),
		MetricsOpen:   bool(f.metricsOpen),

		Policy:    document,
		Reader:    policyReader(),
		Candidate: f.candidate,

		Clients: gateway.ClientTLS{CAFile: f.clientCA, Optional: f.clientCert.Value == certOptional},

		Sites:  f.upstream,
		Engine: engines[f.engine.Value],
		UpstreamTLS: gateway.UpstreamTLS{
			CAFile: f.upstreamCA,
			Name:   string(f.upstreamName),
			Client: gateway.KeyPair{CertFile: f.upstreamCert, KeyFile: f.upstreamKey},
		},

		Paths:     pathForms[f.paths.Value],
		Methods:   f.methods,
		Forwarded: f.forwarded,

		Store:         f.store,
		StoreDeadline: f.storeDeadline.Duration,
		Leases:        leasings[f.leases.Value],
		KeySecret:     f.keySecret,
		Data:          f.data,
		MaxData:       int64(f.maxData),
		Memory:        int64(f.memory),

		Callers: edge.Callers{
			TrustedProxies: f.trustedProxies,
			ClientIPHeader: f.clientIPHeader,
			ProxyProtocol:  bool(f.proxyProtocol),
			IPv6Prefix:     f.ipv6Prefix.Value,
		},
		Sessions: edge.Sessions{
			KeyFiles: f.jwtKeys,
			JWKS:     f.jwks.URL,
			Issuer:   f.jwtIssuer,
			Audience: f.jwtAudience,
			Leeway:   f.jwtLeeway.Duration,
		},
		TokenFile: f.tokenFile,
		Tokens:    bool(f.tokens),

		TokenFrom:    f.tokenFrom,
		TokenForward: edge.TokenForward(f.tokenForward.Value),

		MinRate:       int64(f.minRate),
		MinRateGrace:  f.minRateGrace.Duration,
		MaxUploadTime: f.maxUploadTime.Duration,

		Limits:      f.times.limits(),
		HealthCheck: gateway.HealthCheck{Path: string(f.times.check), Every: f.times.checkInterval.Duration},

		CORSOrigins: f.corsOrigins,
		IETFHeaders: bool(f.ietfHeaders),
		Demo:        bool(f.demo),
		Traces:      f.tracing,

		EventsURL:    f.eventsURL.URL,
		EventsSecret: f.eventsSecret,

		Build: telemetry.Build{Version: b.Version, Revision: b.Revision, Go: b.Go},
		Log:   log,
	}
	for i, cert := range f.tlsCert {
		c.Certificates = append(c.Certificates, gateway.KeyPair{CertFile: cert, KeyFile: f.tlsKey[i]})
	}
	if f.accessLog {
		c.AccessLog, c.AccessLogFields = stderr, gateway.LogFields(f.logFields)
	}
	if f.logFormat.Value == "json" {
		c.AccessLogFormat = gateway.LogJSON
	}
	return c
}
