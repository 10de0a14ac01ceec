package watch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/watch"
)

func TestAQuietServerShowsTrueNumbers(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	desk := newDesk(t, c.now, byIP(t, "ask", 30))
	r.Declare(desk.decider.Policy())
	for caller := range 20 {
		for range 10 * (caller + 1) / 2 {
			r.Observe(desk.event("ask", fmt.Sprint("192.0.2.", caller)))
		}
	}
	l := limiter(t, r.Snapshot(watch.Query{Top: 100}), "ask")
	if len(l.Spending) != 20 || len(l.Refused) != 14 {
		t.Fatalf("%d callers spend and %d are refused, not 20 and 14", len(l.Spending), len(l.Refused))
	}
	most := l.Refused[0] // the last caller: 100 requests, of which 30 are admitted
	want := watch.Caller{
		Hash: most.Hash, Kind: "ip", Units: 30, Reserved: 30, Refused: 70, Since: c.seconds.Load(), UnitsSince: 30, RefusedSince: 70, Actionable: true,
		Last: &watch.Standing{Window: "30 per minute by ip", Limit: 30, Count: 30, Remaining: 0, Reset: c.seconds.Load() + 60},
	}
	if got, _ := json.Marshal(most); !sameJSON(got, want) {
		t.Errorf("refused most is %s", got)
	}
	for _, s := range l.Spending {
		if s.Hash == most.Hash && (s.UnitsSince != 30 || s.Units != 30 || s.RefusedSince != 70 || s.Error != 0) {
			t.Errorf("among those who spend it is %+v", s)
		}
	}
	c.move(5 * time.Minute)
	l = limiter(t, r.Snapshot(watch.Query{Top: 1}), "ask")
	if len(l.Refused) != 1 || l.Refused[0].Hash != most.Hash || l.Refused[0].Refused != 35 || l.Refused[0].RefusedSince != 70 {
		t.Errorf("five minutes later: %+v, not one caller with 35 refusals, of 70", l.Refused)
	}
	c.move(10 * time.Hour)
	s := r.Snapshot(watch.Query{})
	if l = limiter(t, s, "ask"); len(l.Spending) != 0 || len(l.Refused) != 0 || s.CallersKept != 0 {
		t.Errorf("hours later there are %v, %v, and %d bytes of callers", l.Spending, l.Refused, s.CallersKept)
	}
}

func sameJSON(got []byte, want any) bool {
	w, err := json.Marshal(want)
	return err == nil && bytes.Equal(got, w)
}

// TestNothingOfACallerIsShown sends values that callers can choose, and checks that no output
// contains them.
func TestNothingOfACallerIsShown(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	desk := newDesk(t, c.now, weir.Limiter{Name: "ask", Windows: []weir.Window{window(t, 1, "minute", "token or session or ip+agent")}})
	hostile := []keys{
		{"ip": "SECRET", "agent": "<script>SECRET</script>"},
		{"ip": "SECRET", "agent": "\x00\x1b[31mSECRET\r\n"},
		{"ip": "\xff\xfe", "agent": strings.Repeat("SECRET", 1400)},
		{"session": "SECRET\"}", "agent": ""},
		{"token": "<b>SECRET", "agent": "SECRET"},
		{"token": strings.Repeat("SECRET", 20), "agent": "SECRET"},
		{"token": "", "agent": ""},
		{"token": "wpt_abcdefghij_SECRET", "agent": "SECRET"},
		{},
	}
	for _, k := range append(hostile, keys{"token": "abcdefgh27", "agent": "SECRET"}, keys{"token": "acme.prod", "agent": "SECRET"}) {
		for range 3 {
			r.Observe(desk.of("ask", k, 0))
		}
	}
	// no Keys
	r.Observe(answer.Observation{Limiter: "ask", Outcome: answer.Refused, Decision: desk.of("ask", keys{}, 0).Decision, Who: []byte("x")})
	s := r.Snapshot(watch.Query{Top: 100})
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	known, _ := r.Caller("ask", s.Refusals.List[0].Hash)
	text = fmt.Appendf(text, "%v %+v %#v %s", known, known, known, known)
	for _, bad := range []string{"SECRET", "script", "\\u0000", "\\u001b", "ufffd", "<", "5345435245"} {
		if bytes.Contains(text, []byte(bad)) {
			t.Errorf("%q is shown", bad)
		}
	}
	l := limiter(t, s, "ask")
	kinds := make(map[string]int)
	for _, caller := range l.Spending {
		kinds[caller.Kind+" "+caller.Name]++
	}
	want := map[string]int{"ip+agent ": 3, "session+agent ": 1, "token+agent ": 4, "nobody+nobody ": 1, "token+agent abcdefgh27": 1, "token+agent acme.prod": 1}
	if fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("kinds and names are %v, not %v", kinds, want)
	}
	if n := len(s.Refusals.List); n != 2*11+1 {
		t.Errorf("%d refusals are shown, not 23", n)
	}
}

