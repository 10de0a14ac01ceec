package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
)

// configOf returns the server that flags describe.
func configOf(t *testing.T, args ...string) edge.Config {
	t.Helper()
	f := defaultServeFlags()
	cmd := newServe(nil)
	cmd.ResetFlags()
	f.register(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return f.config(new(live.Document), slog.New(slog.DiscardHandler), io.Discard)
}

// Each flag about time or size sets its own limit. What the limits do is tested on sockets, in
// internal/gateway.
func TestEachFlagOfTimeAndSizeSetsItsLimit(t *testing.T) {
	for _, test := range []struct {
		flag, value string
		change      func(*gateway.Limits)
	}{
		{"--header-timeout", "3s", func(l *gateway.Limits) { l.Header = 3 * time.Second }},
		{"--keepalive-timeout", "4s", func(l *gateway.Limits) { l.Idle = 4 * time.Second }},
		{"--drain-timeout", "5s", func(l *gateway.Limits) { l.Drain = 5 * time.Second }},
		{"--max-body", "10MiB", func(l *gateway.Limits) { l.Body = 10 << 20 }},
		{"--max-body", "off", func(l *gateway.Limits) { l.Body = -1 }},
		{"--stream-idle-timeout", "1h", func(l *gateway.Limits) { l.Stream = time.Hour }},
		{"--stream-idle-timeout", "off", func(*gateway.Limits) {}},
		{"--upstream-connect-timeout", "1s", func(l *gateway.Limits) { l.Connect = time.Second }},
		{"--upstream-response-timeout", "5m", func(l *gateway.Limits) { l.Upstream = 5 * time.Minute }},
		{"--upstream-response-timeout", "off", func(l *gateway.Limits) { l.Upstream = -1 }},
		{"--upstream-idle-timeout", "10s", func(l *gateway.Limits) { l.UpstreamIdle = 10 * time.Second }},
	} {
		want := configOf(t).Limits
		test.change(&want)
		if got := configOf(t, test.flag, test.value).Limits; got != want {
			t.Errorf("%s %s makes the limits %+v, want %+v", test.flag, test.value, got, want)
		}
	}
	c := configOf(t, "--health-check", "/healthz", "--health-check-interval", "2s")
	if want := (gateway.HealthCheck{Path: "/healthz", Every: 2 * time.Second}); c.HealthCheck != want {
		t.Errorf("the health check is %+v, want %+v", c.HealthCheck, want)
	}
	if off := configOf(t, "--health-check", "off").HealthCheck; off.Path != "" {
		t.Errorf("a health check that is off asks for %q", off.Path)
	}
}

func TestTheDefaultsOfTimeAndSizeAreTheGateways(t *testing.T) {
	for _, upstream := range []bool{false, true} {
		got, want := configOf(t).Limits.WithDefaults(upstream), gateway.Limits{Linger: edge.Goodbye}.WithDefaults(upstream)
		if got != want {
			t.Errorf("before an upstream %v: %+v, want %+v", upstream, got, want)
		}
	}
}

// The table of times and sizes has every flag with its default.
func TestThePageOfOperatorsHasTheTimesAndSizes(t *testing.T) {
	page := documents(t)["docs/operate.md"]
	f, cmd := defaultServeTimes(), new(cobra.Command)
	f.register(cmd)
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		byDefault := flag.DefValue
		if flag.Name == "max-body" {
			byDefault = "off" // before an upstream
		}
		if row := fmt.Sprintf("\n| `--%s` | `%s`", flag.Name, byDefault); !strings.Contains(page, row) {
			t.Errorf("docs/operate.md has no row %q", row)
		}
	})
}
