package main

import (
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/edge"
)

// printStart prints what was started, and blocks to paste into a shell if it knows some that fit.
func printStart(w io.Writer, f *serveFlags, s *edge.Server) error {
	var b strings.Builder
	rows := s.Rows()
	sample := s.Workspace() != ""
	_, isSocket := strings.CutPrefix(s.URL(), "unix:")
	if sample && !isSocket {
		rows = append(rows, edge.Row{Name: "demo", Text: s.URL() + "/demo"}, edge.Row{Name: "docs", Text: s.URL() + "/docs"})
	}
	for _, row := range rows {
		fmt.Fprintf(&b, "%-10s %s\n", row.Name, row.Text)
	}
	if sample {
		printBlocks(&b, f, s)
	}
	b.WriteString("\nready\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// maxToPaste is how many requests a block to paste may send.
const maxToPaste = 2000

// printBlocks prints, for each surface of the sample backend, commands that end in a 429, unless
// the policy makes that impossible or it takes too many requests.
func printBlocks(b *strings.Builder, f *serveFlags, s *edge.Server) {
	url, curl := s.URL(), "curl -sS"
	if path, ok := strings.CutPrefix(url, "unix:"); ok {
		url = map[bool]string{false: "http", true: "https"}[f.secure()] + "://" + edge.SocketPeer.String() + ":80"
		curl += " --unix-socket " + quoted(path)
	}
	if f.secure() {
		curl += " -k"
	}
	if bool(f.proxyProtocol) && f.trusts(url) {
		curl += " --haproxy-protocol"
	}
	if n, limiter := admits(s, "POST", "/api/v1/widget/leads"); n > 0 {
		fmt.Fprintf(b, `
A visitor begins a session and sends leads; %[1]s admits %[2]d. Paste:

    SESSION=$(%[3]s %[4]s/api/v1/widget/init -H 'Content-Type: application/json' -d '{"agent_id":"%[5]s"}' | sed 's/.*"token":"\([^"]*\)".*/\1/')
    lead() { %[3]s "$@" %[4]s/api/v1/widget/leads -H "Authorization: Bearer $SESSION" -H 'Content-Type: application/json' -d '{"email":"ada@example.com"}'; }
    for i in $(seq %[2]d); do lead -o /dev/null -w '%%{http_code} '; done; echo
    lead -i; echo
`, limiter, n, curl, url, s.Workspace())
	}
	if n, limiter := admits(s, "GET", "/v1/wp/status"); n > 0 {
		fmt.Fprintf(b, `
A workspace creates an API token and syncs; %[1]s admits %[2]d requests. Paste:

    TOKEN=$(%[3]s token create --workspace %[4]s --data %[5]s)
    wp_status() { %[6]s "$@" %[7]s/v1/wp/status -H "Authorization: Bearer $TOKEN"; }
    for i in $(seq %[2]d); do wp_status -o /dev/null -w '%%{http_code} '; done; echo
    wp_status -i; echo
`, limiter, n, itself(), s.Workspace(), quoted(absolute(f.data)), curl, url)
	}
}

// admits returns how many requests a new caller has in the tightest window of the limiter that
// covers a route; 0 if a block to paste cannot show that.
func admits(s *edge.Server, method, path string) (n int64, limiter string) {
	l := s.Decider().Match(method, "", path).Limiter()
	if l == nil {
		return 0, ""
	}
	n = math.MaxInt64
	for _, w := range l.Windows {
		cost := max(l.Cost, 1)
		if w.Requests {
			cost = 1
		}
		n = min(n, w.Limit/cost)
	}
	if n > maxToPaste {
		return 0, ""
	}
	return n, l.Name
}

// trusts reports whether a connection from this machine to url comes from a trusted proxy.
func (f *serveFlags) trusts(url string) bool {
	_, at, _ := strings.Cut(url, "://")
	addr, err := netip.ParseAddrPort(at)
	if err != nil {
		return false
	}
	return f.trustsPeer(addr.Addr())
}

// trustsPeer reports whether an address is that of a trusted proxy.
func (f *serveFlags) trustsPeer(addr netip.Addr) bool {
	return slices.ContainsFunc(f.trustedProxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// itself returns the shell's word for this program: its name if the shell finds it by that, or its
// path.
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

// quoted returns s as one word of a POSIX shell.
func quoted(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
