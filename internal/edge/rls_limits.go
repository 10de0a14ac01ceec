package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/rls"
	"github.com/weirlimit/weir/internal/rls/config"
	"github.com/weirlimit/weir/internal/rls/xds"
)

// An XDS is a control plane that has the configuration of RLS.
type XDS struct {
	Address string // HOST:PORT; empty: none
	Node    string // the id of this server there
	// CAFile has the authorities that its certificate is verified by, which switches on TLS.
	CAFile string
	// CertFile and KeyFile are the certificate that it is shown; empty: none.
	CertFile, KeyFile string
}

// origin returns where the limits come from.
func (r *RLS) origin() string {
	if r.XDS.Address != "" {
		return "the control plane at " + r.XDS.Address
	}
	return r.Config
}

// rlsLimits puts the configuration in force, unless a control plane has it. follow does so again
// when it changes, until its context ends.
func rlsLimits(c *Config, service *rls.Service) (follow func(context.Context), err error) {
	r, from := &c.RLS, config.Options{Merge: c.RLS.MergeDomains}
	if r.XDS.Address == "" {
		files, err := service.Load(r.Config, from)
		if err != nil {
			return nil, cli.Fail(fmt.Errorf("--rls-config: %w", err), "--rls-config needs a file, or a directory of files, in the format of envoyproxy/ratelimit: see docs/envoy.md")
		}
		return func(ctx context.Context) { service.Follow(ctx, r.Config, from, files) }, nil
	}
	o := xds.Options{Address: r.XDS.Address, Node: r.XDS.Node, Log: c.Log, Use: func(files []config.File) error { return service.Use(files, r.origin(), from) }}
	if r.XDS.CAFile != "" {
		o.TLS = r.XDS.tls
		if _, err := o.TLS(); err != nil {
			return nil, cli.Fail(err, "--rls-xds-ca, --rls-xds-cert and --rls-xds-key must be PEM files; the last two belong together")
		}
	}
	return func(ctx context.Context) { xds.Follow(ctx, o) }, nil
}

// tls reads the files.
func (x *XDS) tls() (*tls.Config, error) {
	text, err := os.ReadFile(x.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of the control plane: %w", err)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !secure.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the authorities of the control plane: %s has no certificate", x.CAFile)
	}
	if x.CertFile == "" {
		return secure, nil
	}
	own, err := tls.LoadX509KeyPair(x.CertFile, x.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate for the control plane: %w", err)
	}
	secure.Certificates = []tls.Certificate{own}
	return secure, nil
}
