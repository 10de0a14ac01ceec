package weir

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/e2e/selfsigned"
)

const rlsLimits = `domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
    descriptors: [{key: path, rate_limit: {unit: hour, requests_per_unit: 1}}]
  - {key: user, value: vip, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: user, value: "v*", rate_limit: {unit: hour, requests_per_unit: 7}}
  - {key: tried, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: base, rate_limit: {unit: hour, requests_per_unit: 1, name: base}}
  - {key: more, rate_limit: {unit: hour, requests_per_unit: 5, replaces: [{name: base}]}}
  - {key: many, rate_limit: {unit: hour, requests_per_unit: 500}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 2}}
`

// An rlsServer is a running server that answers Envoy.
type rlsServer struct {
	*process
	conn   *grpc.ClientConn
	client pb.RateLimitServiceClient
	http   string // the URL of its HTTP listener
	data   string
}

var rlsAt = regexp.MustCompile(`(?m)^rls +Envoy asks at grpcs?://(\S+); .*/healthcheck at (http://\S+)$`)

// serveRLS starts a server that answers Envoy by a configuration; an empty path is given by env.
func serveRLS(t *testing.T, path string, env []string, creds credentials.TransportCredentials, args ...string) *rlsServer {
	t.Helper()
	weir, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	s := &rlsServer{data: t.TempDir()}
	if path != "" {
		args = append(args, "--rls", "127.0.0.1:0", "--rls-http", "127.0.0.1:0", "--rls-config", path)
	}
	cmd := exec.Command(weir, append([]string{"serve", "--data", s.data}, args...)...)
	cmd.Env, cmd.Dir = append(cleanEnv(), env...), t.TempDir()
	if s.process, err = launch(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	at, err := s.stdout.await(rlsAt)
	if err != nil {
		t.Fatalf("%v\nstandard error:\n%s", err, s.stderr)
	}
	s.http = at[2]
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	if s.conn, err = grpc.NewClient(at[1], grpc.WithTransportCredentials(creds)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.conn.Close() })
	s.client = pb.NewRateLimitServiceClient(s.conn)
	return s
}

