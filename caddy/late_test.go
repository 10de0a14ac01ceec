package weircaddy

import (
	"encoding/base64"
	"strings"
	"testing"

	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth" // basic_auth
)

// basicAuth has two users, whose password is "secret".
const basicAuth = "basic_auth {\n alice " + secret + "\n bob " + secret + "\n}"

const secret = "$2a$04$uwN2ur4wFC0e3GQihw/D6OQA2h21NzYnRXvjqkgSScT5v.C1/BoXS" // by bcrypt

func authorization(user string) []string {
	return []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":secret"))}
}

func TestAKeyThatALaterHandlerSetsIsLogged(t *testing.T) {
	registerSaid()
	output := "log weir {\n output said\n include http.handlers.weir\n}"
	for _, c := range []struct {
		name, global string
		bob          int // the status of the second user, with one request an hour
		warnings     int
	}{
		{"before basic_auth", "", 429, 1},
		{"after basic_auth", "order weir after basic_auth\n", 200, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			said{}.buffer().Reset()
			at, limits := freeAddress(t), policy(t, "- {name: all, routes: [/a], windows: [1 per hour by user or ip]}\n- {name: more, routes: [/b], windows: [9 per hour by user or ip]}")
			serve(t, site(at, basicAuth, limited(limits, "key user {http.auth.user.id} verified"), "respond hello"), c.global+output)
			wantStatuses(t, "nobody", "http://"+at+"/b", nil, 401)
			if log := (said{}).buffer().String(); log != "" {
				t.Errorf("the log has %q before a user is known", log)
			}
			wantStatuses(t, "alice", "http://"+at+"/a", authorization("alice"), 200, 429)
			wantStatuses(t, "bob", "http://"+at+"/a", authorization("bob"), c.bob)
			wantStatuses(t, "more of alice", "http://"+at+"/b", authorization("alice"), 200, 200)
			if log := (said{}).buffer().String(); strings.Count(log, "order weir after basic_auth") != c.warnings {
				t.Errorf("want %d warnings in the log %q", c.warnings, log)
			}
		})
	}
}
