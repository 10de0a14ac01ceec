package redisstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// leastRights are the rights that the example for operators gives Weir's user.
func leastRights(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "examples", "scale", "store.acl"))
	if err != nil {
		t.Fatal(err)
	}
	_, rights, ok := strings.Cut(string(text), ">CHANGE-ME ")
	if !ok {
		t.Fatalf("no password and rights behind it in %q", text)
	}
	return strings.Fields(rights)
}

// A user with the rights of the example is enough, and one who lacks any is told at once.
func TestTheLeastRightsAreEnough(t *testing.T) {
	server := redistest.Start(t)
	rights := leastRights(t)
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
		t.Errorf("after a reset a take found %d, and a grant of 60 is one of %d", r.Used[0].Count-1, granted(s, "b"))
	}
	for _, right := range rights {
		if !strings.HasPrefix(right, "+") || strings.Contains(right, "|") || right == "+hello" || right == "+ping" || right == "+evalsha" {
			continue // the client does without, or the script is sent whole
		}
		server.Do(t, "ACL", "SETUSER", "app", "-"+right[1:])
		if s, err := redisstore.New(t.Context(), o); !errors.Is(err, redisstore.ErrDenied) {
			t.Errorf("without %s: %v", right, err)
			if err == nil {
				s.Close()
			}
		}
		server.Do(t, "ACL", "SETUSER", "app", right)
	}
}
