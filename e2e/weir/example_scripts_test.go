package weir

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/policyfile"
)

// A script goes through the comment and the limiters of one policy of examples, sentence by
// sentence. It is played on the whole edge, and on changed policies, of which it must notice each
// (example_mutants_test.go).
type script struct {
	file  string   // below examples
	hosts []string // those that have a backend; none: all
	play  func(*stage)
	// outage is played on another stage, whose store does not answer; nil: not at all.
	outage func(*stage)
}

var (
	publicAPIScript    = script{file: "policies/public-api.yaml", play: playPublicAPI, outage: countedHere("GET /api/x", "GET /api/search")}
	loginScript        = script{file: "policies/login.yaml", play: playLogin, outage: loginWithoutStore}
	llmScript          = script{file: "policies/llm-api.yaml", play: playLLM, outage: llmWithoutStore}
	severalSitesScript = script{file: "policies/several-sites.yaml", play: playSeveralSites, hosts: []string{"api.example.com", "shop.example.com"}}
	costlyScript       = script{file: "costly.yaml", play: playCostly, outage: costlyWithoutStore}
	serveScript        = script{file: "serve/policy.yaml", play: playServe}
	simulatedLLMScript = script{file: "simulate/llm.yaml", play: playSimulatedLLM}
	stricterScript     = script{file: "simulate/stricter.yaml", play: playStricter}
)

func TestThePublicAPIExampleDoesWhatItSays(t *testing.T)    { publicAPIScript.onEdge(t) }
func TestTheLoginExampleDoesWhatItSays(t *testing.T)        { loginScript.onEdge(t) }
func TestTheLLMExampleDoesWhatItSays(t *testing.T)          { llmScript.onEdge(t) }
func TestTheSeveralSitesExampleCountsAsItSays(t *testing.T) { severalSitesScript.onEdge(t) }
func TestTheCostlyExampleDoesWhatItSays(t *testing.T)       { costlyScript.onEdge(t) }
func TestTheServeExampleDoesWhatItSays(t *testing.T)        { serveScript.onEdge(t) }
func TestTheSimulateExamplesDoWhatTheySay(t *testing.T) {
	simulatedLLMScript.onEdge(t)
	stricterScript.onEdge(t)
}

// onEdge plays the script on the whole edge.
func (s *script) onEdge(t *testing.T) {
	t.Helper()
	s.play(onEdge(t, s, edge.Store{}))
	if s.outage != nil {
		var unreachable edge.Store
		if err := unreachable.Set("redis://127.0.0.1:1"); err != nil {
			t.Fatal(err)
		}
		s.outage(onEdge(t, s, unreachable))
	}
}

func playPublicAPI(s *stage) {
	reads := []string{"GET /api/things", "HEAD /api/", "GET /api/searches", "GET /api/searchx", "GET /api/deep/er"}
	writes := []string{"POST /api/things", "PUT /api/", "PATCH /api/x", "DELETE /api/x/y", "POST /api/search"}

	// Everybody may read. With a token a caller has a budget of its own, from any address.
	s.counts("20 per second by token or ip", "", reads...)
	s.fills("600 per minute by token or ip", 1, sender{from: here, token: standard}, reads[0])
	s.fills("600 per minute by token or ip", 1, sender{from: here}, reads[0])

	// Writing needs a token, and has a budget beside that of reading.
	s.counts("60 per minute by token or ip", "token", writes...)
	s.counts("30 per minute by token or ip", "", "GET /api/search", "HEAD /api/search")
	s.fresh()
	asked := s.asked.Load()
	for _, v := range []sender{{from: here}, {from: here, token: "nonsense"}, {from: here, session: "ada"}} {
		if c := s.send(v, writes[0]); c.status != http.StatusUnauthorized {
			s.Errorf("a write without a token is answered %d", c.status)
		}
	}
	if s.asked.Load() != asked {
		s.Errorf("the backend got a write without a token")
	}
	s.want(s.send(sender{from: here, token: "nonsense"}, reads[0]), 200, 20, 19, 1)
	for _, first := range []struct {
		target string
		limit  int64
		reset  int64
	}{{reads[0], 20, 1}, {writes[0], 60, 60}, {"GET /api/search", 30, 60}} {
		s.want(s.send(sender{from: there, token: standard}, first.target), 200, first.limit, first.limit-1, first.reset)
	}
	s.free("GET /", "GET /other")
}

