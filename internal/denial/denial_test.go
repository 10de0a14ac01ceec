package denial

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

// callerIs is who calls, by key source.
type callerIs map[string]string

func (c callerIs) AppendKey(dst []byte, source string) ([]byte, bool) {
	v, ok := c[source]
	return append(dst, v...), ok
}

// A world refuses requests of one limiter "messages" under a clock that stands still.
type world struct {
	testing.TB
	clock   *storetest.ManualClock
	decider *weir.Decider
	secret  []byte
	version string
}

func newWorld(t testing.TB, windows ...string) *world {
	t.Helper()
	w := &world{TB: t, clock: storetest.StartManualClock(), secret: bytes.Repeat([]byte("s"), 32), version: "0123abcd"}
	store, err := memstore.New(memstore.Options{Memory: 16 << 20, Now: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	if w.decider, err = weir.New(policyOf(t, windows...), store, weir.Options{}); err != nil {
		t.Fatal(err)
	}
	return w
}

func policyOf(t testing.TB, windows ...string) weir.Policy {
	t.Helper()
	l := weir.Limiter{Name: "messages"}
	for _, s := range windows {
		window, err := weir.ParseWindow(s)
		if err != nil {
			t.Fatal(err)
		}
		l.Windows = append(l.Windows, window)
	}
	return weir.Policy{Limiters: []weir.Limiter{l}}
}

func (w *world) sealer() *Sealer {
	w.Helper()
	s, err := New(func() []byte { return w.secret }, func() string { return w.version }, rand.Reader, nil)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// refuse spends what a caller has left, and returns the refusal.
func (w *world) refuse(caller weir.Keys, scratch *weir.Scratch) *weir.Decision {
	w.Helper()
	for range 1000 {
		d, err := w.decider.Decide(context.Background(), weir.Request{Limiters: []string{"messages"}, Keys: caller, Scratch: scratch})
		if err != nil {
			w.Fatal(err)
		}
		if !d.Allowed {
			return &d
		}
	}
	w.Fatal("nobody is refused")
	return nil
}

func (w *world) open(s *Sealer, id string) Facts {
	w.Helper()
	f, err := s.Open(id)
	if err != nil {
		w.Fatal(err)
	}
	return f
}

func TestAnIDHoldsTheFacts(t *testing.T) {
	w := newWorld(t, "2 per minute by session or ip+agent", "100 per hour by ip")
	caller := callerIs{"session": "v1:alice", "agent": "shop", "ip": "\xc0\x00\x02\x07", "token": "not counted"}
	var scratch weir.Scratch
	d := w.refuse(caller, &scratch)
	// another process with the same secret
	got := w.open(w.sealer(), w.sealer().ID(d, caller, &scratch))
	now := w.clock.Now().Unix()
	want := Facts{
		Limiter: "messages", Window: "2 per minute by session or ip+agent", Limit: 2, Count: 2, Reset: now + 60, At: now, Policy: "0123abcd",
		Callers: []Caller{{Source: "session", Value: []byte("v1:alice")}, {Source: "agent", Value: []byte("shop")}, {Source: "ip", Value: []byte("\xc0\x00\x02\x07")}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the facts are\n%+v, want\n%+v", got, want)
	}
}

// A source with a field has the longest name: that of the source, a colon and up to 64 characters.
func TestAnIDHoldsTheLongestNameOfASource(t *testing.T) {
	field := "header:X" + strings.Repeat("-", 63)
	w := newWorld(t, "2 per minute by "+field+"+ip")
	caller := callerIs{field: "k", "ip": "\xc0\x00\x02\x07"}
	var scratch weir.Scratch
	d := w.refuse(caller, &scratch)
	f := w.open(w.sealer(), w.sealer().ID(d, caller, &scratch))
	if len(f.Callers) != 2 || f.Callers[0].Source != field || string(f.Callers[0].Value) != "k" {
		t.Errorf("the id holds %+v", f.Callers)
	}
}

func TestTheFactsNameTheVeryWindows(t *testing.T) {
	w := newWorld(t, "1 per minute by session or ip+agent", "100 per hour by agent", "100 per day by token or ip", "1000 per day by everyone")
	s := w.sealer()
	for _, length := range []int{0, 1, 32, 256, 257, 8000} {
		value := strings.Repeat("v", length)
		sum := sha256.Sum256([]byte(value))
		for _, caller := range []callerIs{
			{"session": value, "agent": "a", "ip": "1", "everyone": ""},
			{"agent": value, "ip": "2", "everyone": ""},
			// has a digest's length, and is none
			{"agent": string(sum[:]), "ip": "3", "everyone": ""},
			{"agent": value, "everyone": ""}, // no address either
			{"agent": value, "token": value, "session": value, "ip": "4"},
		} {
			var scratch, again weir.Scratch
			d := w.refuse(caller, &scratch)
			f := w.open(s, s.ID(d, caller, &scratch))
			e := w.refuse(f.Keys(), &again)
			for i, standing := range d.Standings() {
				other := e.Standings()[i]
				if a, b := scratch.Who(&standing), again.Who(&other); !bytes.Equal(a, b) || len(a) == 0 {
					t.Errorf("%d bytes, %v: %v counts %q, and %q by the facts", length, caller, standing.Window, a, b)
				}
			}
			w.clock.Advance(24 * time.Hour)
		}
	}
}

// Overrides for networks are found where the facts tell the address; doubt finds none.
func TestTheFactsTellAnAddressWhereTheyKnowIt(t *testing.T) {
	for value, want := range map[string]string{"\xc0\x00\x02\x07": "192.0.2.7", strings.Repeat("6", 16): "invalid IP", "": "invalid IP", "192.0.2.7": "invalid IP"} {
		for _, other := range []string{"session", "agent"} {
			f := Facts{Callers: []Caller{{Source: other, Value: []byte("1234")}, {Source: "ip", Value: []byte(value)}}}
			if got := f.Keys().Addr().String(); got != want {
				t.Errorf("%q is the address %s, want %s", value, got, want)
			}
		}
	}
}

// A hammering caller gets one id a second; whoever differs in any fact gets another.
func TestOneSecondHasOneID(t *testing.T) {
	w := newWorld(t, "2 per minute by ip", "100 per hour by ip+agent")
	s := w.sealer()
	var scratch weir.Scratch
	ask := func(caller callerIs) string {
		return s.ID(w.refuse(caller, &scratch), caller, &scratch)
	}
	alice, bob := callerIs{"ip": "1", "agent": "shop"}, callerIs{"ip": "2", "agent": "shop"}
	first := ask(alice)
	if again := ask(alice); again != first {
		t.Error("the same refusal within one second has two ids")
	}
	seen := map[string]string{first: "alice"}
	want := func(what, id string, check func(Facts) bool) {
		t.Helper()
		if other, taken := seen[id]; taken {
			t.Errorf("%s has the id of %s", what, other)
		}
		if f := w.open(s, id); !check(f) {
			t.Errorf("the id of %s opens to %+v", what, f)
		}
		seen[id] = what
	}
	want("bob", ask(bob), func(f Facts) bool { return string(f.Callers[0].Value) == "2" })
	want("alice with another agent", ask(callerIs{"ip": "1", "agent": "blog"}), func(f Facts) bool { return string(f.Callers[1].Value) == "blog" })
	want("alice without a scratch", s.ID(w.refuse(alice, nil), alice, nil), func(f Facts) bool { return len(f.Callers) == 2 })
	w.version = "89abcdef"
	want("alice under another policy", ask(alice), func(f Facts) bool { return f.Policy == "89abcdef" })
	w.clock.Advance(time.Second)
	want("alice a second later", ask(alice), func(f Facts) bool { return f.At == w.clock.Now().Unix() })
	w.clock.Advance(time.Minute)
	want("alice a window later", ask(alice), func(f Facts) bool { return f.Reset == w.clock.Now().Unix()+60 })
	w.secret = bytes.Repeat([]byte("S"), 32)
	want("alice under another secret", ask(alice), func(Facts) bool { return true })
	if _, err := s.Open(first); !errors.Is(err, errUnsealed) {
		t.Errorf("an id under a secret that is gone: %v", err)
	}
}

// Between two nodes, or two runs of one, no key and nonce come twice: each has a salt of its own.
func TestEachProcessHasAKeyOfItsOwn(t *testing.T) {
	w := newWorld(t, "1 per minute by ip")
	caller := callerIs{"ip": "1"}
	d := w.refuse(caller, nil)
	seen := map[string]bool{}
	s, other := w.sealer(), w.sealer()
	for range 100 {
		for _, s := range []*Sealer{s, other, w.sealer()} {
			raw, err := base64.RawURLEncoding.DecodeString(s.ID(d, caller, nil))
			if err != nil {
				t.Fatal(err)
			}
			if key := string(raw[:sealedAt]); seen[key] {
				t.Fatalf("salt and counter %x come twice", key)
			} else {
				seen[key] = true
			}
		}
	}
}

// A secret that comes and goes never brings a key back either.
func TestASecretThatReturnsHasANewKey(t *testing.T) {
	w := newWorld(t, "1 per minute by ip")
	s, caller := w.sealer(), callerIs{"ip": "1"}
	d := w.refuse(caller, nil)
	secrets := [][]byte{w.secret, nil, bytes.Repeat([]byte("S"), 32), []byte("too short")}
	seen := map[string]bool{}
	for i := range 40 {
		w.secret = secrets[i%len(secrets)]
		id := s.ID(d, caller, nil)
		raw, _ := base64.RawURLEncoding.DecodeString(id)
		if seen[string(raw[:sealedAt])] {
			t.Fatal("a salt and its counter come twice")
		}
		seen[string(raw[:sealedAt])] = true
		w.open(s, id)
	}
}

func TestTheErrorSaysWhyAnIDCannotBeOpened(t *testing.T) {
	w := newWorld(t, "1 per minute by ip")
	caller := callerIs{"ip": "1"}
	d := w.refuse(caller, nil)
	shared := w.sealer()
	id := shared.ID(d, caller, nil)
	secret := w.secret
	w.secret = nil
	private := shared.ID(d, caller, nil)
	w.open(shared, private) // by the process itself, also when the secret is known
	if _, err := shared.Open(id); !errors.Is(err, errNoSecret) {
		t.Errorf("while the secret is not known: %v", err)
	}
	w.secret = secret
	w.open(shared, private)
	stranger := w.sealer()
	stranger.secret = func() []byte { return bytes.Repeat([]byte("x"), 32) }
	later := "D" + id[1:] // version 12 and something
	for _, c := range []struct {
		what, id string
		by       *Sealer
		want     error
	}{
		{"nothing", "", shared, errNotID},
		{"a word", "hello", shared, errNotID},
		{"a request id", "01890a5d-ac96-774b-bcce-b302099a8057", shared, errNotID},
		{"a token", "wpt_abcdefghijklmnop_qrstuvwxyz234567abcdefghijklmnopqr", shared, errNotID},
		{"an id and a line end", id + "\n", shared, errNotID},
		{"an id with a line end inside", id[:40] + "\n" + id[40:], shared, errNotID},
		{"two ids", id + id, shared, errTruncated},
		{"far too long", strings.Repeat("A", 1<<20), shared, errNotID},
		{"the first half", id[:len(id)/2], shared, errTruncated},
		{"without its last character", id[:len(id)-1], shared, errTruncated},
		{"with a full stop", id + ".", shared, errTruncated},
		{"another character", id[:60] + another(id[60]) + id[61:], shared, errUnsealed},
		{"one of another secret", id, stranger, errUnsealed},
		{"one of a process without a secret", private, stranger, errPrivate},
		{"one of a later version", later, shared, errLater},
	} {
		t.Run(c.what, func(t *testing.T) {
			f, err := c.by.Open(c.id)
			if !errors.Is(err, c.want) || !reflect.DeepEqual(f, Facts{}) {
				t.Errorf("%s: %+v, %v; want %v", c.what, f, err, c.want)
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("%s: the error has %d bytes", c.what, len(err.Error()))
			}
		})
	}
}

// another returns a character of the alphabet that is not c.
func another(c byte) string {
	if c == 'A' {
		return "B"
	}
	return "A"
}

// What callers send makes no id long: that of a usual caller has less than 270 characters, none has
// 1.5 KiB.
func TestAnIDIsShort(t *testing.T) {
	w := newWorld(t, "30 per minute by session or ip", "1000 per hour by ip+agent")
	s := w.sealer()
	long := strings.Repeat("v", 256)
	for _, c := range []struct {
		caller callerIs
		most   int
	}{
		{callerIs{"ip": "\xc0\x00\x02\x07", "agent": "shop-assistant-1"}, 250},
		{callerIs{"ip": strings.Repeat("6", 16), "session": "v1:0190a5d0-ac96-774b-bcce-b302099a8057", "agent": "shop-assistant-1"}, 270},
		{callerIs{"ip": strings.Repeat("6", 16), "session": long, "agent": long}, 1000},
		{callerIs{"ip": strings.Repeat("6", 16), "session": long + "v", "agent": strings.Repeat("v", 16<<10)}, 300},
	} {
		id := s.ID(w.refuse(c.caller, nil), c.caller, nil)
		t.Logf("%d characters", len(id))
		if len(id) > c.most {
			t.Errorf("an id of %v has %d characters, want %d at most", c.caller, len(id), c.most)
		}
		if f := w.open(s, id); f.Partial {
			t.Errorf("a caller of the usual sources has no room: %+v", f)
		}
	}
	many := callerIs{}
	var key []string
	for _, letter := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		source := strings.Repeat(letter, 64)
		many[source], key = long, append(key, source)
	}
	w = newWorld(t, "30 per minute by "+strings.Join(key, "+"))
	s = w.sealer()
	id := s.ID(w.refuse(many, nil), many, nil)
	f := w.open(s, id)
	if len(id) >= 1536 || !f.Partial || len(f.Callers) < 2 || len(f.Window) > maxText {
		t.Errorf("an id of %d characters opens to %+v", len(id), f)
	}
}

func TestWithoutRandomnessThereIsNoSealer(t *testing.T) {
	for _, r := range []io.Reader{iotest.ErrReader(io.ErrClosedPipe), io.LimitReader(rand.Reader, minSecret+3)} {
		if _, err := New(func() []byte { return nil }, nil, r, nil); err == nil {
			t.Error("a sealer has no random salt")
		}
	}
	w := newWorld(t, "1 per minute by ip")
	s := w.sealer()
	s.rand, w.secret = iotest.ErrReader(io.ErrClosedPipe), bytes.Repeat([]byte("S"), 32)
	caller := callerIs{"ip": "1"}
	if id := s.ID(w.refuse(caller, nil), caller, nil); id != "" {
		t.Errorf("without a salt there is the id %q", id)
	}
	if id := w.sealer().ID(&weir.Decision{}, caller, nil); id != "" {
		t.Errorf("an unlimited request has the id %q", id)
	}
}

// Refusals on all processors while secrets come and go: every id opens to its own caller, and no
// nonce comes twice.
func TestIDsAreMadeAtOnce(t *testing.T) {
	w := newWorld(t, "1 per minute by ip")
	secrets := [][]byte{bytes.Repeat([]byte("s"), 32), bytes.Repeat([]byte("S"), 32), nil}
	var at atomic.Int64
	s, err := New(func() []byte { return secrets[int(at.Load())/50%len(secrets)] }, nil, rand.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	const callers, each = 8, 200
	ids := make([][]string, callers)
	var all sync.WaitGroup
	for i := range callers {
		caller := callerIs{"ip": strings.Repeat("i", i)}
		var scratch weir.Scratch
		d := w.refuse(caller, &scratch)
		all.Go(func() {
			for n := range each {
				d.Now = int64(n / 2) // every other refusal is of the same second
				ids[i] = append(ids[i], s.ID(d, caller, &scratch))
				at.Add(1)
			}
		})
	}
	all.Wait()
	nonces := map[string]string{}
	for i, own := range ids {
		for _, id := range own {
			opened := false
			for at.Store(0); at.Load() < 50*int64(len(secrets)) && !opened; at.Add(50) {
				if f, err := s.Open(id); err == nil {
					opened = true
					if len(f.Callers) != 1 || string(f.Callers[0].Value) != strings.Repeat("i", i) {
						t.Fatalf("caller %d has an id of %+v", i, f)
					}
				}
			}
			if !opened {
				t.Fatalf("no secret opens %s", id)
			}
			raw, _ := base64.RawURLEncoding.DecodeString(id)
			if other, twice := nonces[string(raw[:sealedAt])]; twice && other != id {
				t.Fatalf("two ids have the salt and counter %x", raw[:sealedAt])
			}
			nonces[string(raw[:sealedAt])] = id
		}
	}
}
