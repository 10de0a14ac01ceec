//go:build !race

// One goroutine plays thousands of requests: the race detector would only slow it down.

package weir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/rls"
	"github.com/weirlimit/weir/internal/rls/config"
	"github.com/weirlimit/weir/memstore"
)

// The scripts notice every change of a policy of examples: another number, unit, key, route,
// method, status, credential, plan or mode, and one that is missing.
func TestEveryChangeOfAnExampleIsNoticed(t *testing.T) {
	scripts := []script{publicAPIScript, loginScript, llmScript, severalSitesScript, costlyScript, serveScript, simulatedLLMScript, stricterScript}
	have := make(map[string]bool)
	lab := newLab(t)
	for _, s := range scripts {
		have[s.file] = true
		t.Run(strings.TrimSuffix(s.file, ".yaml"), func(t *testing.T) {
			text := readText(t, examples+s.file)
			if p, ok := parsedPolicy([]byte(text)); !ok || lab.notices(&s, p) != "" {
				t.Fatalf("the policy itself is found to be wrong: %s", lab.notices(&s, p))
			}
			changed, spelled := 0, 0
			for _, m := range mutants(t, text) {
				p, ok := parsedPolicy(m.text)
				switch {
				case !ok: // weir serve refuses it
				case lab.notices(&s, p) != "":
					changed++
				case same(p, text):
					spelled++
				default:
					t.Errorf("%s is not noticed", m.what)
				}
			}
			if t.Logf("%d changed policies are noticed; %d are other spellings", changed, spelled); changed < 20 {
				t.Errorf("%d changed policies, want 20 or more", changed)
			}
		})
	}
	// Each policy of examples has a script.
	err := filepath.WalkDir(examples, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		name, err := filepath.Rel(examples, path)
		if strings.Contains(readText(t, path), "\nlimiters:") && !have[filepath.ToSlash(name)] {
			t.Errorf("%s has no script", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestEveryChangeOfTheEnvoyExampleIsNoticed(t *testing.T) {
	text := readText(t, examples+"envoy-rls/config/edge.yaml")
	changed := 0
	for _, m := range append(mutants(t, text), mutant{"", []byte(text)}) {
		c, err := config.Parse([]config.File{{Name: "edge.yaml", Text: m.text}}, config.Options{})
		if err != nil {
			continue // as weir serve does
		}
		store, err := memstore.New(memstore.Options{Memory: memstore.MinMemory})
		if err != nil {
			t.Fatal(err)
		}
		s, err := rls.New(rls.Options{Store: store, Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = s.SetConfig(c)
		}
		if err != nil {
			t.Fatal(err)
		}
		wrong := playEnvoy(t.Context(), func(ctx context.Context, r *pb.RateLimitRequest, _ ...grpc.CallOption) (*pb.RateLimitResponse, error) {
			return s.ShouldRateLimit(ctx, r)
		})
		store.Close()
		if changed++; (wrong == "") != (m.what == "") {
			t.Errorf("%s: the script finds %q", m.what, wrong)
		}
	}
	t.Logf("%d changed configurations", changed-1)
	if changed < 20 {
		t.Errorf("%d changed configurations, want 20 or more", changed)
	}
}

// A lab plays scripts on policies in this process, without sockets.
type lab struct {
	*testing.T
	tokens   *identity.TokenFile
	sessions *identity.Sessions
}

func newLab(t *testing.T) *lab {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(tokenLines()), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := identity.OpenTokenFile(path, identity.TokenFileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.NewSecretKey("", []byte(sessionKey))
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := identity.NewSessions(identity.SessionsOptions{Keys: []identity.SessionKey{key}})
	if err != nil {
		t.Fatal(err)
	}
	return &lab{t, tokens, sessions}
}

// notices returns the first thing that a script finds wrong with a policy, or "".
func (l *lab) notices(s *script, p weir.Policy) (found string) {
	l.Helper()
	if found = l.plays(s, p, s.play, nil); found == "" && s.outage != nil {
		found = l.plays(s, p, s.outage, unreachable{})
	}
	return found
}

// plays plays a part of a script until it finds something wrong.
func (l *lab) plays(s *script, p weir.Policy, part func(*stage), store weir.Store) (found string) {
	l.Helper()
	on := newStage(hasty{}, s, p)
	memory, err := memstore.New(memstore.Options{Now: on.clock, Memory: memstore.MinMemory})
	if err != nil {
		l.Fatal(err)
	}
	defer memory.Close()
	if store == nil {
		store = memory
	} else {
		around, err := failover.New(store, memory, failover.Options{Now: on.clock})
		if err != nil {
			l.Fatal(err)
		}
		defer around.Close(context.Background())
		store = around
	}
	resolver, err := identity.New(identity.Options{Tokens: l.tokens, Sessions: l.sessions, Now: on.clock})
	if err != nil {
		l.Fatal(err)
	}
	d, err := weir.New(p, store, weir.Options{Sources: identity.Sources()})
	if err != nil {
		return err.Error()
	}
	m, err := httplimit.New(d, httplimit.Options{Identity: resolver})
	if err != nil {
		return err.Error()
	}
	on.door = m.Wrap(http.Handler(on))
	defer on.letGo()
	defer func() {
		switch wrong := recover().(type) {
		case nil:
		case finding:
			found = string(wrong)
		default:
			panic(wrong)
		}
	}()
	part(on)
	return ""
}

// A hasty critic ends the script with its first finding.
type (
	hasty   struct{}
	finding string
)

func (hasty) Helper()                           {}
func (hasty) Errorf(format string, args ...any) { panic(finding(fmt.Sprintf(format, args...))) }
func (hasty) Fatalf(format string, args ...any) { panic(finding(fmt.Sprintf(format, args...))) }

// An unreachable store never answers.
type unreachable struct{}

var errUnreachable = errors.New("no route to host")

func (unreachable) Take(context.Context, []weir.Charge, *weir.Receipt) error { return errUnreachable }

func (unreachable) Settle(context.Context, *weir.Ticket, []weir.Change) error { return errUnreachable }

// parsedPolicy returns the policy in a text, or false if there is none.
func parsedPolicy(text []byte) (weir.Policy, bool) {
	d, err := live.Parse(policyReader(), live.Contract, "a policy of the test", text)
	if err != nil {
		return weir.Policy{}, false
	}
	return d.Policy, true
}

// same reports whether a policy differs from that in a text in spelling alone.
func same(p weir.Policy, text string) bool {
	was, _ := parsedPolicy([]byte(text))
	return reflect.DeepEqual(plain(p), plain(was))
}

// plain returns the limiters of a policy in one of several spellings: a request without a cost is
// one unit, and a path that ends in a slash covers those below it with or without a star.
func plain(p weir.Policy) (all []weir.Limiter) {
	for _, l := range p.Limiters {
		l.Routes, l.Windows = slices.Clone(l.Routes), slices.Clone(l.Windows)
		for i := range l.Routes {
			l.Routes[i].Prefix = l.Routes[i].Prefix && !strings.HasSuffix(l.Routes[i].Path, "/")
		}
		for i := range l.Windows {
			w := &l.Windows[i]
			w.Requests = w.Requests && (l.Cost > 1 || l.Actual.Form != 0)
			w.Key = plainKey(w.Key, l.Requires)
		}
		l.InFlight.Key = plainKey(l.InFlight.Key, l.Requires)
		all = append(all, l)
	}
	return all
}

// plainKey returns a key without its last alternatives that make no difference: a caller without a
// token is counted by its address with or without "or ip", and one without the required token with
// "or everyone" too. A choice that comes again is none.
func plainKey(key weir.Key, requires string) (plain weir.Key) {
	for _, part := range key {
		var kept weir.Part
		for i, source := range part {
			last := i > 0 && (source == identity.IP || source == identity.Everyone && part[0] == requires)
			if !last && !slices.Contains(kept, source) {
				kept = append(kept, source)
			}
		}
		plain = append(plain, kept)
	}
	return plain
}

// A mutant is a text of YAML with one change.
type mutant struct {
	what string
	text []byte
}

// mutants returns all changes of one value of a document.
func mutants(t *testing.T, text string) (all []mutant) {
	t.Helper()
	var document any
	if err := yaml.UnmarshalWithOptions([]byte(text), &document, yaml.UseOrderedMap()); err != nil {
		t.Fatal(err)
	}
	for _, v := range variants("", document) {
		out, err := yaml.Marshal(v.value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, mutant{v.what, out})
	}
	return all
}

// A variant is a value with one change, and where that is.
type variant struct {
	what  string
	value any
}

// variants returns the changes of a value: each of its parts is left out, or is another one.
func variants(at string, value any) (all []variant) {
	add := func(what string, v any) { all = append(all, variant{at + what, v}) }
	switch v := value.(type) {
	case yaml.MapSlice:
		for i, item := range v {
			add(fmt.Sprintf(".%v is left out", item.Key), slices.Delete(slices.Clone(v), i, i+1))
			change := func(key, value any) yaml.MapSlice {
				c := slices.Clone(v)
				c[i] = yaml.MapItem{Key: key, Value: value}
				return c
			}
			for _, key := range words(fmt.Sprint(item.Key)) {
				add(fmt.Sprintf(".%v is %s", item.Key, key), change(key, item.Value))
			}
			if item.Key == "name" {
				continue // callers do not see it
			}
			for _, inner := range variants(fmt.Sprintf("%s.%v", at, item.Key), item.Value) {
				all = append(all, variant{inner.what, change(item.Key, inner.value)})
			}
		}
	case []any:
		for i, item := range v {
			add(fmt.Sprintf("[%d] is left out", i), slices.Delete(slices.Clone(v), i, i+1))
			for _, inner := range variants(fmt.Sprintf("%s[%d]", at, i), item) {
				c := slices.Clone(v)
				c[i] = inner.value
				all = append(all, variant{inner.what, c})
			}
		}
	case string:
		for _, s := range words(v) {
			add(fmt.Sprintf(" %q is %q", v, s), s)
		}
	default:
		for _, s := range words(fmt.Sprint(v)) {
			if n, err := strconv.Atoi(s); err == nil {
				add(fmt.Sprintf(" %v is %d", v, n), n)
			}
		}
	}
	return all
}

// alternatives are words that stand for each other.
var alternatives = [][]string{
	{"second", "minute", "hour", "day"},
	{"seconds", "minutes", "hours", "days"},
	{"ip", "token", "session", "everyone", "agent"},
	{"GET", "POST", "PUT"},
	{"deny", "local", "allow"},
	{"not", "status"},
}

var (
	word    = regexp.MustCompile(`[A-Za-z_]+|[0-9]+`)
	rewrite = []struct {
		from *regexp.Regexp
		to   string
	}{
		{regexp.MustCompile(`^[A-Z]+ (.*/)`), "$1"},              // a route for every method
		{regexp.MustCompile(`^(/.*)$`), "GET $1"},                // and for one
		{regexp.MustCompile(`^(.*/.*)\*$`), "$1"},                // a route for one path
		{regexp.MustCompile(`^(.*/.*[^*])$`), "$1*"},             // and for all that begin so
		{regexp.MustCompile(`^(.*/)[^/]+$`), "$1*"},              // or with the segment before
		{regexp.MustCompile(`^(.*/)[^/]+/[^/]+$`), "$1*"},        // or with the one before that
		{regexp.MustCompile(`[a-z]+(\.[a-z]+\.[a-z]+/)`), "*$1"}, // for all hosts that end so
		{regexp.MustCompile(`[a-z*.]+\.[a-z]+/`), "/"},           // for all hosts
		{regexp.MustCompile(`\b([a-z]+) or `), ""},               // a key without its first choice
		{regexp.MustCompile(` or ([a-z]+)`), ""},                 // and without its second one
		{regexp.MustCompile(` or `), "+"},
		{regexp.MustCompile(`by (ip|token)$`), "by $1+agent"},
		{regexp.MustCompile(`by ip$`), "by token or ip"},
		{regexp.MustCompile(`by ip$`), "by session or ip"},
		{regexp.MustCompile(`by ([a-z]+)\+[a-z]+$`), "by $1"},
		{regexp.MustCompile(` requests`), ""},
		{regexp.MustCompile(`^([0-9]+) per`), "$1 requests per"},
		{regexp.MustCompile(`^([0-9])xx$`), "${1}00"},
		{regexp.MustCompile(`per ([a-z]+) `), "per 2 ${1}s "},
	}
)

// words returns texts that differ from s in one word or number.
func words(s string) []string {
	changed := make(map[string]bool)
	for _, at := range word.FindAllStringIndex(s, -1) {
		was := s[at[0]:at[1]]
		for _, other := range otherWords(was) {
			changed[s[:at[0]]+other+s[at[1]:]] = true
		}
	}
	for _, r := range rewrite {
		changed[r.from.ReplaceAllString(s, r.to)] = true
	}
	delete(changed, s)
	return slices.Sorted(maps.Keys(changed))
}

func otherWords(was string) (others []string) {
	if n, err := strconv.Atoi(was); err == nil {
		return []string{strconv.Itoa(n - 1), strconv.Itoa(n + 1), was + "0", strconv.Itoa(n / 10)}
	}
	for _, class := range alternatives {
		if slices.Contains(class, was) {
			others = append(others, class...)
		}
	}
	return append(others, was+"x")
}