func TestWhatIsKeptOfACallerIsEnoughToActOnIt(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	desk := newDesk(t, c.now, weir.Limiter{Name: "ask", Windows: []weir.Window{window(t, 10, "minute", "session or ip+agent")}})
	long := strings.Repeat("a", 257)
	r.Observe(desk.of("ask", keys{"ip": "192.0.2.1", "session": "s", "agent": long, "token": "not counted"}, 0))
	hash := limiter(t, r.Snapshot(watch.Query{}), "ask").Spending[0].Hash
	caller, ok := r.Caller("ask", hash)
	if !ok {
		t.Fatal("nothing is kept of the caller that is shown")
	}
	sum := sha256.Sum256([]byte(long))
	for source, want := range map[string]string{"session": "s", "agent": string(sum[:]), "ip": "", "token": ""} {
		t.Run(source, func(t *testing.T) {
			value, ok := caller.AppendKey([]byte("before "), source)
			if string(value) != "before "+want || ok != (want != "") || caller.Digested(source) != (source == "agent") {
				t.Errorf("%s is %q, %v, digested %v", source, value, ok, caller.Digested(source))
			}
		})
	}
	if again := desk.of("ask", caller, 0).Decision.Binding(); again.Count != 2 {
		t.Errorf("what is kept is counted as another caller: its first request is number %d of the window", again.Count)
	}
	for _, bad := range []string{"", "0", strings.ToUpper(hash) + " ", strings.Repeat("g", 16), strings.Repeat("0", 16), hash + "00"} {
		if _, ok := r.Caller("ask", bad); ok {
			t.Errorf("somebody has the hash %q", bad)
		}
	}
	if _, ok := r.Caller("tell", hash); ok {
		t.Error("a limiter that nobody knows has a caller")
	}
	other := newRecorder(t, c.now)
	other.Observe(desk.of("ask", keys{"ip": "192.0.2.1", "session": "s", "agent": long}, 0))
	if limiter(t, other.Snapshot(watch.Query{}), "ask").Spending[0].Hash == hash {
		t.Error("two recorders give a caller the same hash: its key is not of their own")
	}
}

// TestAFloodOfCallersHidesNobody sends ten million callers with one request each (one million under
// the race detector), and five real callers among them. Memory does not grow, and the five are on
// top with the units that they spent.
func TestAFloodOfCallersHidesNobody(t *testing.T) {
	const flood = floodOfCallers
	c := newClock()
	r := newRecorder(t, c.now)
	desk := newDesk(t, c.now, weir.Limiter{Name: "ask", Windows: []weir.Window{window(t, 1<<30, "day", "ip+agent")}})
	real := make([]answer.Observation, 5)
	for i := range real {
		real[i] = desk.of("ask", keys{"ip": fmt.Sprint("192.0.2.", i), "agent": "widget"}, 0)
		real[i].Who = bytes.Clone(real[i].Who)
	}
	o := desk.of("ask", keys{"ip": "2001:db8::", "agent": strings.Repeat("x", 200)}, 0)
	who := append(bytes.Clone(o.Who), make([]byte, 8)...)
	asked := new(askedKeys)
	o.Caller = asked
	r.Observe(o)
	before := heap()
	spent := 0
	for i := range flood {
		if i%(flood/100) == 0 {
			c.move(time.Second)
		}
		binary.LittleEndian.PutUint64(who[len(who)-8:], uint64(i))
		o.Who, o.Decision.Now = who, c.seconds.Load()
		r.Observe(o)
		if i%50 == 0 {
			spent++
			for j := range real {
				real[j].Decision.Now = c.seconds.Load()
				r.Observe(real[j])
			}
		}
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("memory has grown by %d bytes", grown)
	}
	if asked.times > 1000 {
		t.Errorf("callers of the flood were asked %d times who they are", asked.times)
	}
	l := limiter(t, r.Snapshot(watch.Query{Top: 5}), "ask")
	for _, caller := range l.Spending {
		known, ok := r.Caller("ask", caller.Hash)
		if !ok {
			t.Fatalf("nothing is known of %+v", caller)
		}
		if agent, _ := known.AppendKey(nil, "agent"); string(agent) != "widget" {
			t.Errorf("one of the flood is on top: %+v", caller)
		}
		if off := math.Abs(float64(caller.UnitsSince) - float64(spent)); off > 0.25*float64(spent) {
			t.Errorf("one that spent %d is said to have spent %d", spent, caller.UnitsSince)
		}
		// each spent as much in every one of 100 seconds, which weighs 1 to 0.79 by now
		exact := 0.0
		for age := range 100 {
			exact += float64(spent) / 100 * math.Exp2(-float64(age)/300)
		}
		if math.Abs(caller.Units-exact) > 2*caller.Error || caller.Error > exact {
			t.Errorf("%v units with an error of %v, where %v is right", caller.Units, caller.Error, exact)
		}
	}
	if len(l.Spending) != len(real) {
		t.Errorf("%d callers are on top, not %d", len(l.Spending), len(real))
	}
	if got := l.Totals.Admitted; got != uint64(flood+5*spent+1) {
		t.Errorf("%d requests in all, not %d", got, flood+5*spent+1)
	}
}