// countedHere returns what every example does in an outage unless it says otherwise: it counts.
func countedHere(targets ...string) func(*stage) {
	return func(s *stage) {
		for _, target := range targets {
			c := s.send(sender{from: here}, target)
			limit := c.number("X-RateLimit-Limit")
			s.want(c, 200, limit, limit-1, s.until(c))
			for range limit {
				c = s.send(sender{from: here}, target)
			}
			if c.status != http.StatusTooManyRequests {
				s.Errorf("%s above its limit of %d is answered %d without a store", target, limit, c.status)
			}
		}
	}
}

// refusedWithoutStore checks what costs money, or sends mail.
func refusedWithoutStore(s *stage, v sender, targets ...string) {
	for _, target := range targets {
		if c := s.send(v, target); c.status != http.StatusServiceUnavailable {
			s.Errorf("%s is answered %d without a store", target, c.status)
		}
	}
}

func playLogin(s *stage) {
	const sign, forgot, reset, register = "POST /account/login", "POST /account/password/forgot", "POST /account/password/reset", "POST /account/register"
	guesser := sender{from: here}

	// The short window, and the long one. A refused try spends nothing of either.
	s.counts("10 per minute by ip", "", sign)
	s.fills("60 per hour by ip", 1, guesser, sign)

	// Who is refused 20 times within a minute is refused for 15 minutes, whatever it sends beside
	// the address. 19 times are too few, and so are 39 in two minutes.
	s.fresh()
	s.times(10, guesser, sign)
	s.refused(19, guesser, sign)
	s.after(time.Minute)
	s.times(10, guesser, sign)
	s.refused(10, guesser, sign)
	s.after(30 * time.Second)
	s.refused(8, guesser, sign)
	s.want(s.send(guesser, sign), 429, 10, 0, 30)
	s.want(s.send(guesser, sign), 429, 10, 0, 900)
	s.after(15*time.Minute - 1)
	s.refused(1, sender{from: here, agent: "another", token: standard}, sign)
	s.times(1, sender{from: there}, sign)
	s.want(s.send(guesser, "GET /account/login"), 200, 300, 299, 60)
	s.after(1)
	s.want(s.send(guesser, sign), 200, 10, 9, 60)

	s.counts("3 per minute by ip", "", forgot, reset)
	s.fills("10 per day by ip", 1, guesser, forgot)
	s.counts("20 per hour by ip", "", register)
	s.counts("300 per minute by ip", "", "GET /account", "GET /account/login", "GET /account/password/forgot", "GET /account/password/reset", "GET /account/register",
		"GET /accounts", sign+"x", forgot+"x", reset+"x", register+"x")
	s.free("GET /", "POST /login", "GET /other")
}

func loginWithoutStore(s *stage) {
	countedHere("POST /account/login", "POST /account/register", "GET /account")(s)
	refusedWithoutStore(s, sender{from: here}, "POST /account/password/forgot", "POST /account/password/reset")
}

// statuses are those that a backend answers with: the registered ones that can have a body, and a
// few others. 206 is left out, since a part of an answer does not tell the cost.
var statuses = []int{200, 201, 202, 203, 300, 301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 420,
	421, 422, 423, 424, 425, 426, 428, 429, 431, 440, 451, 499, 500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511, 520, 599}

func playLLM(s *stage) {
	const complete, chat, embed, login = "POST /v1/completions", "POST /v1/chat/completions", "POST /v1/embeddings", "POST /account/login"
	one, two := sender{from: here, token: standard}, sender{from: there, token: pro}

	// Completions need a token. A token has 60 a minute, whatever they cost.
	s.counts("60 requests per minute by token", "token", complete+"?tells=30", complete+"x?tells=30", chat+"?tells=30", chat+"x?tells=30")
	if n := s.asked.Load(); n != 4*4 {
		s.Errorf("the model was asked %d times, also without a token", n)
	}

	// Of the units of a day a token has what its plan says. A request reserves 10000 if it does not
	// say, and has cost that if the answer does not tell.
	s.fills("100000 per day by token", 10000, one, complete)
	s.fills("2000000 per day by token", 10000, two, chat)

	for _, step := range []struct {
		target string
		cost   int64
	}{
		{complete + `?tells=30 {"max_tokens":100}`, 30},
		{complete + `?tells=0 {"max_tokens":100}`, 0},
		{complete + `?tells=2200 {"max_tokens":100}`, 2200}, // more than was reserved
		{complete + `?tells=10001 {"max_tokens":100}`, 10001},
		{complete + ` {"max_tokens":100}`, 2100},
		{complete + ` {"max_tokens":7999}`, 9999},
		{complete + ` {"max_tokens":8001}`, 10000},
		{complete + fmt.Sprintf(` {"max_tokens":%d}`, math.MaxInt32), 10000},
		{complete, 10000},
	} {
		costsUnits(s, one, step.target, step.cost)
	}
	for _, status := range statuses {
		want := int64(30)
		if slices.Contains([]int{400, 404, 422, 429}, status) || status >= 500 {
			want = 0
		}
		costsUnits(s, one, fmt.Sprintf(`%s?tells=30&status=%d {"max_tokens":100}`, complete, status), want)
	}

	// A fifth at a time waits until one of the 4 has ended.
	s.holds("4 by token", "token", one, chat)

	s.counts("600 per minute by token or ip", "", embed)
	playFailedLogins(s, "5 per 15 minutes by ip", login)
	s.counts("300 per minute by ip", "", "GET /v1/models", "GET /v1/completions", "GET /v1/chat/completions", "POST /v1/chat/other", "GET /v1/embeddings", embed+"x", "PUT /v1/x/y",
		"GET /account/login", login+"x", "GET /account/", "POST /account/other")
	s.free("GET /", "POST /other")
}

