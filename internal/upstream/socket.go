package upstream

import (
	"context"
	"encoding/hex"
	"net"
	"net/url"
	"strings"
)

// socketHosts is the end of the hosts that stand for Unix sockets where only a host can stand, such
// as in net/http. No name ends so (RFC 6761, section 6.4).
const socketHosts = ".socket.invalid:80"

// socketHost returns the host:port that stands for a socket's path.
func socketHost(path string) string { return hex.EncodeToString([]byte(path)) + socketHosts }

// SocketOf returns the path of the Unix socket that a host:port stands for; ok is false if it is a
// host's.
func SocketOf(host string) (path string, ok bool) {
	digits, ok := strings.CutSuffix(host, socketHosts)
	if !ok {
		return "", false
	}
	decoded, err := hex.DecodeString(digits)
	return string(decoded), err == nil && len(decoded) > 0
}

// Dial connects to the host:port of an Address by a dialer's function, which may be that of
// net.Dialer.
func Dial(ctx context.Context, host string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (net.Conn, error) {
	if path, ok := SocketOf(host); ok {
		return dial(ctx, "unix", path)
	}
	return dial(ctx, "tcp", host)
}

// IsSocket reports whether a URL names a Unix socket: unix:/run/app.sock.
func IsSocket(u *url.URL) bool { return u.Scheme == "unix" }
