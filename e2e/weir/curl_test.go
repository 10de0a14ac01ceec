package weir

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/textproto"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A reply is what curl has received, with header names as sent.
type reply struct {
	status int
	fields [][2]string
	body   string
}

// curl runs curl, an independent client, and parses the answer it prints.
func curl(t *testing.T, args ...string) reply {
	t.Helper()
	out, stderr, err := runCurl(args)
	if err != nil {
		t.Fatalf("curl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	r, err := readReply(bytes.NewReader(out))
	if err != nil {
		t.Fatalf("curl %s: %v in:\n%s", strings.Join(args, " "), err, out)
	}
	return r
}

func runCurl(args []string) (out []byte, stderr bytes.Buffer, err error) {
	cmd := exec.Command("curl", append([]string{"-q", "-s", "-S", "-i", "--max-time", "60"}, args...)...)
	cmd.Stderr = &stderr
	out, err = cmd.Output()
	return out, stderr, err
}

// readReply parses a status line, fields and body. It skips 1xx answers.
func readReply(from io.Reader) (r reply, err error) {
	b := bufio.NewReader(from)
	text := textproto.NewReader(b)
	for {
		line, err := text.ReadLine()
		if err != nil {
			return r, err
		}
		words := strings.Fields(line)
		if len(words) < 2 {
			return r, strconv.ErrSyntax
		}
		if r.status, err = strconv.Atoi(words[1]); err != nil {
			return r, err
		}
		r.fields = nil
		for {
			line, err := text.ReadLine()
			if err != nil {
				return r, err
			}
			if line == "" {
				break
			}
			name, value, _ := strings.Cut(line, ":")
			r.fields = append(r.fields, [2]string{name, strings.TrimSpace(value)})
		}
		if r.status >= 200 {
			break
		}
	}
	body, err := io.ReadAll(b)
	r.body = string(body)
	return r, err
}

// values returns the values of a field; the case of its name does not matter.
func (r reply) values(name string) []string {
	var values []string
	for _, f := range r.fields {
		if strings.EqualFold(f[0], name) {
			values = append(values, f[1])
		}
	}
	return values
}

// one returns the value of a field that must occur exactly once, with exactly this
// spelling.
func (r reply) one(t *testing.T, name string) string {
	t.Helper()
	values := r.values(name)
	if len(values) != 1 {
		t.Fatalf("the answer has %d fields %s, want 1: %d %v", len(values), name, r.status, r.fields)
	}
	for _, f := range r.fields {
		if strings.EqualFold(f[0], name) && f[0] != name {
			t.Fatalf("the field %s is spelled %s", name, f[0])
		}
	}
	return values[0]
}

// integer is one for a field that is an integer.
func (r reply) integer(t *testing.T, name string) int64 {
	t.Helper()
	value := r.one(t, name)
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != value {
		t.Fatalf("%s: %q is no plain integer", name, value)
	}
	return n
}

// code returns the code of the error in the body.
func (r reply) code(t *testing.T) string {
	t.Helper()
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(r.body), &body); err != nil {
		t.Fatalf("the body of the %d is not JSON: %v: %q", r.status, err, r.body)
	}
	if body.Error.Message == "" {
		t.Errorf("the error of the %d has no message: %q", r.status, r.body)
	}
	return body.Error.Code
}

const (
	widgetMessage = "Too many widget requests for this conversation. Please slow down."
	syncMessage   = "Too many sync requests for this workspace token. Please slow down."
)

// wantStanding checks the three fields that every answer of a surface has
// (contract, section 5).
func wantStanding(t *testing.T, r reply, limit, per int64) {
	t.Helper()
	remaining, reset := r.integer(t, "X-RateLimit-Remaining"), r.integer(t, "X-RateLimit-Reset")
	if got := r.integer(t, "X-RateLimit-Limit"); got != limit {
		t.Errorf("X-RateLimit-Limit is %d, want %d", got, limit)
	}
	if remaining < 0 || remaining > limit {
		t.Errorf("X-RateLimit-Remaining is %d of %d", remaining, limit)
	}
	date, err := http.ParseTime(r.one(t, "Date"))
	if err != nil {
		t.Fatal(err)
	}
	if left := reset - date.Unix(); left < 1 || left > per {
		t.Errorf("X-RateLimit-Reset is %d s after Date, want 1 to %d", left, per)
	}
	if r.status != http.StatusTooManyRequests && len(r.values("Retry-After")) > 0 {
		t.Errorf("a %d has Retry-After", r.status)
	}
}

// wantRefusal checks that a 429 has exactly the contract's format (section 7).
func wantRefusal(t *testing.T, r reply, limit int64, per time.Duration, message string) {
	t.Helper()
	if r.status != http.StatusTooManyRequests {
		t.Fatalf("status %d, want 429: %s", r.status, r.body)
	}
	wantStanding(t, r, limit, int64(per.Seconds()))
	if got := r.one(t, "Content-Type"); got != "application/json" {
		t.Errorf("Content-Type is %q", got)
	}
	if got := r.integer(t, "X-RateLimit-Remaining"); got != 0 {
		t.Errorf("X-RateLimit-Remaining is %d on a 429", got)
	}
	date, err := http.ParseTime(r.one(t, "Date"))
	if err != nil {
		t.Fatal(err)
	}
	if after, left := r.integer(t, "Retry-After"), r.integer(t, "X-RateLimit-Reset")-date.Unix(); after != left {
		t.Errorf("Retry-After is %d, and X-RateLimit-Reset - Date %d", after, left)
	}
	want := `{"error":{"code":"rate_limited","message":"` + message + `"}}`
	if got := strings.TrimSpace(r.body); got != want {
		t.Errorf("the body is\n%s, want\n%s", got, want)
	}
}
