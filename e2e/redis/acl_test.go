package redis_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// minimalRights returns the rights of Weir's user in the operators' example.
func minimalRights(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "scale", "store.acl"))
	if err != nil {
		t.Fatal(err)
	}
	_, rights, ok := strings.Cut(string(text), ">CHANGE-ME ")
	if !ok {
		t.Fatalf("no password and rights behind it in %q", text)
	}
	return strings.Fields(rights)
}

// The example's rights are sufficient. If one is missing, New fails and names it.
func TestTheMinimalRightsAreSufficient(t *testing.T) {
	server := redistest.Start(t)
	rights := minimalRights(t)
	server.Do(t, append([]string{"ACL", "SETUSER", "app", "on", ">secret"}, rights...)...)
	o := redisstore.Options{Addresses: []string{server.Addr()}, Username: "app", Password: "secret"}
	s := open(t, o)
	for i, want := range []bool{true, true, false} {
		if r := take(t, s, charge("a", 2, 3600, 1), charge("a", 9, 7200, 1)); r.Allowed != want {
			t.Errorf("take %d: allowed is %v", i, r.Allowed)
		}
	}
	c := charge("b", 9, 3600, 1)
	if lost, err := s.Give(t.Context(), []weir.Spent{{Key: c.Key, Scope: c.Scope, Subject: c.Subject, Per: c.Per, Used: weir.Used{Count: 4, Reset: s.Now().Unix() + 60}}}); lost != 0 || err != nil {
		t.Errorf("give: %d lost, %v", lost, err)
	}
	if r := take(t, s, c); r.Used[0].Count != 5 {
		t.Errorf("after 4 were given a take found %d", r.Used[0].Count-1)
	}
	reset(t, s, c, charge("b", 9, 7200, 1))
	grant(t, s, "b", 50)
	grant(t, s, "b", 0)
	grant(t, s, "b", 60)
	if r := take(t, s, c); r.Used[0].Count != 1 || granted(s, "b") != 60 || granted(open(t, o), "b") != 60 {
		t.Errorf("after a reset a take found %d, and the grant is %d, want 60", r.Used[0].Count-1, granted(s, "b"))
	}
	for _, right := range rights {
		if !strings.HasPrefix(right, "+") || strings.Contains(right, "|") || right == "+hello" || right == "+ping" {
			continue // optional for the client
		}
		server.Do(t, "ACL", "SETUSER", "app", "-"+right[1:])
		o := o
		if right == "+wait" {
			o.Replicas = 1
		}
		s, err := redisstore.New(t.Context(), o)
		if want := "user app may not run '" + right[1:] + "'"; !errors.Is(err, redisstore.ErrDenied) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("without %s: %v, want %s", right, err, want)
		}
		if err == nil {
			s.Close()
		}
		server.Do(t, "ACL", "SETUSER", "app", right)
	}
	server.Do(t, "ACL", "SETUSER", "app", "resetkeys", "~other:*")
	_, err := redisstore.New(t.Context(), o)
	if want := "user app may not use the keys weir:*"; !errors.Is(err, redisstore.ErrDenied) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("without its keys: %v, want %s", err, want)
	}
}

// Rule returns the rights of the example.
func TestTheACLRuleMatchesTheExample(t *testing.T) {
	server := redistest.Start(t)
	rule := strings.Fields(redisstore.ACLRules("shop"))
	server.Do(t, append([]string{"ACL", "SETUSER", "app", "on", ">secret"}, rule...)...)
	s := open(t, redisstore.Options{Addresses: []string{server.Addr()}, Username: "app", Password: "secret", Prefix: "shop"})
	take(t, s, charge("a", 2, 3600, 1))
	example, own := minimalRights(t), strings.Fields(redisstore.ACLRules(""))
	// a new user has no rights by default
	example = slices.DeleteFunc(example, func(right string) bool { return right == "-@all" })
	slices.Sort(example)
	slices.Sort(own)
	if !slices.Equal(example, own) {
		t.Errorf("the example has the rights %v, the rule %v", example, own)
	}
}

// If the user loses a right while the node runs, the node reports the failure with
// its reason. Once the right is restored, it counts in Redis again.
func TestARevokedRightIsReported(t *testing.T) {
	for _, right := range []string{"evalsha", "incrby"} {
		t.Run(right, func(t *testing.T) {
			server := redistest.Start(t)
			server.Do(t, append([]string{"ACL", "SETUSER", "app", "on", ">secret"}, minimalRights(t)...)...)
			var log lines
			s := open(t, redisstore.Options{
				Addresses: []string{server.Addr()}, Username: "app", Password: "secret", Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			server.Do(t, "ACL", "SETUSER", "app", "-"+right)
			eventually(t, "the node is not ready", func() bool { return !s.State().Ready })
			eventually(t, "the log names the right", func() bool { return log.with("user app may not run '"+right+"'") == 1 })
			n := newNode(t, s, deadline, hourly(10)) // no request so far
			if d := n.decide("a"); d.Outcome != weir.CountedLocally {
				t.Errorf("without the right to %s the outcome is %d", right, d.Outcome)
			}
			server.Do(t, "ACL", "SETUSER", "app", "+"+right)
			n.recovered("a", 1)
			n.until("a", weir.Counted)
			eventually(t, "the node is ready", func() bool { return s.State().Ready })
		})
	}
}
