package httplimit_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// An unknown message, or a key source that no caller has, is an error before the
// first request.
func TestAnUnservablePolicyIsRejected(t *testing.T) {
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := limiters(t, map[string][]string{"l /": {"1 per minute by ip+tenant"}})
	p.Limiters[0].Message = "wigdet"
	d, err := weir.New(p, brokenStore{}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		decider *weir.Decider
		options httplimit.Options
		want    string
	}{
		{nil, httplimit.Options{Identity: who}, `new middleware: no decider: pass weir.New's`},
		{d, httplimit.Options{}, `new middleware: Options.Identity is required: pass identity.New's`},
		{d, httplimit.Options{Identity: who}, `new middleware: limiter "l" has the message "wigdet": bulk-sync, general, in-flight, widget are allowed
limiter "l" counts by "tenant": the key sources here are ip, agent, session, token, header:NAME, path:NAME, cookie:NAME, query:NAME, host, claim:NAME, cert, everyone`},
	} {
		if _, err := httplimit.New(test.decider, test.options); err == nil || err.Error() != test.want {
			t.Errorf("the error is %v\nwant %s", err, test.want)
		}
	}
}
