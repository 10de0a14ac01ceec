package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/demo"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/sample"
	"github.com/weirlimit/weir/internal/telemetry"
	"github.com/weirlimit/weir/internal/watch"
	"github.com/weirlimit/weir/memstore"
)

// An edge is everything that weir serve has put together.
type edge struct {
	decider *weir.Decider
	gateway *gateway.Gateway
	denials denials
	trusted []netip.Prefix

	// What start-up says of them.
	storeLine, backendLine, sessionsLine, tokensLine string
	candidateLine, adminLine                         string // empty: there is none
	workspace                                        string // one that the sample backend has

	countable func(weir.Policy) error // says why the store cannot count a policy; nil where it can any
	degraded  func() error            // says why the store does not count; nil where that cannot be

	metrics    *telemetry.Metrics
	sessions   *identity.Sessions // that are verified; nil: none are
	recorder   *watch.Recorder    // what the admin listener shows; nil without it
	receivers  receivers          // of what happens
	figures    telemetry.Sources  // what metrics ask for
	tracesLine string             // where traces go; empty: nowhere

	embedded *memstore.Store // nil: the store is a shared one
	tokens   *sample.Tokens  // of the sample backend; nil: there is none

	closers []func() error // in the order of opening
}

// newLogger returns the log on standard error. Where that is the process's own, it is the default too: net/http's transport, for
// one, tells package log and nobody else of an upstream that answers more than it was asked.
func newLogger(f *serveFlags, stderr io.Writer) *slog.Logger {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if f.logFormat.Value == "json" {
		log = slog.New(slog.NewJSONHandler(stderr, nil))
	}
	if stderr == os.Stderr {
		slog.SetLogLoggerLevel(slog.LevelWarn)
		slog.SetDefault(log)
	}
	return log
}

// assemble opens and connects everything, by one clock; nil is the machine's. What it returns must be closed.
func assemble(ctx context.Context, f *serveFlags, p weir.Policy, log *slog.Logger, stderr io.Writer, now func() time.Time) (*edge, error) {
	e := &edge{trusted: f.trustedProxies}
	if err := e.open(ctx, f, p, log, stderr, now); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *edge) open(ctx context.Context, f *serveFlags, p weir.Policy, log *slog.Logger, stderr io.Writer, now func() time.Time) error {
	if err := e.openDecider(ctx, f, p, log, now); err != nil {
		return err
	}
	who := identity.Options{
		TrustedProxies: f.trustedProxies,
		ClientIPHeader: f.clientIPHeader,
		IPv6Prefix:     f.ipv6Prefix.Value,
		Now:            now,
	}
	o := gateway.Options{
		Decider:        e.decider,
		CORSOrigins:    f.corsOrigins,
		IETF:           bool(f.ietfHeaders),
		CertFile:       f.tlsCert,
		KeyFile:        f.tlsKey,
		ProxyProtocol:  bool(f.proxyProtocol),
		TrustedProxies: f.trustedProxies,
		Degraded:       e.degraded,
		Log:            log,
		Engine:         engines[f.engine.Value],
	}
	o.Limits.Rate, o.Limits.Grace, o.Limits.Upload = int64(f.minRate), f.minRateGrace.Duration, time.Duration(f.maxUploadTime)
	if f.handOver != nil {
		o.Limits.Linger = sayGoodbye
	}
	err := e.denials.open(f, p, log, &o)
	if err != nil {
		return err
	}
	if len(f.upstream) == 0 {
		err = e.openSample(ctx, f, log, now, &who, &o)
	} else {
		err = e.openUpstream(ctx, f, log, now, &who, &o)
	}
	if err != nil {
		return err
	}
	e.sessions = who.Sessions
	if o.Identity, err = identity.New(who); err != nil {
		return cli.Fail(err, "")
	}
	if f.accessLog {
		format := gateway.LogText
		if f.logFormat.Value == "json" {
			format = gateway.LogJSON
		}
		o.AccessLog = gateway.NewAccessLog(stderr, format, log)
		e.closers = append(e.closers, o.AccessLog.Close)
	}
	if err := e.openTracer(f, &o); err != nil {
		return err
	}
	o.Observe = each(e.receivers.decisions)
	if e.gateway, err = gateway.New(o); err != nil {
		var bad *gateway.CertificateError
		if errors.As(err, &bad) {
			return cli.Fail(err, fileHint(bad.Err, "--tls-cert and --tls-key want PEM files that belong together"))
		}
		return cli.UsageError("see 'weir serve --help'", "%w", err)
	}
	return nil
}

