package redis_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// A wording is a pattern for a server's line, and its replacement.
type wording struct {
	line *regexp.Regexp
	text string
}

// The errors of Redis 7.0, and their wording in Redis 7.2 and Valkey.
var newer = []wording{
	{regexp.MustCompile(`^-NOPERM this user has no permissions to access one of the keys.*$`), "-NOPERM No permissions to access a key"},
	{regexp.MustCompile(`^-NOPERM this user has no permissions to run the ('[^']*') command.*$`), "-NOPERM User app has no permissions to run the $1 command"},
	{regexp.MustCompile(`^-ERR The user executing the script can't run this command or subcommand(.*)$`), "-ERR ACL failure in script: User app has no permissions to run the 'incrby' command$1"},
	{regexp.MustCompile(`^-ERR The user executing the script can't access at least one of the keys[^.]*(.*)$`), "-ERR ACL failure in script: No permissions to access a key$1"},
}

// reworded proxies clients to a server, and rewords the server's errors.
func reworded(t *testing.T, server *redistest.Server, wordings []wording) string {
	t.Helper()
	return accepting(t, func(client net.Conn, all *sync.WaitGroup) {
		defer client.Close()
		up, err := net.Dial("tcp", server.Addr())
		if err != nil {
			return
		}
		all.Go(func() {
			defer up.Close()
			io.Copy(up, client)
		})
		reword(client, up, wordings)
	})
}

func reword(to io.Writer, from io.Reader, wordings []wording) {
	for r := bufio.NewReader(from); ; {
		line, err := r.ReadString('\n')
		if strings.HasPrefix(line, "-") {
			for _, w := range wordings {
				line = w.line.ReplaceAllString(strings.TrimSuffix(line, "\r\n"), w.text) + "\r\n"
			}
		}
		if _, failed := io.WriteString(to, line); err != nil || failed != nil {
			return
		}
	}
}

// A missing right is named at the start, for each wording of the server's error.
func TestEveryWordingOfAMissingRightIsRecognized(t *testing.T) {
	for _, w := range []struct {
		name     string
		wordings []wording
	}{{"Redis 7.0", nil}, {"Redis 7.2 and Valkey", newer}} {
		for _, c := range []struct{ rule, want string }{
			{"-incrby", "user app may not run 'incrby'"}, // only scripts run it
			{"-evalsha", "user app may not run 'evalsha'"},
			{"-hget", "user app may not run 'hget'"},
			{"resetkeys ~other:*", "user app may not use the keys weir:*"},
		} {
			t.Run(w.name+", "+c.rule, func(t *testing.T) {
				server := redistest.Start(t)
				rules := append([]string{"ACL", "SETUSER", "app", "on", ">secret"}, minimalRights(t)...)
				server.Do(t, append(rules, strings.Fields(c.rule)...)...)
				o := redisstore.Options{Addresses: []string{reworded(t, server, w.wordings)}, Username: "app", Password: "secret"}
				s, err := redisstore.New(t.Context(), o)
				if !errors.Is(err, redisstore.ErrDenied) || !strings.HasSuffix(err.Error(), c.want) {
					t.Errorf("the error is %v, want %s", err, c.want)
				}
				if err == nil {
					s.Close()
				}
			})
		}
	}
}

// Protected mode is reported as denied access, with the server's text. The text is
// from Redis 7.0.
func TestProtectedModeIsReported(t *testing.T) {
	const denied = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user. " +
		"In this mode connections are only accepted from the loopback interface. If you want to connect from external computers to Redis you may adopt one of the following solutions: " +
		"1) Just disable protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same host the server is running, " +
		"however MAKE SURE Redis is not publicly accessible from internet if you do so. Use CONFIG REWRITE to make this change permanent. " +
		"2) Alternatively you can just disable the protected mode by editing the Redis configuration file, and setting the protected mode option to 'no', and then restarting the server. " +
		"3) If you started the server manually just for testing, restart it with the '--protected-mode no' option. 4) Set up an authentication password for the default user. " +
		"NOTE: You only need to do one of the above things in order for the server to start accepting connections from the outside.\r\n"
	s, err := redisstore.New(t.Context(), redisstore.Options{Addresses: []string{speaker(t, denied, "")}})
	if err == nil {
		defer s.Close()
	}
	if !errors.Is(err, redisstore.ErrDenied) || !strings.Contains(err.Error(), "DENIED Redis is running in protected mode") {
		t.Errorf("the error is %v", err)
	}
}
