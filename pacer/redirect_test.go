package pacer_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// hosts are servers by their host. They record the credentials that each gets.
type hosts struct {
	of map[string]*script

	mu     sync.Mutex
	tokens map[string][]string
}

func (h *hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	h.tokens[r.URL.Host] = append(h.tokens[r.URL.Host], r.Header.Get("Authorization"))
	h.mu.Unlock()
	return h.of[r.URL.Host].RoundTrip(r)
}

func (h *hosts) want(t *testing.T, host string, tokens ...string) {
	t.Helper()
	if got := h.tokens[host]; !slices.Equal(got, tokens) {
		t.Errorf("%s got the credentials %q, want %q", host, got, tokens)
	}
}

const home, away = "api.example.com", "files.example.net"

// newHosts returns a server that redirects to another one, which answers with its replies.
func newHosts(status int, replies ...reply) *hosts {
	moved := with(fields("60", "59", "now+60"), "Location", "http://"+away+"/things")
	return &hosts{tokens: map[string][]string{}, of: map[string]*script{
		home: {replies: []reply{{status: status, header: moved}}}, away: {replies: replies}}}
}

// http.Client drops the credential when it follows a redirect to another host. The pacer sends each
// hop as it is, and counts it for its own host.
func TestARedirectToAnotherHostLeavesTheTokenAtHome(t *testing.T) {
	for _, token := range []string{"Bearer secret", ""} {
		bubble(t, func(t *testing.T) {
			h := newHosts(302, reply{status: 200, header: fields("60", "0", "now+60")})
			p := pacer.New(&pacer.Options{Base: h})
			client := http.Client{Transport: p}
			for range 2 {
				r := request(t, "/things")
				r.Method, r.Body, r.GetBody = "GET", nil, nil
				if r.Header.Del("Authorization"); token != "" {
					r.Header.Set("Authorization", token)
				}
				response, err := client.Do(r)
				if err != nil || response.StatusCode != 200 || response.Request.URL.Host != away {
					t.Fatalf("answered %v, %v", response, err)
				}
				response.Body.Close()
				if b := p.Budget(r); b.Known && b.Remaining != 59 || b.Wait != 0 {
					t.Errorf("the budget of the first host is %+v, want 59 of 60", b)
				}
			}
			h.want(t, home, token, token)
			h.want(t, away, "", "")
			if at := h.of[home].at; at[1] > time.Second {
				t.Errorf("the first host was asked at %v: the other one's budget delayed it", at)
			}
			if at := h.of[away].at; !after(at[1], 60*time.Second) {
				t.Errorf("the other host was asked at %v, want the second time after its Reset", at)
			}
		})
	}
}

// A hop that is refused is sent again to where it was refused, with its body and without the token.
func TestARefusedHopIsSentAgainAsItWas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHosts(307, reply{status: 429, header: map[string]string{"Retry-After": "7"}}, reply{status: 200})
		client := http.Client{Transport: pacer.New(&pacer.Options{Base: h})}
		response, err := client.Do(request(t, "/things"))
		if err != nil || response.StatusCode != 200 {
			t.Fatalf("answered %v, %v", response, err)
		}
		response.Body.Close()
		h.want(t, home, "Bearer secret")
		h.want(t, away, "", "")
		if bodies := h.of[away].bodies; strings.Join(bodies, "|") != "a body|a body" || !after(h.of[away].at[1], 7*time.Second) {
			t.Errorf("the other host got %q at %v, want the body twice, 7s apart", bodies, h.of[away].at)
		}
	})
}
