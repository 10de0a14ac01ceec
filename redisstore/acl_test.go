package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// leastRights are the rights that docs/scale.md gives a user for one server.
const leastRights = "~weir:* -@all +eval +evalsha +get +getex +set +incrby +decrby +pttl +del +time +info +ping +hello +cluster|slots +cluster|shards"

// A user with the rights of the manual is enough, and one who lacks any is told at once.
func TestTheLeastRightsAreEnough(t *testing.T) {
	server := redistest.Start(t)
	rights := strings.Fields(leastRights)
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