// rlsConfig writes a configuration directory, as a Kubernetes volume is: files behind a link.
func rlsConfig(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	swapRLSConfig(t, dir, "..version0", text)
	if err := os.Symlink("..data/edge.yaml", filepath.Join(dir, "edge.yaml")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// swapRLSConfig swaps the link of a directory of rlsConfig.
func swapRLSConfig(t *testing.T, dir, version, text string) {
	t.Helper()
	err := os.Mkdir(filepath.Join(dir, version), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, version, "edge.yaml"), []byte(text), 0o600)
	}
	if err == nil {
		err = os.Symlink(version, filepath.Join(dir, "..next"))
	}
	if err == nil {
		err = os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// descriptorOf returns the descriptor that a text describes: "user=a path=/ +2 =5" has two entries,
// 2 hits and a limit of 5 an hour.
func descriptorOf(text string) *ratelimit.RateLimitDescriptor {
	d := new(ratelimit.RateLimitDescriptor)
	for _, word := range strings.Fields(text) {
		var n uint64
		if _, err := fmt.Sscanf(word, "+%d", &n); err == nil {
			d.HitsAddend = wrapperspb.UInt64(n)
		} else if _, err := fmt.Sscanf(word, "=%d", &n); err == nil {
			d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(n), Unit: typev3.RateLimitUnit_HOUR}
		} else {
			key, value, _ := strings.Cut(word, "=")
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
	}
	return d
}

func rlsRequest(domain string, hits uint32, descriptors ...string) *pb.RateLimitRequest {
	r := &pb.RateLimitRequest{Domain: domain, HitsAddend: hits}
	for _, d := range descriptors {
		r.Descriptors = append(r.Descriptors, descriptorOf(d))
	}
	return r
}

// ask returns the answer as a text: the code, and for each status its code and what is left.
func (s *rlsServer) ask(t *testing.T, r *pb.RateLimitRequest) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := s.client.ShouldRateLimit(ctx, r)
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	text := out.OverallCode.String()
	for _, one := range out.Statuses {
		text += fmt.Sprintf(" %v/%d", one.Code, one.LimitRemaining)
		if reset := one.DurationUntilReset.GetSeconds(); (one.CurrentLimit != nil) != (reset >= 1 && reset <= 86400) {
			t.Errorf("%v: a limit and its reset belong together", one)
		}
	}
	return text
}

func TestEnvoyIsAnsweredAsByItsOwnService(t *testing.T) {
	redis, cluster := redistest.Start(t), redistest.StartCluster(t, 3, 0)
	for name, args := range map[string][]string{
		"memory": nil, "redis": {"--store", "redis://" + redis.Addr(), patient}, "cluster": {"--store", "redis://" + strings.Join(cluster.Addrs(), ","), patient},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveRLS(t, rlsConfig(t, rlsLimits), nil, nil, append(args, "--rls-headers", "on")...)
			for i, step := range []struct {
				ask  *pb.RateLimitRequest
				want string
			}{
				{rlsRequest("edge", 0, "user=a path=/"), "OK OK/0"},
				{rlsRequest("edge", 0, "user=a path=/"), "OVER_LIMIT OVER_LIMIT/0"},
				// The depth decides: the two entries did not count here.
				{rlsRequest("edge", 0, "user=a"), "OK OK/2"},
				{rlsRequest("edge", 0, "user=a path=/ more=1"), "OK OK/0"},
				{rlsRequest("edge", 0, "user=vip"), "OK OK/8"},   // the exact value
				{rlsRequest("edge", 0, "user=vx"), "OK OK/6"},    // then a star
				{rlsRequest("edge", 0, "user=other"), "OK OK/2"}, // then the key alone
				{rlsRequest("edge", 0, "nothing=1"), "OK OK/0"},
				{rlsRequest("elsewhere", 0, "user=a"), "OK OK/0"},
				{rlsRequest("", 0, "user=a"), "Unknown: rate limit domain must not be empty"},
				{rlsRequest("edge", 0), "Unknown: rate limit descriptor list must not be empty"},
				{rlsRequest("edge", 0, "free=1"), "OK OK/4294967295"},
				{rlsRequest("edge", 0, "user=b +0"), "OK OK/3"}, // only looks
				{rlsRequest("edge", 2, "user=b"), "OK OK/1"},
				{rlsRequest("edge", 1<<32-1, "user=b"), "OVER_LIMIT OVER_LIMIT/0"},
				{rlsRequest("edge", 0, "user=b +18446744073709551615"), "OVER_LIMIT OVER_LIMIT/0"},
				// A refused request has spent nothing.
				{rlsRequest("edge", 0, "user=b +0"), "OK OK/1"},
				{rlsRequest("edge", 0, "user=c", "day=1"), "OK OK/2 OK/1"},
				{rlsRequest("edge", 0, "user=c", "day=1"), "OK OK/1 OK/0"},
				{rlsRequest("edge", 0, "user=c", "day=1"), "OVER_LIMIT OK/1 OVER_LIMIT/0"},
				{rlsRequest("edge", 0, "user=c +0"), "OK OK/1"}, // all, or none
				{rlsRequest("edge", 0, "user=d =1"), "OK OK/0"},
				{rlsRequest("edge", 0, "user=d =1"), "OVER_LIMIT OVER_LIMIT/0"},
				{rlsRequest("edge", 0, "user=d"), "OK OK/1"}, // the refusal was of the other limit
				{rlsRequest("edge", 0, "tried=1"), "OK OK/0"},
				{rlsRequest("edge", 0, "tried=1"), "OK OK/0"},
				{rlsRequest("edge", 0, "base=1"), "OK OK/0"},
				{rlsRequest("edge", 0, "base=1", "more=1"), "OK OK/0 OK/4"},
				// The first is only looked at, and is over, so nothing is charged.
				{rlsRequest("edge", 0, "user=d =1 +0", "user=e"), "OVER_LIMIT OVER_LIMIT/0 OK/3"},
				{rlsRequest("edge", 0, "user=e +0"), "OK OK/3"},
			} {
				if got := s.ask(t, step.ask); got != step.want {
					t.Errorf("step %d, %v: %s, want %s", i, step.ask, got, step.want)
				}
			}
			s.headers(t)
			s.exactly(t)
			s.hostile(t)
			s.drains(t)
		})
	}
}

