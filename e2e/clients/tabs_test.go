package clients

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
)

// together evaluates expressions at the same time, and returns what all of them returned.
func together(t *testing.T, expressions map[*tab][]string) []string {
	t.Helper()
	var mu sync.Mutex
	var all []string
	var running sync.WaitGroup
	for b, list := range expressions {
		for _, expression := range list {
			running.Go(func() {
				answers, err := eval[[]string](b, expression)
				mu.Lock()
				defer mu.Unlock()
				if all = append(all, answers...); err != nil {
					t.Error(err)
				}
			})
		}
	}
	running.Wait()
	return all
}

// windows returns how many answers there were by window. All must have the status 200.
func windows(t *testing.T, answers []string) map[string]int {
	t.Helper()
	byReset := make(map[string]int)
	for _, a := range answers {
		status, reset, _ := strings.Cut(a, " ")
		if status != "200" {
			t.Errorf("an answer is %q; none may be refused", a)
		}
		byReset[reset]++
	}
	return byReset
}

// neverRefused fails the test if a tab has got a 429, or paces itself alone.
func neverRefused(t *testing.T, tabs ...*tab) {
	t.Helper()
	for i, b := range tabs {
		if told := append(b.told("refused"), b.told("alone")...); len(told) > 0 {
			t.Errorf("tab %d told %q", i, told)
		}
	}
}

func TestThreeTabsAndAWorkerShareEachWindow(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes several windows")
	}
	// the threshold of 20 is 2: the call that leaves 1 is the last of a window
	const limit, seconds, usable, count = 20, 4, 19, 5
	a := serve(t, limit, seconds)
	tabs := []*tab{open(t, a.url), open(t, a.url), open(t, a.url)}
	began := time.Now()
	answers := together(t, map[*tab][]string{
		tabs[0]: {"run(25)"}, tabs[1]: {"run(25)"}, tabs[2]: {"run(20)", fmt.Sprintf("work(%d)", usable*count-70)},
	})
	took := time.Since(began)
	neverRefused(t, tabs...)
	spent := windows(t, answers)
	if len(spent) > count+1 { // one more if the machine is slow
		t.Errorf("%d calls took %d windows, and %d are enough: %v", usable*count, len(spent), count, spent)
	}
	t.Logf("%d calls in %v: %.1f %% of the usable budget", len(answers), took.Round(time.Millisecond),
		100*float64(len(answers))/(usable*(1+took.Seconds()/seconds)))
}

func TestATabThatOpensLaterKnowsWhatIsLeft(t *testing.T) {
	a := serve(t, 20, 3)
	first := open(t, a.url)
	windows(t, together(t, map[*tab][]string{first: {"run(19)"}}))
	second := open(t, a.url)
	if got := ask[float64](second, "paced.budget('/v1/wp/x', { headers: { authorization: 'Bearer wpt_demo_secret' } }).then(b => b.remaining)"); got != 1 {
		t.Errorf("it believes that %v units are left, want 1", got)
	}
	for range 3 { // a page that is loaded again and again
		windows(t, together(t, map[*tab][]string{second: {"run(7)"}}))
		neverRefused(t, first, second)
		second.navigate(a.url + "/page.html")
	}
}

// busyAndWaiting opens two tabs of an api with a limit of 20. The first has all the rest of a
// window in flight, and hangs.
func busyAndWaiting(t *testing.T, a *api) (first, second *tab) {
	t.Helper()
	first, second = open(t, a.url), open(t, a.url)
	windows(t, together(t, map[*tab][]string{first: {"run(1)"}}))
	ask[bool](first, "run(18, '/v1/wp/hang'), true")
	// as soon as all of them are on their way the budget has no room
	ask[bool](second, `(async () => { while ((await paced.budget('/v1/wp/x', { headers: { authorization: 'Bearer wpt_demo_secret' } })).inFlight < 18) {} return true })()`)
	return first, second
}

// wantFreed fails the test if the calls of a tab that has died are still counted.
func wantFreed(t *testing.T, other *tab) {
	t.Helper()
	spent := windows(t, together(t, map[*tab][]string{other: {"run(38)"}}))
	neverRefused(t, other)
	if len(spent) > 3 {
		t.Errorf("38 calls took %d windows, and 3 would do: the dead tab's calls are still counted: %v", len(spent), spent)
	}
}

func TestATabThatDiesFreesItsSlots(t *testing.T) {
	a := serve(t, 20, 2)
	defer close(a.hang)
	first, second := busyAndWaiting(t, a)
	first.close()
	wantFreed(t, second)
}

func TestATabThatCrashesInsideTheLockFreesIt(t *testing.T) {
	a := serve(t, 20, 2)
	defer close(a.hang)
	first, second := busyAndWaiting(t, a)
	// it holds the lock, and a transaction that has begun
	ask[bool](first, `new Promise(held => navigator.locks.request('weir-pace', () => new Promise(() => indexedDB.open('weir-pace').onsuccess = ({ target: { result: db } }) => {
		const store = db.transaction('weir-pace', 'readwrite').objectStore('weir-pace');
		const again = () => { store.count().onsuccess = again; held(true) };
		again();
	})))`)
	first.crash()
	wantFreed(t, second)
}

