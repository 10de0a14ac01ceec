package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
)

const serveLong = `Run the edge.

Without flags, Weir enforces the contract's limits before the built-in sample backend. Counts and the backend's
rows are kept in ./weir-data: on Linux a restart, even after kill -9, continues the counts of the last process.
Start-up prints two blocks to paste into a shell; each ends in a 429.

With --upstream URL, Weir protects your own backend instead. It verifies sessions (--jwt-key, --jwks) and API tokens
(--token-file, or those of 'weir token create'). A request whose credentials it cannot verify is counted by IP address
and passed on, and start-up reports that. With several addresses (--upstream http://a:80,http://b:80) each request
goes to the least busy one, and an address that does not answer is avoided for a while. HTTP/1.1 is then read
strictly, by Weir's own engine; --engine std uses Go's net/http instead. Start-up reports the engine.

With --store, several nodes share one budget in Redis or Valkey: one server, a cluster (which is detected), or
Sentinels. A URL in the variable WEIR_STORE keeps its password out of the process list.

  redis://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/DB][?prefix=NAME]
  redis-sentinel://[[USER]:PASSWORD@]HOST[:PORT][,...]/MASTER[/DB][?sentinel_user=...&sentinel_password=...]
  rediss:// and rediss-sentinel:// use TLS, with ?ca=FILE and ?cert=FILE&key=FILE if these are private

While the store does not answer, each limiter follows its on_store_failure, and /readyz reports "degraded".

A changed --policy file takes effect within seconds, or at once on SIGHUP; counts continue. An invalid policy is
rejected and logged, and the policy in force stays.

If systemd passes sockets (LISTEN_FDS), Weir serves those and does not open --listen, and a restart refuses no
connection.

SIGTERM or SIGINT lets running requests finish and exits with 0; a second one ends at once.`

const serveExample = `  weir serve
  weir serve --listen 127.0.0.1:9000 --data /var/lib/weir
  weir serve --upstream http://127.0.0.1:3000 --jwt-key secret.key --policy my-policy.yaml
  weir serve --tls-cert cert.pem --tls-key key.pem --trusted-proxies 10.0.0.0/8
  WEIR_STORE=redis://:$PASSWORD@10.0.0.5:6379 weir serve --upstream http://127.0.0.1:3000
  WEIR_LOG_FORMAT=json weir serve`

func newServe(env cli.Environment) *cobra.Command {
	f := defaultServeFlags()
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Run the edge",
		Long:    serveLong,
		Example: serveExample,
		Args:    cli.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			if err := f.findTracing(cmd, env); err != nil {
				return err
			}
			return serve(cmd.Context(), f, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd)
	return cmd
}

// serve runs a server until ctx ends or the process is told to end, and drains it.
func serve(ctx context.Context, f *serveFlags, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	log := newLogger(f, stderr)
	signals, forget := handleSignals(ctx, log)
	defer forget()
	document, err := readDocument(stdin, f.policy)
	if err != nil {
		return printProblems(stderr, err)
	}
	for _, w := range document.Warnings {
		printProblem(stderr, "warning", w)
	}
	server, err := edge.Open(signals.running, f.config(document, log, stderr))
	if errors.Is(err, edge.ErrStopped) {
		<-signals.logged
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	defer signals.reloadOnHangUp(server.Reload)()
	if err := printStart(stdout, f, server); err != nil {
		return cli.Fail(fmt.Errorf("print what was started: %w", err), "")
	}
	log.Info("serving", "address", server.Addr().String())
	if err := server.Run(signals.running); err != nil {
		return cli.Fail(err, "")
	}
	<-signals.logged
	log.Info("drained, good-bye")
	return nil
}

// newLogger returns the log on standard error. If that is the process's own, the log also becomes
// the default: net/http's transport, for one, reports an upstream's surplus answers to package log
// only.
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