// headers checks the fields of a refusal, and that its id can be opened.
func (s *rlsServer) headers(t *testing.T) {
	t.Helper()
	out, err := s.client.ShouldRateLimit(t.Context(), rlsRequest("edge", 0, "user=a path=/"))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for _, f := range out.ResponseHeadersToAdd {
		fields[f.Key] = f.Value
	}
	if fields["RateLimit-Limit"] != "1" || fields["RateLimit-Remaining"] != "0" || fields["RateLimit-Reset"] == "" || fields["X-Weir-Denial"] == "" {
		t.Errorf("the refusal has %v", fields)
	}
}

// exactly checks that concurrent callers together never get one more than the limit.
func (s *rlsServer) exactly(t *testing.T) {
	t.Helper()
	var admitted, others atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 20 {
				switch s.ask(t, rlsRequest("edge", 0, "many=1"))[:3] {
				case "OK ":
					admitted.Add(1)
				case "OVE":
				default:
					others.Add(1)
				}
			}
		})
	}
	all.Wait()
	if admitted.Load() != 500 || others.Load() != 0 {
		t.Errorf("of 1000 requests %d were admitted, and %d failed: the limit is 500", admitted.Load(), others.Load())
	}
}

// hostile checks that bad input ends where it belongs, and that others are served after it.
func (s *rlsServer) hostile(t *testing.T) {
	t.Helper()
	large := rlsRequest("edge", 0, "user=a")
	large.Descriptors[0].Entries[0].Value = strings.Repeat("x", 10<<20)
	if got := s.ask(t, large); !strings.HasPrefix(got, "ResourceExhausted: ") {
		t.Errorf("10 MiB are answered %.200s", got)
	}
	nine := make([]string, 9)
	for i := range nine {
		nine[i] = fmt.Sprintf("user=n%d", i)
	}
	if got := s.ask(t, rlsRequest("edge", 0, nine...)); !strings.HasPrefix(got, "InvalidArgument: the descriptors of the request have more than 8 counts") {
		t.Errorf("9 limits are answered %s", got)
	}
	for range 20 { // a stream that is reset after its head, and one before its answer
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.SendMsg(rlsRequest("edge", 0, "user=reset"))
		cancel()
	}
	if got := s.ask(t, rlsRequest("edge", 0, "user=after")); got != "OK OK/2" {
		t.Errorf("after bad input a request is answered %s", got)
	}
	for body, want := range map[string]int{
		`{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"json"}]}]}`: 200, `{`: 400, `{"domain":""}`: 400,
		`{"domain":"edge","descriptors":[{"entries":[{"key":"day","value":"1"}]}]}`: 429, strings.Repeat(" ", 2<<20): 413,
	} {
		r, err := http.Post(s.http+"/json", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if _ = r.Body.Close(); r.StatusCode != want {
			t.Errorf("/json with %.80s is answered %d, want %d", body, r.StatusCode, want)
		}
	}
}

// drains checks that the server reports its end before it ends.
func (s *rlsServer) drains(t *testing.T) {
	t.Helper()
	health := grpc_health_v1.NewHealthClient(s.conn)
	for _, name := range []string{"", "ratelimit"} {
		if got, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name}); err != nil || got.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", name, got, err)
		}
	}
	if r, err := http.Get(s.http + "/healthcheck"); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("/healthcheck: %v, %v", r, err)
	}
	watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || first.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatal(first, err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if next, err := watch.Recv(); err != nil || next.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("a drain is reported as %v, %v", next, err)
	}
	if got := s.ask(t, rlsRequest("edge", 0, "user=late")); got != "OK OK/2" && !strings.HasPrefix(got, "Unavailable: ") {
		t.Errorf("during a drain a request is answered %s", got)
	}
	_ = s.conn.Close()
	if code, err := s.wait(); err != nil || code != 0 {
		t.Errorf("it ended with status %d, %v:\n%s", code, err, s.stderr)
	}
}

