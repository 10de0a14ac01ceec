package events_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// receive returns the handler of a webhook whose secret is the text after whsec_.
func receive(secret string, handle func(id string, event []byte)) http.HandlerFunc {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	return func(w http.ResponseWriter, r *http.Request) {
		id, at := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		seconds, _ := strconv.ParseInt(at, 10, 64)
		age := time.Since(time.Unix(seconds, 0)).Abs()
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + at + "." + string(body)))
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		for signature := range strings.FieldsSeq(r.Header.Get("webhook-signature")) {
			if err == nil && age < 5*time.Minute && hmac.Equal([]byte(signature), []byte(want)) {
				handle(id, body) // an id that was handled before is the same event again
				return
			}
		}
		http.Error(w, "not signed with the secret", http.StatusUnauthorized)
	}
}

// The page for operators shows the receiver that these tests run.
func TestThePageShowsTheReceiverThatIsTested(t *testing.T) {
	source, err := os.ReadFile("receiver_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "// receive returns")
	code, _, _ = strings.Cut(code, "\n}\n")
	page, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "// receive returns" + code + "\n}\n"; !strings.Contains(string(page), want) {
		t.Errorf("docs/operate.md lacks\n%s", want)
	}
}
