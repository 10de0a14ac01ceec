package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"testing"

	"github.com/weirlimit/weir/e2e/selfsigned"
)

// StartTLS is Start for a server that accepts only TLS, with a certificate for 127.0.0.1 and
// localhost. It does not ask for client certificates unless args say so; then it accepts its own.
func StartTLS(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, nil)
	s.setTLS(t, args)
	s.start(t)
	return s
}

func (s *Server) setTLS(t testing.TB, args []string) {
	t.Helper()
	var key string
	s.TLS, s.CAFile, key = certify(t)
	s.args = append([]string{
		"--tls-cert-file", s.CAFile, "--tls-key-file", key, "--tls-ca-cert-file", s.CAFile, "--tls-auth-clients", "no",
	}, args...)
	s.password = passwordIn(args)
}

// certify makes a self-signed certificate, and the client's configuration that trusts it.
func certify(t testing.TB) (client *tls.Config, certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	own, err := selfsigned.Write(certFile, keyFile, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(own.Leaf)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}, certFile, keyFile
}
