package denial

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

func sealerOf(t interface{ Fatal(...any) }, secret []byte) *Sealer {
	s, err := New(func() []byte { return secret }, nil, rand.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func drawFacts(t *rapid.T) Facts {
	f := Facts{
		Limiter: rapid.StringMatching(`[a-z][a-z0-9-]{0,63}`).Draw(t, "limiter"),
		Window:  rapid.StringN(0, -1, maxText).Draw(t, "window"),
		Limit:   rapid.Int64().Draw(t, "limit"),
		Count:   rapid.Int64().Draw(t, "count"),
		Reset:   rapid.Int64().Draw(t, "reset"),
		At:      rapid.Int64().Draw(t, "at"),
		Policy:  rapid.StringMatching(`[0-9a-f]{8}|`).Draw(t, "policy"),
	}
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 1:
		f.Reset, f.InFlight = 0, true
		f.Limit = max(f.Limit, 1)
	case 2:
		f.Reset, f.Limit, f.Denied = 0, 0, true
	}
	if !f.InFlight && !f.Denied && f.Reset == f.At {
		f.Reset++
	}
	f.Penalty = rapid.Bool().Draw(t, "penalty")
	for range rapid.IntRange(0, 3).Draw(t, "callers") {
		c := Caller{Source: rapid.StringMatching(`[a-z][a-z0-9-]{0,63}`).Draw(t, "source")}
		if c.Digest = rapid.Bool().Draw(t, "digest"); c.Digest {
			c.Value = rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "sum")
		} else if v := rapid.SliceOfN(rapid.Byte(), 0, 160).Draw(t, "value"); len(v) > 0 {
			c.Value = v
		}
		f.Callers = append(f.Callers, c)
	}
	return f
}

func (s *Sealer) sealFacts(t *rapid.T, f Facts) string {
	e, err := s.epoch()
	if err != nil {
		t.Fatal(err)
	}
	return e.seal(f.encode())
}

// What is sealed is what is opened, and any flipped bit is refused.
func TestWhatIsSealedIsOpenedWhole(t *testing.T) {
	s := sealerOf(t, bytes.Repeat([]byte("s"), 32))
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		id := s.sealFacts(t, f)
		got, err := s.Open(id)
		if err != nil || !reflect.DeepEqual(got, f) {
			t.Fatalf("opened %+v, %v; sealed was %+v", got, err, f)
		}
		if len(id) >= 1536 || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Fatalf("the id has %d characters: %q", len(id), id)
		}
		raw, err := base64.RawURLEncoding.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		raw[rapid.IntRange(0, len(raw)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if got, err := s.Open(base64.RawURLEncoding.EncodeToString(raw)); err == nil {
			t.Fatalf("altered, it opens to %+v", got)
		}
	})
}

// Every character counts, the unused bits of the last one too.
func TestNoOtherSpellingOfAnIDOpens(t *testing.T) {
	s := sealerOf(t, bytes.Repeat([]byte("s"), 32))
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	rapid.Check(t, func(t *rapid.T) {
		id := s.sealFacts(t, drawFacts(t))
		at := rapid.IntRange(0, len(id)-1).Draw(t, "at")
		if rapid.Bool().Draw(t, "last") {
			at = len(id) - 1
		}
		c := alphabet[rapid.IntRange(0, len(alphabet)-1).Draw(t, "character")]
		altered := id[:at] + string(c) + id[at+1:]
		if got, err := s.Open(altered); err == nil && altered != id {
			t.Fatalf("%q for %q opens to %+v", altered, id, got)
		}
	})
}

// Two callers' ids, and two ids of one caller, share nothing beyond what says which process sealed
// them; and their lengths are the same where their callers' are about the same.
func TestIDsTellNothing(t *testing.T) {
	s := sealerOf(t, bytes.Repeat([]byte("s"), 32))
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		g := f
		if rapid.Bool().Draw(t, "another caller") {
			g.Callers = append([]Caller{{Source: "ip", Value: []byte{192, 0, 2, 7}}}, f.Callers...)
		}
		a, _ := base64.RawURLEncoding.DecodeString(s.sealFacts(t, f))
		b, _ := base64.RawURLEncoding.DecodeString(s.sealFacts(t, g))
		if !bytes.Equal(a[:counterAt], b[:counterAt]) {
			t.Fatal("one process has two salts")
		}
		for i := sealedAt; i+8 <= len(a); i++ {
			if bytes.Contains(b[sealedAt:], a[i:i+8]) {
				t.Fatalf("two ids share %x", a[i:i+8])
			}
		}
		if len(a)%block != minSealed%block || len(b)%block != minSealed%block {
			t.Fatalf("the lengths %d and %d tell more than blocks", len(a), len(b))
		}
	})
}

func FuzzOpen(f *testing.F) {
	secret := bytes.Repeat([]byte("s"), 32)
	s := sealerOf(f, secret)
	e, err := s.epoch()
	if err != nil {
		f.Fatal(err)
	}
	facts := Facts{Limiter: "messages", Window: "30 per minute by ip", Limit: 30, Callers: []Caller{{Source: "ip", Value: []byte{192, 0, 2, 7}}}}
	id := e.seal(facts.encode())
	for _, seed := range []string{"", "A", "AQ", id, id[:60], id + "\n", "D" + id, strings.Repeat("A", 2000), "\x00\xff", "===="} {
		f.Add(seed, facts.encode())
	}
	f.Fuzz(func(t *testing.T, id string, plain []byte) {
		if got, err := s.Open(id); err == nil { // one that f has sealed itself, no forgery
			if again, err := s.Open(id); err != nil || !reflect.DeepEqual(again, got) {
				t.Errorf("opened again it is %+v, %v", again, err)
			}
		} else if err.Error() == "" || len(err.Error()) > 600 {
			t.Errorf("the error is %q", err)
		}
		got, err := parseFacts(plain) // what another version's process may have sealed
		if err != nil {
			return
		}
		if again, err := parseFacts(got.encode()); err != nil || !reflect.DeepEqual(again, got) && !again.Partial {
			t.Errorf("%+v, encoded again, is %+v, %v", got, again, err)
		}
		var _ weir.Keys = got.Keys()
		got.Keys().AppendKey(nil, "ip")
	})
}

func BenchmarkID(b *testing.B) {
	w := newWorld(b, "2 per minute by session or ip", "1000 per hour by ip")
	caller := callerIs{"session": "v1:0190a5d0-ac96-774b", "ip": "\xc0\x00\x02\x07"}
	var scratch weir.Scratch
	d := w.refuse(caller, &scratch)
	s := w.sealer()
	b.Run("hammering", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.ID(d, caller, &scratch)
		}
	})
	b.Run("sealed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d.Now++ // another second each time
			s.ID(d, caller, &scratch)
		}
	})
	b.Run("opened", func(b *testing.B) {
		b.ReportAllocs()
		id := s.ID(d, caller, &scratch)
		for b.Loop() {
			if _, err := s.Open(id); err != nil {
				b.Fatal(err)
			}
		}
	})
}