func TestTwoPacedFetchesOfATabAreOne(t *testing.T) {
	a := serve(t, 20, 60)
	b := open(t, a.url)
	windows(t, together(t, map[*tab][]string{b: {"run(12)"}}))
	got := ask[[]string](b, `import('/pace/pace.js').then(async ({ pace }) => {
		const other = pace({ maxWait: 0 })(fetch), init = { headers: { authorization: 'Bearer wpt_demo_secret' } };
		const call = () => other('/v1/wp/x', init).then(response => String(response.status), error => error.name);
		return Promise.all(Array.from({ length: 9 }, call));
	})`)
	if want := "200 200 200 200 200 200 200 WaitError WaitError"; strings.Join(got, " ") != want {
		t.Errorf("after 12 of 20 calls, 9 calls of another fetch are %q, want %s", got, want)
	}
	neverRefused(t, b)
}

func TestTheSharedViewCanBeDeleted(t *testing.T) {
	a := serve(t, 20, 60)
	b := open(t, a.url)
	windows(t, together(t, map[*tab][]string{b: {"run(3)"}}))
	if got := ask[string](b, `new Promise(done => {
		const request = indexedDB.deleteDatabase('weir-pace');
		request.onblocked = () => done('blocked');
		request.onsuccess = () => done('deleted');
	})`); got != "deleted" {
		t.Errorf("it is %s", got)
	}
	windows(t, together(t, map[*tab][]string{b: {"run(3)"}}))
	neverRefused(t, b)
}

func TestAFrozenTabDoesNotStopTheOthers(t *testing.T) {
	a := serve(t, 20, 2)
	frozen, other := open(t, a.url), open(t, a.url)
	windows(t, together(t, map[*tab][]string{frozen: {"run(5)"}, other: {"run(5)"}}))
	// the worst moment: it holds the lock
	ask[bool](frozen, "new Promise(held => navigator.locks.request('weir-pace', () => new Promise(() => held(true))))")
	frozen.freeze(page.SetWebLifecycleStateStateFrozen)
	windows(t, together(t, map[*tab][]string{other: {"run(5)"}}))
	if told := other.told("alone"); len(told) == 0 {
		t.Error("it does not tell that it paces itself alone")
	}
	frozen.close()
	ask[bool](other, `(async () => { // until the view is shared again
		for (let before = -1; before < told.length;) { before = told.length; await run(1); await new Promise(done => setTimeout(done, 1100)); }
		return true;
	})()`)
	if told := other.told("refused"); len(told) > 0 {
		t.Errorf("it was refused: %q", told)
	}
}

func TestOnAnInsecureOriginATabSaysThatItPacesItselfAlone(t *testing.T) {
	a := serve(t, 20, 2)
	b := open(t, "http://weir.test:"+a.port)
	windows(t, together(t, map[*tab][]string{b: {"run(40)"}}))
	if told := b.told("alone"); len(told) != 1 || !strings.Contains(told[0], "secure origin") {
		t.Errorf("it told %q, want once that the origin is not secure", told)
	}
	if told := b.told("refused"); len(told) > 0 {
		t.Errorf("it was refused: %q", told)
	}
}

func TestTheTabsOfTheDemoAreNeverRefused(t *testing.T) {
	a := sample(t, "limiters:\n  - name: widget-session\n    routes: [/api/v1/widget/conversations*]\n    windows: [20 per 3 seconds by session or ip]\n")
	tabs := []*tab{demo(t, a), demo(t, a), demo(t, a)}
	for _, b := range tabs {
		ask[bool](b, `document.querySelector("#count").value = 15, document.querySelector("#send").requestSubmit(), true`)
	}
	for i, b := range tabs {
		ask[bool](b, `(async () => { while (!document.body.innerText.includes("All calls have been answered")) await new Promise(done => setTimeout(done, 10)); return true })()`)
		got := ask[[]string](b, `["called", "served", "failed", "refused"].map(id => document.getElementById(id).textContent)`)
		if want := "15 15 0 0"; strings.Join(got, " ") != want {
			t.Errorf("tab %d has called, served, failed, refused %q, want %s", i, got, want)
		}
	}
	if tokens := ask[float64](tabs[0], `Object.keys(localStorage).length`); tokens != 1 {
		t.Errorf("the tabs keep %v values, want one session", tokens)
	}
}

// demo opens the demo's page for several tabs.
func demo(t *testing.T, a *api) *tab {
	t.Helper()
	b := newTab(t)
	b.load(a.url+"/demo/tabs", `document.querySelector("#budget")`)
	return b
}
