// Command hostile measures what the clients of HTTP/2 feel while another client attacks: the 99th
// percentile of their answers, beside that without an attack. The server has one core. The measured
// clients send on time, whatever comes back, at a rate that the server bears easily; they and the
// attacker have the other cores.
//
//	go run ./hostile                     each attack, three rounds: three minutes
//	go run ./hostile -attacks PING -engines auto
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weirlimit/weir/bench/page"
)

func main() {
	var p plan
	flag.IntVar(&p.rounds, "rounds", 3, "alternating rounds; the median of the ratios counts")
	flag.DurationVar(&p.length, "length", 3*time.Second, "length of one turn")
	flag.IntVar(&p.rate, "rate", 300, "requests a second of the measured clients")
	flag.IntVar(&p.attackers, "attackers", 1, "attacking connections at a time; one that has ended is made anew")
	only := flag.String("attacks", "", "which attacks, by a part of their names; empty means all")
	engines := flag.String("engines", "auto,std", "which engines of Weir")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, p, *only, strings.Split(*engines, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// A plan is how long is measured, and with how much load.
type plan struct {
	rounds, rate, attackers int
	length                  time.Duration
}

func run(ctx context.Context, p plan, only string, engines []string) error {
	dir, err := os.MkdirTemp("", "weir-bench-hostile")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "weir")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/weir")
	build.Dir, build.Stderr = "..", os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build weir: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(serveUpstream))
	fmt.Printf("%s; %d requests a second, %d attacking connections\n\n", page.Machine(), p.rate, p.attackers)
	rows := [][]string{}
	for _, a := range attacks {
		if !strings.Contains(a.name, only) {
			continue
		}
		row := []string{a.name}
		for _, engine := range engines {
			cell, err := p.measure(ctx, a, filepath.Join(dir, engine), binary, engine, l.Addr().String())
			if err != nil {
				return fmt.Errorf("%s, --engine %s: %w", a.name, engine, err)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	head := []string{"attack"}
	for _, engine := range engines {
		head = append(head, "--engine "+engine+": p99 without, with, ratio")
	}
	fmt.Println(page.Table(head, rows))
	return nil
}

// measure returns a cell of the table.
func (p plan) measure(ctx context.Context, a attack, data, binary, engine, upstream string) (string, error) {
	address, end, err := serve(ctx, data, binary, engine, upstream)
	if err != nil {
		return "", err
	}
	defer end()
	var without, with, ratios []float64
	for range p.rounds {
		calm, err := p.others(ctx, address)
		if err != nil {
			return "", fmt.Errorf("without an attack: %w", err)
		}
		attacking, stop := context.WithCancel(ctx)
		ended := make(chan int, p.attackers)
		for range p.attackers {
			go func() { ended <- a.run(attacking, address) }()
		}
		hostile, err := p.others(ctx, address)
		stop()
		for range p.attackers {
			<-ended
		}
		if err != nil {
			return "", fmt.Errorf("during the attack: %w", err)
		}
		without, with, ratios = append(without, calm), append(with, hostile), append(ratios, hostile/calm)
	}
	return fmt.Sprintf("%s ms, %s ms, %s", page.Digits(page.Median(without)), page.Digits(page.Median(with)), page.Digits(page.Median(ratios))), nil
}

// serve starts weir serve on the first core, and waits until it listens.
func serve(ctx context.Context, data, binary, engine, upstream string) (address string, end func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = l.Addr().String()
	_ = l.Close()
	if err := os.MkdirAll(data, 0o700); err != nil {
		return "", nil, err
	}
	policy := filepath.Join(data, "policy.yaml")
	if err := os.WriteFile(policy, []byte("limiters:\n  - {name: all, routes: [/*], windows: [2000000000 per day by ip]}\n"), 0o600); err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, "taskset", "-c", "0", binary, "serve", "--listen", address, "--admin", "off", "--upstream", "http://"+upstream,
		"--policy", policy, "--data", data, "--access-log=off", "--engine", engine)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start weir: %w", err)
	}
	end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	for range 200 {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return address, end, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	end()
	return "", nil, fmt.Errorf("weir does not listen after 10 s; its log:\n%s", &log)
}

// serveUpstream answers at once, but /hold when its client has gone, and /unread after a second,
// without reading the body.
func serveUpstream(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/hold":
		<-r.Context().Done()
	case "/bytes":
		_, _ = w.Write(make([]byte, 1<<20))
	case "/unread":
		time.Sleep(time.Second)
	default:
		_, _ = w.Write([]byte("ok"))
	}
}