// costsUnits checks what a request to the language model costs: with that and what was spent
// before, 5000 units of 100000 are left, not one less and not one more.
func costsUnits(s *stage, v sender, target string, cost int64) {
	s.Helper()
	s.after(24 * time.Hour)
	s.send(v, fmt.Sprintf(`POST /v1/completions?tells=%d {"max_tokens":1}`, 95000-cost))
	if c := s.send(v, target); c.status == http.StatusTooManyRequests && !strings.Contains(target, "=429") {
		s.Fatalf("%s is refused: %v", target, c.header)
	}
	if c := s.send(v, `POST /v1/completions {"max_tokens":3001}`); c.status != http.StatusTooManyRequests {
		s.Errorf("%s costs less than %d", target, cost)
	}
	if c := s.send(v, `POST /v1/completions {"max_tokens":3000}`); c.status != http.StatusOK {
		s.Errorf("%s costs more than %d: %v", target, cost, c.header)
	}
}

// playFailedLogins checks a limiter that counts the answers 401 and 403 alone.
func playFailedLogins(s *stage, window, target string) {
	s.Helper()
	w := s.window(window)
	s.fresh()
	for _, status := range statuses {
		s.after(w.Per)
		v, left := sender{from: here}, w.Limit-1
		if status == http.StatusUnauthorized || status == http.StatusForbidden {
			left--
		}
		s.send(v, fmt.Sprintf("%s?status=%d", target, status))
		if c := s.send(v, target+"?status=401"); c.number("X-RateLimit-Limit") != w.Limit || c.number("X-RateLimit-Remaining") != left {
			s.Errorf("%s after an answer with %d: %v", target, status, c.header)
		}
	}
	s.fresh()
	spent := make(map[string]int64)
	for range 2 {
		for _, v := range senders {
			if spent[v.from] == w.Limit {
				s.want(s.send(v, target), 429, w.Limit, 0, int64(w.Per/time.Second))
				continue
			}
			spent[v.from]++
			s.want(s.send(v, target+"?status=401"), 401, w.Limit, w.Limit-spent[v.from], int64(w.Per/time.Second))
		}
	}
}

func llmWithoutStore(s *stage) {
	refusedWithoutStore(s, sender{from: here, token: standard}, "POST /v1/completions", "POST /v1/chat/completions")
	countedHere("POST /v1/embeddings", "GET /v1/models")(s)
}

func playSeveralSites(s *stage) {
	// The logins of both hosts share a budget, and have one of their own.
	s.counts("10 per hour by ip", "", "POST api.example.com/login", "POST shop.example.com/login", "POST SHOP.example.com:8443/login")
	s.counts("600 per minute by ip", "", "GET api.example.com/", "GET API.example.com/v1", "POST api.example.com:80/v1", "GET api.example.com./login", "POST api.example.com/loginx")
	s.counts("300 per minute by ip", "", "GET shop.example.com/", "GET shop.example.com/v1", "GET shop.example.com/login", "POST shop.example.com/loginx")

	// Requests for any other host are answered 421.
	s.counts("60 per minute by ip", "", "GET example.com/", "GET www.shop.example.com/v1", "POST other.example.net/login")

	// Who has used up one may still use the others.
	s.fresh()
	v := sender{from: here}
	s.times(10, v, "POST api.example.com/login")
	s.refused(1, v, "POST shop.example.com/login")
	s.times(600, v, "GET api.example.com/v1")
	s.refused(1, v, "GET api.example.com/v1")
	s.want(s.send(v, "GET shop.example.com/v1"), 200, 300, 299, 60)
}