func TestAChangedConfigurationOfEnvoyKeepsCountsAndAWrongOneIsRefused(t *testing.T) {
	dir := rlsConfig(t, rlsLimits)
	s := serveRLS(t, dir, nil, nil)
	for _, want := range []string{"OK OK/2", "OK OK/1"} {
		if got := s.ask(t, rlsRequest("edge", 0, "user=a")); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	swapRLSConfig(t, dir, "..version1", strings.Replace(rlsLimits, "requests_per_unit: 3", "requests_per_unit: 30", 1))
	if _, err := s.stderr.await(regexp.MustCompile(`the rate limit configuration has changed`)); err != nil {
		t.Fatal(err)
	}
	if got := s.ask(t, rlsRequest("edge", 0, "user=a")); got != "OK OK/27" {
		t.Errorf("after the change: %s", got)
	}
	swapRLSConfig(t, dir, "..version2", rlsLimits+"  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}\n")
	if _, err := s.stderr.await(regexp.MustCompile(`the one before stays in force.*edge.yaml:\d+: descriptor user occurs twice`)); err != nil {
		t.Fatal(err)
	}
	if got := s.ask(t, rlsRequest("edge", 0, "user=a")); got != "OK OK/26" {
		t.Errorf("after a wrong change: %s", got)
	}
	s.endRLS(t)
}

func (s *rlsServer) endRLS(t *testing.T) {
	t.Helper()
	_ = s.conn.Close()
	if code, err := s.signal(syscall.SIGTERM); err != nil || code != 0 {
		t.Errorf("it ended with status %d, %v:\n%s", code, err, s.stderr)
	}
}

// With --rls-env the program is started by the variables alone, as the other one is.
func TestTheVariablesOfEnvoysServiceAreRead(t *testing.T) {
	root, keys := t.TempDir(), t.TempDir()
	if err := os.Symlink(rlsConfig(t, rlsLimits), filepath.Join(root, "config")); err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(keys, "cert.pem"), filepath.Join(keys, "key.pem")
	own, err := selfsigned.Write(certFile, keyFile, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(own.Leaf)
	env := []string{
		"RUNTIME_ROOT=" + root, "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "HOST=127.0.0.1", "PORT=0",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=" + certFile, "GRPC_SERVER_TLS_KEY=" + keyFile, "GRPC_CLIENT_TLS_CACERT=" + certFile,
		"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_LIMIT_HEADER=X-Max", "USE_STATSD=false", "LOG_LEVEL=debug",
	}
	s := serveRLS(t, "", env, credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}), "--rls-env")
	out, err := s.client.ShouldRateLimit(t.Context(), rlsRequest("edge", 0, "user=a"))
	if err != nil {
		t.Fatalf("%v\n%s", err, s.stderr)
	}
	if len(out.ResponseHeadersToAdd) != 3 || out.ResponseHeadersToAdd[0].Key != "X-Max" {
		t.Errorf("the fields are %v", out.ResponseHeadersToAdd)
	}
	stranger, err := grpc.NewClient(s.conn.Target(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots})))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := pb.NewRateLimitServiceClient(stranger).ShouldRateLimit(t.Context(), rlsRequest("edge", 0, "user=a")); status.Code(err) != codes.Unavailable {
		t.Errorf("a client without a certificate gets %v", err)
	}
	s.endRLS(t)
	for variable, hint := range map[string]string{
		"CONFIG_TYPE=GRPC_XDS_DELTA": "limits come from files", "BACKEND_TYPE=memcache": "in Redis", "USE_DOG_STATSD=true": "no statsd is sent",
		"SHADOW_MODE=perhaps": "expected true or false", "NEAR_LIMIT_RATIO=7": "NEAR_LIMIT_RATIO", "REDIS_URL=/run/redis.sock": "over TCP alone",
	} {
		var printed strings.Builder
		if code := run([]string{"serve", "--rls-env", "--data", t.TempDir()}, append(env, variable), nil, &printed, &printed); code != 2 || !strings.Contains(printed.String(), hint) {
			t.Errorf("with %s it ends with status %d:\n%s", variable, code, printed.String())
		}
	}
}

