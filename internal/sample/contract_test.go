package sample

import (
	"strings"
	"testing"
)

// A client that knows the public id of a token but not its secret spends nothing of the owner's 60
// a minute (D15).
func TestAWrongSecretSpendsNothingOfItsOwners(t *testing.T) {
	k := setUp(t)
	send := k.behind([3]string{"wp-plugin", "/v1/wp/*", "3 per minute by token or ip"})
	remaining := func(a reply, want string) {
		t.Helper()
		// spelled as on the wire
		if got := strings.Join(a.header["X-RateLimit-Remaining"], "|"); got != want {
			t.Errorf("%d: %s remaining, want %s", a.status, got, want)
		}
	}
	remaining(send("GET /v1/wp/status", k.token, "").want(200), "2")
	id := strings.Split(k.token, "_")[1]
	other := k.synchroniser("demo")
	secret := strings.Split(other, "_")[2] // a secret, but not this id's
	for _, forged := range []string{"Bearer wpt_" + id + "_" + secret, "Bearer wpt_" + id, k.token[:len(k.token)-8] + "aaaaaaaa"} {
		send("GET /v1/wp/status", forged, "").wantError(401, "unauthenticated")
	}
	// the address of the guesser is spent
	send("GET /v1/wp/status", "Bearer wpt_"+id+"_x", "").wantError(429, "rate_limited")
	remaining(send("GET /v1/wp/status", k.token, "").want(200), "1")
}