func playCostly(s *stage) {
	messages := []string{"POST /api/v1/widget/messages", "POST /api/v1/widget/messages/7/feedback", "POST /api/v1/widget/messagesx"}

	// Everything but the messages is as in the contract.
	contract := policyfile.Contract()
	if said := answer.MessageOf(&s.policy.Responses, &s.policy.Limiters[0]); said != "widget" {
		s.Errorf("a refused message is answered with the text %q", said)
	}
	for _, name := range []string{"widget-init", "widget-session", "widget-leads", "wp-plugin", "widget-typing", "widget-satisfaction", "widget-coupon", "widget-other"} {
		asInTheContract(s, contract, name)
	}
	s.counts("6000 per minute by ip", "", "GET /api/v1/widget/messages", "POST /api/v1/widget/other")

	// A message spends 10 units of what one visitor has. Without a session it is answered 401, is
	// counted by the address, and does not reach the model.
	asked := s.asked.Load()
	s.spends(10, "100 per minute by session or ip", "session", messages...)
	if n := s.asked.Load(); n-asked != 3*3 {
		s.Errorf("the model was asked %d times, also without a session", n-asked)
	}

	// 60 messages a minute reach it, for which it takes six senders. Those that are answered 401 do
	// not spend from that, nor do those that the visitor's own window refuses.
	s.fresh()
	s.send(sender{from: here}, messages[0])
	s.times(1, nth(0), messages[0])
	s.after(59 * time.Second)
	s.times(9, nth(0), messages[0])
	s.refused(20, nth(0), messages[0])
	for i := range 5 {
		s.times(10, nth(i+1), messages[i%3])
	}
	s.want(s.send(nth(6), messages[0]), 429, 600, 0, 1)
	s.want(s.send(nth(6), "POST /api/v1/widget/leads"), 200, 30, 29, 60)

	// Around a reset up to 120 can pass within 60 seconds.
	s.after(time.Second)
	for i := range 6 {
		s.times(10, nth(i+10), messages[0])
	}
	s.want(s.send(nth(16), messages[0]), 429, 600, 0, 60)
}

// nth returns one of many senders at one address.
func nth(i int) sender { return sender{from: here, session: fmt.Sprint("visitor ", i)} }

// asInTheContract checks that the contract has the same limiter, apart from the route of messages.
func asInTheContract(s *stage, contract weir.Policy, name string) {
	s.Helper()
	find := func(p weir.Policy) (l weir.Limiter) {
		for _, l = range p.Limiters {
			if l.Name == name {
				l.Routes = slices.DeleteFunc(slices.Clone(l.Routes), func(r weir.Route) bool { return r.Path == "/api/v1/widget/messages" })
				return l
			}
		}
		return weir.Limiter{}
	}
	if got, want := find(s.policy), find(contract); !reflect.DeepEqual(got, want) {
		s.Errorf("%s is %+v, in the contract %+v", name, got, want)
	}
}

func costlyWithoutStore(s *stage) {
	refusedWithoutStore(s, nth(0), "POST /api/v1/widget/messages")
	countedHere("POST /api/v1/widget/satisfaction")(s)
}

func playServe(s *stage) {
	s.counts("3 per minute by ip", "", "GET api.example.com/", "POST API.example.com/v1")
	s.counts("2 per minute by ip", "", "GET shop.example.com/", "POST www.shop.example.com/v1")
	s.free("GET example.com/", "GET example.net/")
}

func playSimulatedLLM(s *stage) {
	const chat = "POST /chat"
	v := sender{from: here}

	// A request reserves 400 units, and costs what the answer tells.
	s.counts("60 requests per minute by ip", "", chat+"?tells=0")
	for _, other := range senders {
		s.fresh()
		s.times(2, v, chat)
		if other.from == v.from {
			s.want(s.send(other, chat), 429, 1000, 0, 60)
		} else {
			s.times(1, other, chat)
		}
	}
	s.fresh()
	s.times(1, v, chat+"?tells=500")
	s.want(s.send(v, chat+"?tells=100"), 200, 60, 58, 60)
	s.want(s.send(v, chat), 200, 1000, 0, 60)
	s.refused(1, v, chat)
	s.holds("2 by ip", "", v, chat)
	playFailedLogins(s, "3 per minute by ip", "POST /login")
	s.free("GET /chat", "POST /chatx", "GET /login", "POST /loginx", "POST /")
}