func TestEnvoyIsAnsweredBesideAnUpstream(t *testing.T) {
	backend, _ := leadsBackend(t)
	s := serveRLS(t, rlsConfig(t, rlsLimits), nil, nil, "--listen", "127.0.0.1:0", "--upstream", "http://"+backend, "--policy", policyFile(t, forwardAuthPolicy), "--rls-headers", "on", "--metrics", "127.0.0.1:0", "--metrics-open")
	at, err := s.stdout.await(listening)
	if err != nil {
		t.Fatal(err)
	}
	if r := curl(t, at[1]+"/things"); r.status != http.StatusOK {
		t.Errorf("the upstream's answer is %d", r.status)
	}
	for _, want := range []string{"OK OK/0", "OVER_LIMIT OVER_LIMIT/0"} {
		if got := s.ask(t, rlsRequest("edge", 0, "base=1")); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	r, err := http.Post(s.http+"/json", "application/json", strings.NewReader(`{"domain":"edge","descriptors":[{"entries":[{"key":"none"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	for _, line := range []string{
		`path=/envoy\.service\.ratelimit\.v3\.RateLimitService/ShouldRateLimit status=429 .* host="" proto=HTTP/2\.0`,
		`path=/json status=200 .* host=127\.0\.0\.1:\d+ proto=HTTP/1\.1`,
	} {
		if _, err := s.stderr.await(regexp.MustCompile(line)); err != nil {
			t.Errorf("the access log lacks a line: %v", err)
		}
	}
	metrics, err := s.stdout.await(regexp.MustCompile(`(?m)^metrics +(http://\S+)/metrics`))
	if err != nil {
		t.Fatal(err)
	}
	text := string(curl(t, metrics[1]+"/metrics").body)
	for _, want := range []string{
		`ratelimit_service_rate_limit_over_limit{domain="edge",key1="base",key2=""} 1`, `ratelimit_service_rate_limit_total_hits{domain="edge",key1="base",key2=""} 2`,
		"ratelimit_service_config_load_success 1", `weir_decisions_total{limiter="rls-hour",outcome="refused",window="3600s by domain+descriptor"} 1`,
		`weir_decisions_total{limiter="all",outcome="admitted",window="60s by ip"} 1`, `weir_connections_accepted_total{listener="rls"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	out, err := s.client.ShouldRateLimit(t.Context(), rlsRequest("edge", 0, "base=1"))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := s.stdout.await(adminAt)
	if err != nil {
		t.Fatal(err)
	}
	id := out.ResponseHeadersToAdd[len(out.ResponseHeadersToAdd)-1].Value
	if text, problem, code := weirCommand(t.Context(), t, "denial", id, "--admin", admin[1], "--data", s.data); code != 0 || !strings.Contains(text, "rls-hour") || !strings.Contains(text, "1 of 1") {
		t.Errorf("the refusal is explained so, with status %d:\n%s%s", code, text, problem)
	}
	s.endRLS(t)
}

// Without Redis each server counts by itself, or answers with an error if that is wanted.
func TestEnvoyIsAnsweredWithoutRedisAsConfigured(t *testing.T) {
	for failure, want := range map[string]string{"local": "OK OK/2", "allow": "OK OK/2", "error": "Unavailable: the store does not answer, and --rls-on-store-failure is error"} {
		s := serveRLS(t, rlsConfig(t, rlsLimits), nil, nil, "--store", "redis://127.0.0.1:1", "--rls-on-store-failure", failure)
		if got := s.ask(t, rlsRequest("edge", 0, "user=a")); got != want {
			t.Errorf("%s: %s, want %s", failure, got, want)
		}
		s.endRLS(t)
	}
}
