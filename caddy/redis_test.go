package weircaddy

import (
	"net/http"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/redisstore"
)

// Sites with different policies, a reload, and another process that counts in the same Redis share
// the counts of one limiter name.
func TestARedisSharesTheCountsWithOthers(t *testing.T) {
	redis := redistest.Start(t)
	store := "store redis://" + redis.Addr()
	one := policy(t, "- {name: all, routes: [/*], windows: [4 per hour by everyone]}")
	two := policy(t, "- {name: all, routes: [/*], windows: [4 per hour by everyone]}\n- {name: other, routes: [/other], windows: [1 per hour by ip]}")
	a, b := freeAddress(t), freeAddress(t)
	text := site(a, limited(one, store), "respond a") + site(b, limited(two, store), "respond b")
	serve(t, text, "")
	wantStatuses(t, "a", "http://"+a+"/", nil, 200)
	if err := load(t, text, ""); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, "b", "http://"+b+"/", nil, 200)

	at, err := redisstore.Parse("redis://" + redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := redisstore.New(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	own := httplimit.Setup{Store: elsewhere, Limiter: weir.Limiter{Name: "all"}}.Limit("4 per hour by everyone")
	other := freeAddress(t)
	server := &http.Server{Addr: other, Handler: own(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))}
	ended := make(chan error)
	go func() { ended <- server.ListenAndServe() }()
	defer func() {
		server.Close()
		<-ended
	}()
	for {
		if _, err := try("http://" + other + "/"); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
	}
	wantStatuses(t, "the last one", "http://"+a+"/", nil, 200)
	refused := get(t, "http://"+a+"/")
	if refused.status != http.StatusTooManyRequests || refused.header.Get("X-Weir-Denial") == "" {
		t.Errorf("the fifth request: %+v", refused)
	}
}