func playStricter(s *stage) {
	const leads = "POST /api/v1/widget/leads"
	s.counts("20 per minute by session or ip", "", leads)
	s.counts("6000 per minute by ip", "", "GET /api/v1/widget/leads", leads+"x", "POST /api/v1/widget/", "GET /api/v1/widget/messages")
	s.free("GET /api/v1/", "GET /api/v1/other/leads")
}

// The example for Envoy has 100 requests a minute for each address, and of them 30 for the leads.
func TestTheEnvoyExampleCountsWhatEnvoySends(t *testing.T) {
	config, err := filepath.Abs(examples + "envoy-rls/config")
	if err != nil {
		t.Fatal(err)
	}
	s := serveRLS(t, config, nil, nil)
	if wrong := playEnvoy(t.Context(), s.client.ShouldRateLimit); wrong != "" {
		t.Error(wrong)
	}
	s.endRLS(t)
}

// Envoy's :path has the query, which must not lead around the limit of the leads.
func TestTheEnvoyExampleMatchesAPathWithAnyQuery(t *testing.T) {
	var envoy struct {
		Limits []struct {
			Actions []struct {
				Match struct {
					Value   string `yaml:"descriptor_value"`
					Headers []struct {
						Match struct {
							Safe struct{ Regex string } `yaml:"safe_regex"`
						} `yaml:"string_match"`
					}
				} `yaml:"header_value_match"`
			}
		} `yaml:"rate_limits"`
	}
	if err := yaml.Unmarshal([]byte(readText(t, examples+"envoy-rls/envoy.yaml")), &envoy); err != nil {
		t.Fatal(err)
	}
	match := envoy.Limits[1].Actions[0].Match
	// as Envoy matches: the whole value
	whole := regexp.MustCompile("^(?:" + match.Headers[0].Match.Safe.Regex + ")$")
	for path, want := range map[string]bool{
		match.Value: true, match.Value + "?": true, match.Value + "?x=/y": true, match.Value + "/7": false, match.Value + "x": false, "/x" + match.Value: false,
	} {
		if whole.MatchString(path) != want {
			t.Errorf("%s is a path of the leads: %v, want %v", path, !want, want)
		}
	}
}

// playEnvoy sends what the actions of examples/envoy-rls/envoy.yaml send, and returns the first
// answer that is not as its configuration says, or "".
func playEnvoy(ctx context.Context, ask func(context.Context, *pb.RateLimitRequest, ...grpc.CallOption) (*pb.RateLimitResponse, error)) string {
	const leads = "path=/api/leads remote_address="
	for _, step := range []struct {
		ask  *pb.RateLimitRequest
		want string
	}{
		{rlsRequest("edge", 0, "remote_address="+here, "path=/api/leads/7 remote_address="+here), "OK OK 99 of 100 per MINUTE, OK"},
		{rlsRequest("edge", 0, "remote_address="+here, leads+here), "OK OK 98 of 100 per MINUTE, OK 29 of 30 per MINUTE"},
		{rlsRequest("edge", 29, "remote_address="+here, leads+here), "OK OK 69 of 100 per MINUTE, OK 0 of 30 per MINUTE"},
		{rlsRequest("edge", 0, "remote_address="+here, leads+here), "OVER_LIMIT OK 69 of 100 per MINUTE, OVER_LIMIT 0 of 30 per MINUTE"},
		{rlsRequest("edge", 69, "remote_address="+here), "OK OK 0 of 100 per MINUTE"},
		{rlsRequest("edge", 0, "remote_address="+here), "OVER_LIMIT OVER_LIMIT 0 of 100 per MINUTE"},
		{rlsRequest("edge", 0, "remote_address="+there, leads+there), "OK OK 99 of 100 per MINUTE, OK 29 of 30 per MINUTE"},
		{rlsRequest("edge", 0, "path=/api/leads"), "OK OK"},
		{rlsRequest("other", 0, "remote_address="+here), "OK OK"},
	} {
		out, err := ask(ctx, step.ask)
		got := fmt.Sprint(out.GetOverallCode())
		for i, one := range out.GetStatuses() {
			got += []string{" ", ", "}[min(i, 1)] + one.Code.String()
			if one.CurrentLimit != nil {
				got += fmt.Sprintf(" %d of %d per %v", one.LimitRemaining, one.CurrentLimit.RequestsPerUnit, one.CurrentLimit.Unit)
			}
		}
		if err != nil || got != step.want {
			return fmt.Sprintf("%v is answered %s, %v; want %s", step.ask, got, err, step.want)
		}
	}
	return ""
}
