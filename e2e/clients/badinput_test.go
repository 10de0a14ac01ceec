package clients

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// An elsewhere is a server of another origin. It sends fields of its own.
func elsewhere(t *testing.T) (address string, tokens <-chan string) {
	t.Helper()
	seen := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Headers", "authorization")
		h.Set("Access-Control-Expose-Headers", "*")
		h.Set("X-RateLimit-Limit", "7")
		h.Set("X-RateLimit-Remaining", "0")
		h.Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Unix()+1000))
		if r.Method != http.MethodOptions {
			seen <- r.Header.Get("Authorization")
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, seen
}

func TestAfterARedirectInABrowserTheTokenStaysHome(t *testing.T) {
	a := serve(t, 20, 60)
	b := open(t, a.url)
	address, tokens := elsewhere(t)
	a.away = address
	ask[[]string](b, "run(1, '/v1/wp/away')")
	if token := <-tokens; token != "" {
		t.Errorf("the other host got Authorization: %s", token)
	}
	windows(t, together(t, map[*tab][]string{b: {"run(3)"}})) // the other host's Remaining is 0
	if got := ask[float64](b, "paced.budget('/v1/wp/x', { headers: { authorization: 'Bearer wpt_demo_secret' } }).then(b => b.limit)"); got != 20 {
		t.Errorf("the limit is %v, want 20: the fields of the other host are booked on this one", got)
	}
	neverRefused(t, b)
}

func TestAnOpaqueAnswerIsReturned(t *testing.T) {
	a := serve(t, 20, 60)
	b := open(t, a.url)
	address, _ := elsewhere(t)
	if got := ask[string](b, fmt.Sprintf("paced(%q, { mode: 'no-cors' }).then(r => r.type)", address)); got != "opaque" {
		t.Errorf("its type is %q, want opaque", got)
	}
}

func TestAStateThatCannotBeTrueIsForgotten(t *testing.T) {
	a := serve(t, 20, 60)
	b := open(t, a.url)
	windows(t, together(t, map[*tab][]string{b: {"run(2)"}}))
	changed := ask[float64](b, `new Promise(done => {
		indexedDB.open('weir-pace').onsuccess = ({ target: { result: db } }) => {
			const states = db.transaction('weir-pace', 'readwrite').objectStore('weir-pace');
			states.getAllKeys().onsuccess = ({ target: { result: keys } }) => {
				if (keys.some(key => JSON.stringify(key).includes('secret'))) done(-1);
				for (const key of keys) states.put({ phase: 1, remaining: 'none', blocked: Infinity }, key);
				states.transaction.oncomplete = () => done(keys.length);
			};
		};
	})`)
	if changed < 1 {
		t.Fatalf("%v states were changed, want at least 1 (-1: a credential is stored)", changed)
	}
	windows(t, together(t, map[*tab][]string{b: {"run(2)"}}))
	neverRefused(t, b)
}

// In a service worker, or behind a content policy, a module may not be loaded when it is needed.
func TestModulesThatCannotBeLoadedFailNoCall(t *testing.T) {
	a := serve(t, 20, 60)
	b := open(t, a.url)
	got := ask[[]string](b, `import('/part/pace.js').then(async ({ pace }) => {
		const part = pace()(fetch), seen = [];
		part.addEventListener('alone', ({ reason }) => seen.push(reason.name));
		seen.unshift(...(await Promise.all(['/worker.js', '/v1/wp/x', '/nowhere'].map(path => part(path)))).map(r => String(r.status)));
		return seen;
	})`)
	if want := "200 200 404 TypeError"; strings.Join(got, " ") != want {
		t.Errorf("the statuses and the event are %q, want %s", got, want)
	}
}

func TestADatabaseThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	a := serve(t, 20, 60)
	b := open(t, a.url)
	ask[bool](b, `(window.open_ = indexedDB.open, IDBFactory.prototype.open = () => { throw new Error('blocked') }, true)`)
	windows(t, together(t, map[*tab][]string{b: {"run(3)"}}))
	if told := b.told("alone"); len(told) != 1 || told[0] != "alone blocked" {
		t.Errorf("it told %q, want once that it is blocked", told)
	}
	states := `new Promise(done => indexedDB.open('weir-pace', 1).onsuccess = ({ target: { result: db } }) =>
		db.transaction('weir-pace').objectStore('weir-pace').count().onsuccess = ({ target }) => done(target.result))`
	ask[bool](b, `(async () => { // until the view is shared
		IDBFactory.prototype.open = open_;
		for (let n = 0; n < 1;) {
			await run(1);
			await new Promise(done => setTimeout(done, 200));
			if ((await indexedDB.databases()).length) n = await `+states+`;
		}
		return true;
	})()`)
}
