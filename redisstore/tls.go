package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// tlsConfig returns TLS with the content of the files, or nil for a nil TLS. It sets no ServerName:
// each host is then verified by its own name.
func (o *Options) tlsConfig() (*tls.Config, error) {
	if o.TLS == nil {
		return nil, nil
	}
	config := o.TLS.Clone()
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the authority's certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read the authority's certificates: %s holds none in PEM", o.CAFile)
		}
	}
	if o.CertFile != "" || o.KeyFile != "" {
		cert, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the client's certificate %s and its key %s: %w", o.CertFile, o.KeyFile, err)
		}
		config.Certificates = append(config.Certificates[:len(config.Certificates):len(config.Certificates)], cert)
	}
	return config, nil
}