// openDecider opens the store, first of all, and the Decider that counts in it: they are closed last, when nobody asks any more.
func (e *edge) openDecider(ctx context.Context, f *serveFlags, p weir.Policy, log *slog.Logger, now func() time.Time) error {
	o := weir.Options{Sources: identity.Sources(), Deadline: f.storeDeadline.Duration}
	var store weir.Store
	var err error
	if f.store.Shared == nil {
		store, err = e.openEmbedded(f, log, now)
	} else {
		store, err = e.openShared(ctx, f, p, log, now, &o)
	}
	if err != nil {
		return err
	}
	e.openMetrics(now)
	if f.operated {
		if err := e.openRecorder(); err != nil {
			return err
		}
	}
	e.receivers.hearDecider(&o)
	if e.decider, err = weir.New(p, store, o); err != nil {
		return cli.Fail(err, "see 'weir policy check FILE'")
	}
	if f.store.Shared != nil {
		e.closers = append(e.closers, func() error { return closeDecider(e.decider, log) }, keepProbing(e.decider))
	}
	return nil
}

// close closes everything, the last opened first.
func (e *edge) close() error {
	var err error
	for i := len(e.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, e.closers[i]())
	}
	e.closers = nil
	return err
}

// sayGoodbye is how long an ending server, whose socket another goes on with, serves kept connections to tell their clients.
const sayGoodbye = 2 * time.Second

const dataHint = "say with --data DIR where to keep what must last; Weir must be allowed to write there"

// openSample puts the sample backend behind the edge.
func (e *edge) openSample(ctx context.Context, f *serveFlags, log *slog.Logger, now func() time.Time, who *identity.Options, o *gateway.Options) error {
	backend, err := sample.Open(ctx, sample.Options{Dir: f.data, Now: now, Log: log, MaxData: int64(f.maxData), Welcome: true, Callers: *who})
	if errors.Is(err, sample.ErrMaxData) {
		return cli.Fail(fmt.Errorf("open the data directory %q: %w", f.data, err), "give it more with --max-data, such as --max-data 1GiB")
	}
	if err != nil {
		return cli.Fail(fmt.Errorf("open the data directory %q: %w", f.data, err), dataHint)
	}
	e.closers = append(e.closers, backend.Close)
	if f.store.Shared != nil {
		log.Warn("the sample backend is this machine's: nodes that share a store do not share its sessions, tokens and rows; in front of several use --upstream")
	}
	who.Sessions, who.Tokens = backend.Sessions(), backend.Tokens()
	o.Backend, o.Ready, o.OnDrain = backend.Handler(), backend.Ready, backend.Drain

	e.workspace, e.tokens = "demo", backend.Tokens()
	if all, err := e.tokens.List(ctx); err == nil {
		if i := slices.IndexFunc(all, func(t sample.TokenInfo) bool { return t.Workspace != demo.Workspace }); i >= 0 {
			e.workspace = all[i].Workspace
		}
	}
	e.backendLine = fmt.Sprintf("the sample backend, up to %v in %s", &f.maxData, absolute(f.data))
	e.sessionsLine = "minted and verified here"
	e.tokensLine = "those of 'weir token create', in " + absolute(f.data)
	return nil
}
