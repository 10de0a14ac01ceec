//go:build linux

package weir

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
)

// Envoy goes on asking at the same addresses, by gRPC and by HTTP, while another process takes the
// place of the one that answered, and nothing that was counted is forgotten.
func TestASwapKeepsWhereEnvoyAsks(t *testing.T) {
	s := serveRLS(t, rlsConfig(t, rlsLimits), nil, nil)
	w := newSwapped(t, &server{process: s.process})
	body, err := protojson.Marshal(rlsRequest("edge", 1, "user=a"))
	if err != nil {
		t.Fatal(err)
	}
	byHTTP := func() int {
		t.Helper()
		res, err := http.Post(s.http+"/json", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	if got := s.ask(t, rlsRequest("edge", 1, "user=a")); got != "OK OK/2" {
		t.Errorf("the first answer is %s", got)
	}
	w.swap()
	if got := byHTTP(); got != http.StatusOK {
		t.Errorf("the second answer, by HTTP, is %d", got)
	}
	w.swap()
	if got := s.ask(t, rlsRequest("edge", 1, "user=a")); got != "OK OK/0" {
		t.Errorf("the third answer is %s", got)
	}
	if got := byHTTP(); got != http.StatusTooManyRequests {
		t.Errorf("the fourth answer, by HTTP, is %d", got)
	}
	if got := s.ask(t, rlsRequest("edge", 1, "user=a")); got != "OVER_LIMIT OVER_LIMIT/0" {
		t.Errorf("the fifth answer is %s", got)
	}
	w.end()
}
