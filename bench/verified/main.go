// Command verified runs `weir verify` against other rate limiters, and writes the results as a
// table. Each is a real server on loopback, set up as its documentation shows, that admits 20
// requests in 10 seconds from an address. Weir itself comes first.
//
//	go run ./verified                 table and observations on standard output: about two minutes
//	go run ./verified -only httprate  one of them, by a part of the name
//	go run ./verified -docs ../docs   rewrites the table of docs/verify.md
//	go run ./verified -serve ulule    serves one of them, for other tools, until interrupted
//
// A limiter without fixed windows is not wrong: its guarantee differs from the contract's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/weirlimit/weir/bench/page"
)

// The limit and window of every peer.
const (
	limit  = 20
	window = "10 seconds"
)

// policy is what the peers are verified against: their limit, and only the part of the contract
// that they can know.
const policy = `limiters:
  - name: api
    routes: [POST /things/items, /things/*]
    windows: [20 per 10 seconds by ip]
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

type options struct {
	only, serve, docs, weir string
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.only, "only", "", "which peers, by a part of the name; empty means all")
	flag.StringVar(&o.serve, "serve", "", "a peer to serve alone, by a part of the name")
	flag.StringVar(&o.docs, "docs", "", "the directory whose verify.md gets the table")
	flag.StringVar(&o.weir, "weir", "", "the weir binary; empty builds it")
	flag.Parse()
	dir, err := os.MkdirTemp("", "weir-verified")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.weir == "" {
		o.weir = filepath.Join(dir, "weir")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.weir, "./cmd/weir")
		build.Dir, build.Stderr = "..", os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build weir: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o600); err != nil {
		return err
	}
	w := world{dir: dir, weir: o.weir}
	if o.serve != "" {
		return serveOne(ctx, w, o.serve)
	}
	all, err := verifyAll(ctx, w, o.only)
	if err != nil {
		return err
	}
	text := all.markdown()
	fmt.Print(text)
	if o.docs == "" {
		return nil
	}
	return page.Fill(filepath.Join(o.docs, "verify.md"), "verified", text)
}

// serveOne serves one peer until ctx ends.
func serveOne(ctx context.Context, w world, name string) error {
	for _, p := range peers {
		if !strings.Contains(p.name, name) {
			continue
		}
		url, stop, err := p.start(ctx, w)
		if err != nil {
			return fmt.Errorf("start %s: %w", p.name, err)
		}
		defer stop()
		fmt.Println(url)
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("serve %q: there is no such peer", name)
}

// verifyAll verifies one peer after another.
func verifyAll(ctx context.Context, w world, only string) (results, error) {
	all := results{machine: fmt.Sprintf("%s, %s/%s, %d cores", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())}
	for _, p := range peers {
		if !strings.Contains(p.name, only) {
			continue
		}
		url, stop, err := p.start(ctx, w)
		if err != nil {
			return all, fmt.Errorf("start %s: %w", p.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s at %s\n", p.name, url)
		r, err := w.verify(ctx, url)
		stop()
		if err != nil {
			return all, fmt.Errorf("verify %s: %w", p.name, err)
		}
		version, err := p.version(ctx, w)
		if err != nil {
			return all, fmt.Errorf("the version of %s: %w", p.name, err)
		}
		all.add(p, version, r)
	}
	if len(all.of) == 0 {
		return all, errors.New("there is no such peer")
	}
	return all, nil
}
