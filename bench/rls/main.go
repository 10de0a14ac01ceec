// Command rls measures `weir serve --rls` as Envoy sees it, over gRPC on loopback: with the
// embedded store beside a server of grpc-go that answers OK to everything, and with Redis beside
// envoyproxy/ratelimit. Each turn runs the servers one after another, and the CPU is that of the
// server's process alone.
//
//	go run ./rls             a table on standard output: three minutes
//	go run ./rls -users 100  the same, of tenants whose budgets many callers share
//	go run ./rls -seconds 1  a quick look
//
// It needs Linux, redis-server, and what e2e/envoyratelimit downloads.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weirlimit/weir/bench/servers"
)

// limits admit everything: a refusal is cheaper.
const limits = "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000000000}}\n"

type options struct {
	seconds, turns, users int
	ok                    string
}

func main() {
	var o options
	flag.IntVar(&o.seconds, "seconds", 4, "how long each server is asked in a turn")
	flag.IntVar(&o.turns, "turns", 5, "how many turns")
	flag.IntVar(&o.users, "users", 100_000, "how many users there are, each with a limit of its own")
	flag.StringVar(&o.ok, "ok", "", "serve OK at this address, until killed")
	flag.Parse()
	err := serveOK(o.ok)
	if o.ok == "" {
		err = run(context.Background(), o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "weir-rls")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, stop, err := contestants(ctx, dir)
	defer stop()
	if err != nil {
		return err
	}
	measured, err := servers.Turns(o.turns, all, func(c contestant) (figures, error) { return c.turn(ctx, o) })
	if err != nil {
		return err
	}
	fmt.Println("| server | decisions a second | CPU of a decision | p99 |\n|---|---|---|---|")
	for i, c := range all {
		m := measured[i]
		fmt.Printf("| %s | %.0f | %.1f µs | %v |\n", c.name, servers.Median(m, func(f figures) float64 { return f.rate }), servers.Median(m, func(f figures) float64 { return f.cpu }),
			time.Duration(servers.Median(m, func(f figures) float64 { return float64(f.p99) })).Round(10*time.Microsecond))
	}
	return nil
}

// A contestant is a server that answers at an address.
type contestant struct {
	name, at string
	pid      int
}

func (c contestant) String() string { return c.name }

// contestants starts all servers. stop ends those that have started, also after an error.
func contestants(ctx context.Context, dir string) (all []contestant, stop func(), err error) {
	set := &servers.Set{Dir: dir}
	stop = set.Stop
	start := func(name, at string, env []string, program string, args ...string) {
		all = append(all, contestant{name, at, set.Start(ctx, name, at, env, program, args...)})
	}
	weir, theirs := filepath.Join(dir, "weir"), filepath.Join(dir, "ratelimit")
	err = errors.Join(
		servers.Build(ctx, "..", weir, "./cmd/weir"),
		servers.Build(ctx, "../e2e/envoyratelimit", theirs, "github.com/envoyproxy/ratelimit/src/service_cmd"),
		os.MkdirAll(filepath.Join(dir, "config"), 0o700), os.WriteFile(filepath.Join(dir, "config", "edge.yaml"), []byte(limits), 0o600))
	if err != nil {
		return nil, stop, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, stop, err
	}
	own := []string{"serve", "--rls-config", "config", "--admin", "", "--access-log=off"}
	start("grpc-go, always OK", "127.0.0.1:18401", nil, self, "-ok", "127.0.0.1:18401")
	start("Weir, embedded store", "127.0.0.1:18402", nil, weir, append(own, "--data", "embedded", "--rls", "127.0.0.1:18402")...)
	start("redis-server", "127.0.0.1:18405", nil, "redis-server", "--port", "18405", "--save", "", "--appendonly", "no")
	start("Weir, Redis", "127.0.0.1:18403", nil, weir, append(own, "--data", "redis", "--rls", "127.0.0.1:18403", "--store", "redis://127.0.0.1:18405")...)
	start("Weir, Redis, `--leases auto`", "127.0.0.1:18407", nil, weir, append(own, "--data", "leases", "--rls", "127.0.0.1:18407", "--store", "redis://127.0.0.1:18405/1", "--leases", "auto")...)
	env := func(port int, window string) []string {
		return []string{
			"GRPC_HOST=127.0.0.1", fmt.Sprint("GRPC_PORT=", port), "HOST=127.0.0.1", fmt.Sprint("PORT=", port+100), "DEBUG_HOST=127.0.0.1", fmt.Sprint("DEBUG_PORT=", port+200),
			"USE_STATSD=false", "DISABLE_STATS=true", "RUNTIME_ROOT=" + dir, "RUNTIME_WATCH_ROOT=false", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=127.0.0.1:18405", "LOG_LEVEL=ERROR",
			"REDIS_PIPELINE_WINDOW=" + window,
		}
	}
	start("envoyproxy/ratelimit, Redis, as it comes", "127.0.0.1:18404", env(18404, "0"), theirs)
	start("envoyproxy/ratelimit, Redis, writes joined for 150 µs", "127.0.0.1:18406", env(18406, "150us"), theirs)
	return slices.DeleteFunc(all, func(c contestant) bool { return c.name == "redis-server" }), stop, set.Err()
}
