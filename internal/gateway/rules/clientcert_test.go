package rules

import (
	"crypto/x509"
	"testing"
	"time"
)

// What a caller says about a certificate is dropped where Weir asks for certificates itself, and
// only there. Fields that are similar, and about something else, are forwarded.
func TestFieldsAboutCertificatesAreForwardedWithoutClientCA(t *testing.T) {
	var asks, not Rules
	asks.Holds = func([][]*x509.Certificate, time.Time) bool { return true }
	for _, name := range []string{
		"X-Client-DN", "x-client-dn", "X-Client-Verify", "X-Client-Verified", "X-Client-Subject", "X-Client-Subject-DN", "X-Client-Cert", "X-Client-Certificate",
		"X-Client-Cert-Present", "X-Client-Fingerprint", "X-TLS-Client-Cert", "X-Tls-Client-Cert-Der-Base64", "TLS-Client-DN", "ssl-client-verify",
		"X-SSL-Client-S-DN", "X-SSL-Issuer", "X-SSL-CERT", "X-Amzn-Mtls-Clientcert-Leaf", "X-ARR-ClientCert", "Cf-Cert-Verified", "cf-client-cert-sha256",
		"X-CERT-SUBJECT-DN", "SSLClientCertStatus", "Client-Cert-Subject", "DN", "VERIFIED", "mtls-Client-Certificate-Valid",
	} {
		if !asks.HidesName(name) {
			t.Errorf("%s is forwarded", name)
		}
		if not.HidesName(name) {
			t.Errorf("%s is not forwarded, although no client is asked for a certificate", name)
		}
	}
	for _, name := range []string{"DNT", "X-Client-Version", "X-Client-Id", "X-Client-Data", "X-Client-Name", "X-SSL", "Client-Id", "Verified-By", "X-Certainty", "TLS", "SSL", "_", "é"} {
		if asks.HidesName(name) {
			t.Errorf("%s is not forwarded", name)
		}
	}
}
