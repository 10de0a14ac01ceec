package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/gateway"
)

// serveTimes are the flags of weir serve about how long and how much.
type serveTimes struct {
	header, keepalive, drain cli.Span
	maxBody                  cli.SizeOrOff // not given: the default of the backend
	drainNotice              cli.SpanOrOff

	connect      cli.Span
	response     cli.SpanOrOff
	upstreamIdle cli.Span
	streamIdle   cli.SpanOrOff

	check         checkPath
	checkInterval cli.Span
}

func defaultServeTimes() serveTimes {
	d := gateway.Limits{}.WithDefaults(true)
	return serveTimes{
		header:        cli.Span{Duration: d.Header, Min: 100 * time.Millisecond, Max: 10 * time.Minute},
		keepalive:     cli.Span{Duration: d.Idle, Min: 100 * time.Millisecond, Max: time.Hour},
		drain:         cli.Span{Duration: d.Drain, Min: 100 * time.Millisecond, Max: 24 * time.Hour},
		drainNotice:   cli.SpanOrOff{Duration: edge.Goodbye, Min: 100 * time.Millisecond, Max: 24 * time.Hour},
		connect:       cli.Span{Duration: d.Connect, Min: 10 * time.Millisecond, Max: 10 * time.Minute},
		response:      cli.SpanOrOff{Duration: d.Upstream, Min: 10 * time.Millisecond, Max: 24 * time.Hour},
		upstreamIdle:  cli.Span{Duration: d.UpstreamIdle, Min: 100 * time.Millisecond, Max: time.Hour},
		streamIdle:    cli.SpanOrOff{Duration: d.Stream, Min: 100 * time.Millisecond, Max: 30 * 24 * time.Hour},
		checkInterval: cli.Span{Duration: gateway.CheckEvery, Min: 100 * time.Millisecond, Max: 10 * time.Minute},
	}
}

// upstreamTimes are the flags of serveTimes that have no meaning before the sample backend.
var upstreamTimes = []string{"upstream-connect-timeout", "upstream-response-timeout", "upstream-idle-timeout", "health-check", "health-check-interval"}

func (t *serveTimes) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&t.header, "header-timeout", "how long the header of a request, or a TLS handshake, may take from its first byte; then the connection is closed")
	flags.Var(&t.keepalive, "keepalive-timeout", "how long a client's connection may wait for its first or next request")
	flags.Var(&t.maxBody, "max-body", "the largest body of a request, in B, KiB, MiB or GiB, or off; a larger one is answered 413 (default off, and 16MiB before the sample backend)")
	flags.Var(&t.drain, "drain-timeout", "how long requests in flight may take when the server ends; then their connections are closed")
	flags.Var(&t.drainNotice, "drain-notice", "how long a server that ends first serves kept connections, each until its next answer, which announces that it closes; off closes idle ones at once. A process that is replaced (SIGUSR2) does so for two seconds at least")
	flags.Var(&t.streamIdle, "stream-idle-timeout", "how long a websocket, or an upstream's answer without a length such as a stream of events, may be silent, or off")
	flags.Var(&t.connect, "upstream-connect-timeout", "how long a connection to the upstream may take to be made, TLS included; only with --upstream")
	flags.Var(&t.response, "upstream-response-timeout", "how long the upstream may take to begin its answer after a request, or off; then 504; only with --upstream")
	flags.Var(&t.upstreamIdle, "upstream-idle-timeout", "how long the upstream may pause in an answer that has a length, or in reading a request; only with --upstream")
	flags.Var(&t.check, "health-check", "ask each upstream address for this path regularly, and leave it out while it does not answer 200 to 399; empty or off: none; only with --upstream")
	flags.Var(&t.checkInterval, "health-check-interval", "how often, a tenth more or less at random; each may take as long, and 10s at most; only with --health-check")
	for _, name := range []string{"max-body", "drain-notice", "stream-idle-timeout", "upstream-response-timeout", "health-check"} {
		cli.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions([]string{"off"}, cobra.ShellCompDirectiveNoFileComp)))
	}
}

// limits returns what the flags describe.
func (t *serveTimes) limits() gateway.Limits {
	l := gateway.Limits{
		Header:       t.header.Duration,
		Idle:         t.keepalive.Duration,
		Drain:        t.drain.Duration,
		Linger:       t.drainNotice.Duration,
		Connect:      t.connect.Duration,
		Upstream:     t.response.Duration,
		UpstreamIdle: t.upstreamIdle.Duration,
		Stream:       t.streamIdle.Duration,
		Body:         int64(t.maxBody.Size),
	}
	if l.Upstream == 0 {
		l.Upstream = -1
	}
	if t.maxBody.Off {
		l.Body = -1
	}
	return l
}

// checkTimes rejects flags that have no effect.
func (f *serveFlags) checkTimes(cmd *cobra.Command) error {
	if len(f.upstream) == 0 {
		for _, name := range upstreamTimes {
			if cmd.Flags().Changed(name) {
				return cli.UsageError("give --upstream URL, or leave it out", "%s is only for --upstream", cli.GivenAs(cmd, name))
			}
		}
	}
	if f.times.check == "" && cmd.Flags().Changed("health-check-interval") {
		return cli.UsageError("give --health-check PATH too, such as --health-check /healthz", "%s has no effect without --health-check", cli.GivenAs(cmd, "health-check-interval"))
	}
	return nil
}

// A checkPath is the path of health checks, and a query if it has one; empty: none.
type checkPath string

func (p *checkPath) Set(value string) error {
	if value == "" || value == "off" {
		*p = ""
		return nil
	}
	if err := gateway.CheckHealthPath(value); err != nil {
		return errors.New("expected off, or a path such as /healthz, without a host, blanks or #")
	}
	*p = checkPath(value)
	return nil
}

func (p *checkPath) String() string {
	if *p == "" {
		return "off"
	}
	return string(*p)
}

func (p *checkPath) Type() string { return "PATH" }
