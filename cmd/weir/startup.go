package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/weirlimit/weir/internal/cli"
)

// announce prints what was started, and blocks to paste into a shell where it knows some that fit.
func (e *edge) announce(w io.Writer, f *serveFlags, front *sockets) error {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	url := reachable(front.public.Addr(), f.tlsCert != "")
	row("listening", "%s", front.line(url))
	row("policy", "%s, %s", cmp.Or(f.policy, contractName), cli.Count(len(e.decider.Policy().Limiters), "limiter"))
	if e.candidateLine != "" {
		row("candidate", "%s", e.candidateLine)
	}
	row("store", "%s", e.storeLine)
	if e.adminLine != "" {
		row("admin", "%s", e.adminLine)
	}
	row("backend", "%s", e.backendLine)
	row("engine", "%s", e.engineLine(f))
	row("sessions", "%s", e.sessionsLine)
	row("API tokens", "%s", e.tokensLine)
	if e.tracesLine != "" {
		row("traces", "%s", e.tracesLine)
	}
	if f.demo {
		row("traffic", "%s", demoLine())
	}
	if len(f.upstream) == 0 {
		row("demo", "%s/demo", url)
		row("docs", "%s/docs", url)
		e.printBlocks(&b, f, url)
	}
	b.WriteString("\nready\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// reachable returns a URL under which this machine reaches a listener.
func reachable(addr net.Addr, tls bool) string {
	scheme := "http"
	if tls {
		scheme = "https"
	}
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return scheme + "://" + addr.String()
	}
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	}
	return scheme + "://" + at.String()
}

// mostToPaste is how many requests a block to paste may send.
const mostToPaste = 2000

// printBlocks prints, for each surface of the sample backend, commands that end in a 429, unless the policy makes that
// impossible or takes too many requests.
func (e *edge) printBlocks(b *strings.Builder, f *serveFlags, url string) {
	curl := "curl -sS"
	if f.tlsCert != "" {
		curl += " -k"
	}
	if bool(f.proxyProtocol) && e.trusts(url) {
		curl += " --haproxy-protocol"
	}
	if n, limiter := e.admits("POST", "/api/v1/widget/leads"); n > 0 {
		fmt.Fprintf(b, `
A visitor begins a session and sends leads; %[1]s lets %[2]d through. Paste:

    SESSION=$(%[3]s %[4]s/api/v1/widget/init -H 'Content-Type: application/json' -d '{"agent_id":"%[5]s"}' | sed 's/.*"token":"\([^"]*\)".*/\1/')
    lead() { %[3]s "$@" %[4]s/api/v1/widget/leads -H "Authorization: Bearer $SESSION" -H 'Content-Type: application/json' -d '{"email":"ada@example.com"}'; }
    for i in $(seq %[2]d); do lead -o /dev/null -w '%%{http_code} '; done; echo
    lead -i; echo
`, limiter, n, curl, url, e.workspace)
	}
	if n, limiter := e.admits("GET", "/v1/wp/status"); n > 0 {
		fmt.Fprintf(b, `
A workspace mints an API token and syncs; %[1]s lets %[2]d requests through. Paste:

    TOKEN=$(%[3]s token create --workspace %[4]s --data %[5]s)
    wp_status() { %[6]s "$@" %[7]s/v1/wp/status -H "Authorization: Bearer $TOKEN"; }
    for i in $(seq %[2]d); do wp_status -o /dev/null -w '%%{http_code} '; done; echo
    wp_status -i; echo
`, limiter, n, itself(), e.workspace, quoted(absolute(f.data)), curl, url)
	}
}

// admits returns how many requests a fresh caller has in the tightest window of the limiter that covers a route; 0 where
// that cannot be shown in a paste.
func (e *edge) admits(method, path string) (n int64, limiter string) {
	l := e.decider.Match(method, path).Limiter()
	if l == nil {
		return 0, ""
	}
	n = math.MaxInt64
	for _, w := range l.Windows {
		n = min(n, w.Limit/max(l.Cost, 1))
	}
	if n > mostToPaste {
		return 0, ""
	}
	return n, l.Name
}

// trusts says whether a connection from this machine to url is one from a trusted proxy.
func (e *edge) trusts(url string) bool {
	_, at, _ := strings.Cut(url, "://")
	addr, err := netip.ParseAddrPort(at)
	if err != nil {
		return false
	}
	for _, p := range e.trusted {
		if p.Contains(addr.Addr()) {
			return true
		}
	}
	return false
}

// itself returns the shell's word for this program: its name where that finds it, else its path.
func itself() string {
	path, err := os.Executable()
	if err != nil {
		return "weir"
	}
	if found, err := exec.LookPath("weir"); err == nil {
		a, aErr := os.Stat(found)
		b, bErr := os.Stat(path)
		if aErr == nil && bErr == nil && os.SameFile(a, b) {
			return "weir"
		}
	}
	return quoted(path)
}

func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return abs
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// quoted spells s as one word of a POSIX shell.
func quoted(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
