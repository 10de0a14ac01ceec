package sample

import (
	"strings"
	"testing"
)

// D15: whoever knows a token's public id, but not its secret, spends nothing of its owner's 60 a minute.
func TestAWrongSecretSpendsNothingOfItsOwners(t *testing.T) {
	k := setUp(t)
	send := k.behind([3]string{"wp-plugin", "/v1/wp/*", "3 per minute by token or ip"})
	remaining := func(a answer, want string) {
		t.Helper()
		if got := strings.Join(a.header["X-RateLimit-Remaining"], "|"); got != want { // spelled as on the wire
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
	send("GET /v1/wp/status", "Bearer wpt_"+id+"_x", "").wantError(429, "rate_limited") // the guesser's own address is spent
	remaining(send("GET /v1/wp/status", k.token, "").want(200), "1")
}
