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
	"github.com/weirlimit/weir/internal/handover"
	"github.com/weirlimit/weir/internal/headroom"
	"github.com/weirlimit/weir/internal/pages"
)

const serveLong = `Run the edge.

Without flags, Weir enforces the contract's limits before the built-in sample backend. Counts and the backend's
rows are kept in ./weir-data: on Linux a restart, even after kill -9, continues the counts of the last process.
Start-up prints two blocks of commands to paste into a shell. Each ends with a 429.

With --upstream URL and --policy FILE, Weir protects your own backend instead. Flags decide what is verified: sessions
(--jwt-key, --jwks), and API tokens (--tokens for those of 'weir token create', --token-file for keys of any form, whose
lines 'weir token hash' prints). --token-from says where requests have them. --client-ca asks callers for a client
certificate, too. A limiter that requires a credential
answers 401 without one; if no flag verifies it, the request is counted by IP address and forwarded. Start-up reports
what is verified.

With several addresses (--upstream http://a:80,http://b:80) each request goes to the least busy one, and an address
that does not answer is avoided for a while; --health-check PATH finds that out before a request does. Weir's own engine
then parses HTTP/1.1 and HTTP/2 strictly; --engine std uses Go's net/http instead. Start-up reports the engine.

Times and sizes are settings: what waits for a client (--header-timeout, --keepalive-timeout, --max-body), for the
backend (--upstream-connect-timeout, --upstream-response-timeout, --upstream-idle-timeout), for either
(--stream-idle-timeout), and for the end (--drain-notice, --drain-timeout).

With --store, several nodes share their counts in Redis or Valkey: one server, a cluster (which is detected), or
servers behind Sentinels. A URL in the variable WEIR_STORE keeps its password out of the process list.

  redis://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/DB][?prefix=NAME]
  redis-sentinel://[[USER]:PASSWORD@]HOST[:PORT][,...]/MASTER[/DB][?sentinel_user=...&sentinel_password=...]
  rediss:// and rediss-sentinel:// use TLS; ?ca=FILE trusts a private authority, ?cert=FILE&key=FILE is a client
  certificate
  ?replicas=N answers a request only when N replicas have what it spent; not on a cluster

While the store does not answer, each limiter follows its on_store_failure, and /readyz reports "degraded".

--forward-auth answers a proxy that asks about each request, and --rls answers Envoy in place of its rate limit service,
with that service's configuration. Without --upstream, the server then forwards nothing itself.

--config FILE has settings in YAML: the name of a flag, a colon and its value. A list is written in brackets, and
upstream may be a mapping of hosts to URLs. The command line overrides variables, which override the file. Relative
paths in it begin at its directory. --check reports every problem without starting, --print-config prints such a file.

A changed --policy file takes effect within seconds, or at once on SIGHUP; counts continue. An invalid policy is
rejected and logged, and the policy in force stays.

If systemd passes sockets (LISTEN_FDS), Weir serves those instead of --listen. A restart then refuses no connection.

On SIGUSR2 (Linux), Weir starts its program again, with the same flags: the new process serves at the same sockets and
counts on from the same counts, while the old one finishes its requests. If the new one cannot start, the old one goes on.

On SIGTERM or SIGINT, Weir lets requests in flight finish and exits with status 0. A second signal ends it at once.`

const serveExample = `  weir serve
  weir serve --listen 127.0.0.1:9000 --data /var/lib/weir
  weir serve --upstream http://127.0.0.1:3000 --jwt-key secret.key --policy my-policy.yaml
  weir serve --upstream http://127.0.0.1:3000 --token-file keys --token-from header:X-Api-Key --policy my-policy.yaml
  weir serve --tls-cert cert.pem --tls-key key.pem --trusted-proxies 10.0.0.0/8
  weir serve --listen :443 --redirect :80 --acme api.example.com --acme-agree --upstream http://127.0.0.1:3000 --policy my-policy.yaml
  WEIR_STORE=redis://:$PASSWORD@10.0.0.5:6379 weir serve --upstream http://127.0.0.1:3000 --policy my-policy.yaml
  weir serve --rls :8083 --rls-http :8082 --rls-config config/
  WEIR_LOG_FORMAT=json weir serve
  weir serve --config /etc/weir/weir.yaml --check`

func newServe(env cli.Environment) *cobra.Command {
	f := defaultServeFlags()
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Run the edge",
		Long:    serveLong,
		Example: serveExample,
		Args:    cli.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.readConfig(cmd); err != nil {
				err = printProblems(cmd.ErrOrStderr(), err)
				if f.checkOnly {
					_, err = f.checkFiles(cmd, []error{err})
				}
				return err
			}
			if err := f.readRLSVariables(cmd, env); err != nil {
				return err
			}
			if f.checkOnly {
				return f.checkAll(cmd, env)
			}
			if err := f.check(cmd); err != nil {
				return err
			}
			if err := f.findTracing(cmd, env); err != nil {
				return err
			}
			if f.printConfig {
				return writeConfig(cmd)
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
	command, commandErr := thisCommand()
	signals, forget := handleSignals(ctx, log)
	defer forget()
	server, err := signals.open(func() (*edge.Server, error) {
		document, err := f.document(stdin)
		if err != nil {
			return nil, printProblems(stderr, err)
		}
		for _, w := range document.Warnings {
			printProblem(stderr, "warning", w)
		}
		c := f.config(document, log, stderr)
		c.ShowToken = cli.Terminal(stdout) != nil
		return edge.Open(signals.running, c)
	})
	if errors.Is(err, edge.ErrStopped) {
		<-signals.logged
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	var lost error // the counts, in a hand-over that failed
	defer signals.follow(func(ctx context.Context, by string) {
		if f.configFile != "" {
			log.Info(by+": the policy is read again. --config and key files are read at the start only: restart to apply a change of them. "+
				"The candidate, TLS certificates, the authorities of clients and the token file are read again when they change", "config", f.configFile)
		}
		server.Reload(ctx, by)
	}, func(ctx context.Context) error {
		if commandErr != nil {
			return commandErr
		}
		err := server.HandOver(ctx, command)
		if errors.Is(err, handover.ErrNoCounts) {
			log.Error("ending, because nothing can be counted", "error", err)
			lost = err
			return nil
		}
		return err
	})()
	if err := printStart(stdout, f, server); err != nil {
		return cli.Fail(fmt.Errorf("print what was started: %w", err), "")
	}
	log.Info("serving", "address", server.Addr().String())
	if _, err := pages.DropOwn(); err != nil {
		log.Debug("the memory of the start is kept", "error", err)
	}
	headroom.Keep()
	if err := server.Run(signals.running); err != nil {
		return cli.Fail(err, "")
	}
	<-signals.logged
	log.Info("drained, good-bye")
	if lost != nil {
		return cli.Fail(lost, "start the server again")
	}
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
