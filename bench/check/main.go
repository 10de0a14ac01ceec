// Command check measures what it costs nginx to ask `weir serve --forward-auth` about each request.
// Beside it the same nginx asks another nginx that always answers 204 with the same fields, and the
// same nginx answers the subrequest itself. All servers, with the backend, share one core, and the
// callers have the others. Each turn runs the contestants one after another.
//
//	go run ./check             a table on standard output: a minute and a half
//	go run ./check -seconds 1  a quick look
//
// It needs Linux with two cores, nginx, and taskset of util-linux.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirlimit/weir/bench/servers"
)

// policy admits everything: a refusal is another request of nginx.
const policy = "{limiters: [{name: all, routes: [/*], windows: [1000000000 per hour by ip]}]}"

// floor is a server of nginx that answers at an address.
const floor = "server { listen %s; access_log off; keepalive_requests 1000000000; location / { return %s; } %s }\n"

// fields are those of an admitted request.
const fields = "add_header X-RateLimit-Limit 1000000000; add_header X-RateLimit-Remaining 999999999; add_header X-RateLimit-Reset 1795321645;"

// itself answers the subrequest in the nginx that makes it.
const itself = "location = /.weir/check { internal; return 204; }\n"

const (
	weirAt, floorAt, backendAt = "127.0.0.1:18501", "127.0.0.1:18502", "127.0.0.1:18503"
	core                       = "0"
)

// A contestant is an nginx in front of the backend.
type contestant struct {
	name, at string
	pids     []int // of nginx's worker, of what it asks, and of the backend
	asks     int   // the process that it asks; 0: none
}

func (c contestant) String() string { return c.name }

func main() {
	seconds := flag.Int("seconds", 4, "how long each nginx is asked in a turn")
	turns := flag.Int("turns", 5, "how many turns")
	profile := flag.Bool("wait", false, "start all, print the addresses, and wait: for a profile")
	flag.Parse()
	if err := run(context.Background(), time.Duration(*seconds)*time.Second, *turns, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, length time.Duration, turns int, wait bool) error {
	dir, err := os.MkdirTemp("", "weir-check")
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
	if wait {
		for _, c := range all {
			fmt.Println(c.name, c.at, c.pids)
		}
		<-ctx.Done()
	}
	measured, err := servers.Turns(turns, all, func(c contestant) (figures, error) { return c.turn(length) })
	if err != nil {
		return err
	}
	fmt.Println("| nginx asks | requests a second | CPU of a request, all servers | CPU of what it asks |\n|---|---|---|---|")
	for i, c := range all {
		m := measured[i]
		fmt.Printf("| %s | %.0f | %.1f µs | %.1f µs |\n", c.name, servers.Median(m, func(f figures) float64 { return f.rate }),
			servers.Median(m, func(f figures) float64 { return f.cpu }), servers.Median(m, func(f figures) float64 { return f.asked }))
	}
	return nil
}

func contestants(ctx context.Context, set *servers.Set) (all []contestant, err error) {
	weir := filepath.Join(set.Dir, "weir")
	example, err := os.ReadFile("../examples/nginx/nginx.conf")
	err = errors.Join(err, servers.Build(ctx, "..", weir, "./cmd/weir"), os.WriteFile(filepath.Join(set.Dir, "policy.yaml"), []byte(policy), 0o600))
	if err != nil {
		return nil, err
	}
	pinned := func(name, at string, program string, args ...string) int {
		return set.Start(ctx, name, at, nil, "taskset", append([]string{"-c", core, program}, args...)...)
	}
	askedAt := []string{weirAt, floorAt, ""}
	asked := []int{
		pinned("Weir", weirAt, weir, "serve", "--policy", "policy.yaml", "--data", "data", "--access-log=off", "--forward-auth", weirAt, "--forward-auth-proxy", "nginx", "--forward-auth-peers", "127.0.0.1",
			"--admin", ""),
		startNginx(pinned, set.Dir, "floor", floorAt, "http {\n"+fmt.Sprintf(floor, floorAt, "204", fields)+"}"), 0,
	}
	backend := startNginx(pinned, set.Dir, "backend", backendAt, "http {\n"+fmt.Sprintf(floor, backendAt, `200 "hello\n"`, "")+"}")
	for i, name := range []string{"Weir", "an nginx that always answers 204", "nothing: it answers 204 itself"} {
		at := fmt.Sprintf("127.0.0.1:%d", 18510+i)
		_, http, _ := strings.Cut(string(example), "http {")
		http = "http {\naccess_log off;\nkeepalive_requests 1000000000;\n" + strings.NewReplacer("listen 8080", "listen "+at, "127.0.0.1:9000", askedAt[i], "127.0.0.1:3000", backendAt).Replace(http)
		if asked[i] == 0 {
			before, rest, _ := strings.Cut(http, "location = /.weir/check {")
			_, after, _ := strings.Cut(rest, "}")
			http = strings.Replace(before+itself+after, "server ;", "server "+weirAt+";", 1)
		}
		c := contestant{name: name, at: at, asks: asked[i], pids: []int{startNginx(pinned, set.Dir, fmt.Sprint("front", i), at, http), backend}}
		if c.asks != 0 {
			c.pids = append(c.pids, c.asks)
		}
		all = append(all, c)
	}
	return all, set.Err()
}

// startNginx starts an nginx of one process.
func startNginx(start func(name, at, program string, args ...string) int, dir, name, at, http string) int {
	own := filepath.Join(dir, name)
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx"
	}
	head := fmt.Sprintf("daemon off;\nmaster_process off;\npid %s/pid;\nerror_log stderr crit;\nevents { worker_connections 1024; }\n", own)
	temporary := "http {\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, own, kind)
	}
	conf := filepath.Join(own, "nginx.conf")
	_ = os.MkdirAll(own, 0o700)
	if err := os.WriteFile(conf, []byte(head+strings.Replace(http, "http {\n", temporary, 1)), 0o600); err != nil {
		return 0 // nginx reports it
	}
	return start(name, at, program, "-p", own, "-c", conf, "-e", "stderr")
}