// askedKeys count the calls of AppendKey.
type askedKeys struct{ times int }

func (k *askedKeys) AppendKey(dst []byte, _ string) ([]byte, bool) {
	k.times++
	return append(dst, "flood"...), true
}

func TestWhatIsKeptOfCallersIsBounded(t *testing.T) {
	const limiters, most = 300, 16 << 20
	c := newClock()
	r := newRecorder(t, c.now)
	before := heap()
	fill(t, c, r, limiters, 256)
	s := r.Snapshot(watch.Query{Top: 128})
	if s.CallersKept > most || s.CallersKept < most/2 {
		t.Errorf("%d bytes are kept of callers, not %d or a little less", s.CallersKept, most)
	}
	if grown := heap() - before; grown > most+limiters*150<<10 {
		t.Errorf("memory has grown by %d bytes", grown)
	}
	lacking := 0
	for _, l := range s.Limiters {
		for _, caller := range l.Spending {
			if _, ok := r.Caller(l.Name, caller.Hash); ok != caller.Actionable {
				t.Fatalf("is it known? %v: %+v", ok, caller)
			} else if !ok {
				lacking++
			}
		}
	}
	if lacking == 0 {
		t.Error("everybody is known, more than there is room for")
	}
	r.Declare(weir.Policy{})
	c.move(300 * time.Second)
	if s = r.Snapshot(watch.Query{}); s.CallersKept != 0 || len(s.Limiters) != 1 {
		t.Errorf("%d bytes are kept of callers of limiters that are gone", s.CallersKept)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestACallerThatIsKnownByAnIPv4AddressIsFoundByAPolicysNetworks(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	l := byIP(t, "ask", 30)
	network, err := weir.ParseWho("192.0.2.0/24")
	if err != nil {
		t.Fatal(err)
	}
	l.Overrides = []weir.Override{{Limit: 300, Per: time.Minute, For: network}}
	desk := newDesk(t, c.now, l)
	r.Declare(desk.decider.Policy())
	r.Observe(desk.event("ask", "\xc0\x00\x02\x07"))
	known, ok := r.Caller("ask", limiter(t, r.Snapshot(watch.Query{}), "ask").Spending[0].Hash)
	if !ok {
		t.Fatal("the caller is not known")
	}
	held, err := desk.decider.Inspect(t.Context(), "ask", known)
	if err != nil || len(held) != 1 || held[0].Count != 1 || held[0].Declared != 300 || !held[0].Override {
		t.Errorf("%+v, %v", held, err)
	}
}

// A file of networks can take 100 MB, and one that is changed every minute makes as many policies.
func TestNothingKeepsTheNetworksOfFormerPoliciesInMemory(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	defer runtime.KeepAlive(r)
	var gone atomic.Int64
	const reloads = 30
	desk := newDesk(t, c.now, byIP(t, "ask", 1))
	for i := range reloads {
		file := &blockList{addr: "192.0.2.1"}
		runtime.AddCleanup(file, func(int) { gone.Add(1) }, 0)
		l := byIP(t, "ask", 1)
		l.Deny = []weir.Who{{Networks: file}}
		if err := desk.decider.Swap(weir.Policy{Limiters: []weir.Limiter{l}}); err != nil {
			t.Fatal(err)
		}
		for range 3 { // of a caller of its own, which is refused twice
			r.Observe(desk.event("ask", fmt.Sprint("198.51.100.", i)))
		}
	}
	if l := limiter(t, r.Snapshot(watch.Query{Top: 100}), "ask"); len(l.Refused) != reloads {
		t.Fatalf("%d callers are kept, want %d", len(l.Refused), reloads)
	}
	for range 100 {
		runtime.GC()
		runtime.Gosched()
		if gone.Load() >= reloads-2 { // the policy in force, and the last request's
			return
		}
	}
	t.Errorf("the networks of %d of %d former policies were released", gone.Load(), reloads)
}

type blockList struct{ addr string }

func (b *blockList) Contains(a netip.Addr) bool { return a.String() == b.addr }
func (b *blockList) String() string             { return "@blocked.txt" }
