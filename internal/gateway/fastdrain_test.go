package gateway

import (
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// A stranger that connects and says nothing, or breaks off in the middle of a TLS handshake, does not hold a drain of the fast engine
// up. (net/http waits five seconds.)
func TestADrainWaitsForNobodyWhoHasNotAsked(t *testing.T) {
	if testEngine != EngineAuto {
		return
	}
	for name, begin := range map[string]string{"nothing": "", "half a handshake": "\x16\x03\x01\x02\x00\x01"} {
		t.Run(name, func(t *testing.T) {
			e := open(t, nil, func(o *Options) {
				behind(t, func(http.ResponseWriter, *http.Request) {})(o)
				dir := t.TempDir()
				o.CertFile, o.KeyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
				certificateFiles(t, o.CertFile, o.KeyFile)
				o.Limits.Drain = time.Minute
				o.Limits.Header = time.Hour
			})
			c := e.dial()
			if _, err := c.Write([]byte(begin)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a connection", func() bool { return e.gateway.Accepted() == 1 })
			began := time.Now()
			e.stop()
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("the drain took %v", took)
			}
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.Copy(io.Discard, c); isTimeout(err) {
				t.Error("the connection is still open")
			}
		})
	}
}
