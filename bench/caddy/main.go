// Command caddy measures what the Caddy module costs Caddy: the CPU of a request to a Caddy with
// it, beside the same Caddy without it, once for a backend (reverse_proxy) and once for a text
// (respond). Each turn runs the contestants one after another.
//
//	go run ./caddy             a table on standard output: two minutes
//	go run ./caddy -seconds 1  a quick look
//
// It needs Linux, and builds Caddy, which takes minutes the first time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir/bench/servers"
)

// program is a Caddy with the module, as xcaddy would write it, and with few of Caddy's own.
const program = `package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/weirlimit/weir/caddy"
)

func main() { caddycmd.Main() }
`

// policy admits everything: a refusal is cheaper.
const policy = "{limiters: [{name: all, routes: [/*], windows: [1000000000 per hour by ip]}]}"

const callers = 32

// A contestant is a Caddy with one site.
type contestant struct {
	name, at string
	pid      int
}

func (c contestant) String() string { return c.name }

// figures are the result of one turn.
type figures struct{ rate, cpu float64 }

func main() {
	seconds := flag.Int("seconds", 4, "how long each Caddy is asked in a turn")
	turns := flag.Int("turns", 5, "how many turns")
	flag.Parse()
	if err := run(context.Background(), time.Duration(*seconds)*time.Second, *turns); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, length time.Duration, turns int) error {
	dir, err := os.MkdirTemp("", "weir-caddy")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	set := &servers.Set{Dir: dir}
	defer set.Stop()
	all, err := contestants(ctx, set)
	if err != nil {
		return err
	}
	measured, err := servers.Turns(turns, all, func(c contestant) (figures, error) { return c.turn(length) })
	if err != nil {
		return err
	}
	fmt.Println("| Caddy | requests a second | CPU of a request |\n|---|---|---|")
	for i, c := range all {
		fmt.Printf("| %s | %.0f | %.1f µs |\n", c.name, servers.Median(measured[i], func(f figures) float64 { return f.rate }), servers.Median(measured[i], func(f figures) float64 { return f.cpu }))
	}
	return nil
}

// contestants builds Caddy and starts one for each site, and a backend in this process.
func contestants(ctx context.Context, set *servers.Set) (all []contestant, err error) {
	source, caddy, limits := filepath.Join(set.Dir, "main.go"), filepath.Join(set.Dir, "caddy"), filepath.Join(set.Dir, "policy.yaml")
	err = errors.Join(os.WriteFile(source, []byte(program), 0o600), os.WriteFile(limits, []byte(policy), 0o600))
	if err == nil {
		err = servers.Build(ctx, "../caddy", caddy, source)
	}
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() { // until the program ends
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	}()
	weir, proxy, text := "weir {\n\t\tpolicy "+limits+"\n\t}\n\t", "reverse_proxy "+l.Addr().String(), "respond hello"
	for i, site := range []struct{ name, directives string }{
		{"reverse_proxy", proxy}, {"weir and reverse_proxy", weir + proxy}, {"respond", text}, {"weir and respond", weir + text},
	} {
		at := fmt.Sprintf("127.0.0.1:%d", 18601+i)
		file := filepath.Join(set.Dir, fmt.Sprint("Caddyfile", i))
		config := fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n\tlog {\n\t\toutput discard\n\t}\n}\nhttp://%s {\n\troute {\n\t%s\n\t}\n}\n", at, site.directives)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return nil, err
		}
		env := []string{"HOME=" + set.Dir, "XDG_CONFIG_HOME=" + set.Dir, "XDG_DATA_HOME=" + set.Dir}
		all = append(all, contestant{site.name, at, set.Start(ctx, site.name, at, env, caddy, "run", "--config", file, "--adapter", "caddyfile")})
	}
	return all, set.Err()
}

// turn asks for a while, and for an eighth of that before without counting.
func (c contestant) turn(length time.Duration) (figures, error) {
	if _, err := servers.Ask(c.at, callers, length/8); err != nil {
		return figures{}, err
	}
	before, err := servers.CPU(c.pid)
	if err != nil {
		return figures{}, err
	}
	start := time.Now()
	n, err := servers.Ask(c.at, callers, length)
	took := time.Since(start)
	after, cpuErr := servers.CPU(c.pid)
	if err := errors.Join(err, cpuErr); err != nil {
		return figures{}, err
	}
	return figures{float64(n) / took.Seconds(), float64((after - before).Microseconds()) / float64(n)}, nil
}
