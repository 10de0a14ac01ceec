package identity_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/identity"
)

const (
	acmeKey  = "sk_live_acme_4711_4711"
	otherKey = "sk_live_other_4712_4712"
)

// A keyStore is Keys in memory, by hash.
type keyStore map[identity.TokenHash]identity.StoredToken

func (s keyStore) Lookup(string) (identity.StoredToken, error) {
	return identity.StoredToken{}, identity.ErrUnknownToken
}

func (s keyStore) LookupHash(hash identity.TokenHash) (identity.StoredToken, error) {
	t, ok := s[hash]
	if !ok {
		return t, identity.ErrUnknownToken
	}
	return t, nil
}

func (s keyStore) add(id, key string) {
	hash := identity.TokenHash(sha256.Sum256([]byte(key)))
	s[hash] = identity.StoredToken{ID: id, Hash: hash}
}

// fromPlaces returns a Resolver that knows acmeKey and otherKey.
func fromPlaces(t testing.TB, places ...string) *identity.Resolver {
	keys := keyStore{}
	keys.add("acme", acmeKey)
	keys.add("other", otherKey)
	o := identity.Options{Tokens: keys, Now: newClock().Now}
	for _, s := range places {
		p, err := identity.ParsePlace(s)
		if err != nil {
			t.Fatal(err)
		}
		o.TokenFrom = append(o.TokenFrom, p)
	}
	return resolver(t, o)
}

func basic(pair string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair))
}

// A token in a field with another meaning would be hidden from the backend with it.
func TestATokenIsNotReadFromAFieldWithAnotherMeaning(t *testing.T) {
	for _, field := range []string{"Content-Type", "content-length", "X-Forwarded-For", "x-real-ip", "Host", "User-Agent", "Accept", "Accept-Language", "Origin", "If-Match", "Sec-WebSocket-Protocol", "Forwarded", "Range", "Traceparent"} {
		if p, err := identity.ParsePlace("header:" + field); err == nil || !strings.Contains(err.Error(), "such as header:X-Api-Key") {
			t.Errorf("header:%s: %v, %v", field, p, err)
		}
	}
	for _, field := range []string{"X-Api-Key", "Apikey", "Api-Key", "X-Auth-Token", "Token", "Ocp-Apim-Subscription-Key", "X-Goog-Api-Key", "Private-Token", "Accepted", "X-Forwarded-Key"} {
		if _, err := identity.ParsePlace("header:" + field); (err == nil) == (field == "X-Forwarded-Key") {
			t.Errorf("header:%s: %v", field, err)
		}
	}
}

func TestATokenIsReadWhereItIsToldToBe(t *testing.T) {
	const key = acmeKey
	all := []string{"bearer", "basic", "header:x-api-key", "query:api_key"}
	for _, c := range []struct {
		name   string
		places []string
		query  string
		fields []string
		want   string // the id, or a part of the error
	}{
		{"bearer is the default", nil, "", []string{"Authorization", "bearer " + key}, "acme"},
		{"a header is not read by default", nil, "api_key=" + key, []string{"X-Api-Key", key}, "no credential"},
		{"a header", all[2:3], "", []string{"X-Api-Key", " " + key + "\t"}, "acme"},
		{"bearer is not read if it is not named", all[2:3], "", []string{"Authorization", "Bearer " + key}, "no credential"},
		{"the user name of Basic", all[1:2], "", []string{"Authorization", basic(key + ":")}, "acme"},
		{"a password is ignored", all[1:2], "", []string{"Authorization", basic(key + ":" + otherKey)}, "acme"},
		{"no user name", all[1:2], "", []string{"Authorization", basic(":" + key)}, "no credential"},
		{"Basic without a colon", all[1:2], "", []string{"Authorization", basic(key)}, "no colon"},
		{"Basic without base64", all[1:2], "", []string{"Authorization", "Basic " + key}, "not base64"},
		{"Bearer beside a named Basic", all[1:2], "", []string{"Authorization", "Bearer " + key}, "no credential"},
		{"a parameter", all[3:], "a=1&api_key=" + key + "&b", nil, "acme"},
		{"an escaped parameter", all[3:], "api%5Fkey=%73" + key[1:], nil, "acme"},
		{"a parameter twice", all[3:], "api_key=" + key + "&api_key=" + key, nil, "acme"},
		{"a parameter with two values", all[3:], "api_key=" + key + "&api_key=" + otherKey, nil, "more than one value of api_key"},
		{"a parameter twice, once escaped", all[3:], "api_key=" + key + "&api%5fkey=", nil, "more than one value"},
		{"a parameter beside a semicolon", all[3:], "a;api_key=" + key, nil, "more than one value"},
		{"a parameter with a broken escape", all[3:], "api_key=%zz" + key, nil, "more than one value"},
		{"a parameter in capitals", all[3:], "API_KEY=" + key, nil, "exactly this spelling"},
		{"another one that a backend may read", all[3:], "api_key=" + key + "&api.key[]=" + otherKey, nil, "exactly this spelling"},
		{"a parameter that some readers do not reach", all[3:], strings.Repeat("x&", 1000) + "api_key=" + key, nil, "more than one value"},
		{"another parameter", all[3:], "xapi_key=" + key + "&api_keyx=" + key, nil, "no credential"},
		{"nothing", all, "", nil, "no credential"},
		{"an empty field", all, "", []string{"X-Api-Key", ""}, "no credential"},
		{"a field twice", all, "", []string{"X-Api-Key", key, "X-Api-Key", key}, "2 X-Api-Key fields"},
		{"two Authorization fields", all, "", []string{"Authorization", "Bearer " + key, "Authorization", basic(key + ":")}, "2 Authorization fields"},
		{"the same token in two places", all, "api_key=" + key, []string{"X-Api-Key", key}, "acme"},
		{"two tokens", all, "api_key=" + key, []string{"X-Api-Key", otherKey}, "two different tokens"},
		{"two tokens, one unknown", all, "", []string{"Authorization", "Bearer " + key, "X-Api-Key", "unknown"}, "two different tokens"},
		{"a good one beside a broken place", all, "api_key=%zz", []string{"X-Api-Key", key}, "more than one value"},
		{"another scheme beside a header", []string{"bearer", "header:X-Api-Key"}, "", []string{"Authorization", basic("a:b"), "X-Api-Key", key}, "acme"},
		{"another scheme alone", []string{"bearer", "header:X-Api-Key"}, "", []string{"Authorization", basic("a:b")}, "another scheme"},
		{"an endless value", all, "", []string{"X-Api-Key", strings.Repeat("k", 8193)}, "8193 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := request("192.0.2.1:4711", c.fields...)
			req.URL.RawQuery = c.query
			got, err := caller(fromPlaces(t, c.places...), req).Token()
			text := got.ID
			if err != nil {
				text = err.Error()
			}
			if err == nil && text != c.want || !strings.Contains(text, c.want) {
				t.Errorf("%s, want %s", text, c.want)
			}
			if err != nil && (strings.Contains(text, key) || strings.Contains(text, "kkkk")) {
				t.Errorf("the error has the key: %s", text)
			}
		})
	}
}

func TestWhatNoPlaceIsIsRejected(t *testing.T) {
	for _, s := range []string{"", "Bearer", "cookie:a", "header", "header:", "header:Authorization", "header:cookie", "header:X Y", "header:Host",
		"header:A+header:B", "header:A or header:B", "query:", "query:a b", "query:a&b", "query:" + strings.Repeat("a", 65), "bearer:x"} {
		if p, err := identity.ParsePlace(s); err == nil {
			t.Errorf("%q is the place %v", s, p)
		}
	}
	p, _ := identity.ParsePlace("query:k")
	if _, err := identity.New(identity.Options{TokenFrom: []identity.Place{p, p}}); err == nil || !strings.Contains(err.Error(), "query:k twice") {
		t.Errorf("the same place twice: %v", err)
	}
}

func TestAPlaceIsPrintedAsItIsParsed(t *testing.T) {
	for _, s := range []string{"bearer", "basic", "header:X-Api-Key", "query:api_key"} {
		if p, err := identity.ParsePlace(s); err != nil || p.String() != s {
			t.Errorf("%q is printed as %q, %v", s, p, err)
		}
	}
}

func TestAParameterIsCutOutAndTheRestStaysByteForByte(t *testing.T) {
	for _, c := range [][2]string{
		{"", ""},
		{"a=1", "a=1"},
		{"key=K", ""},
		{"key", ""},
		{"a=1&key=K", "a=1"},
		{"key=K&a=1", "a=1"},
		{"a=%zz&key=K&&b=+%20;c", "a=%zz&&b=+%20;c"},
		{"k%65y=K&a", "a"},
		{"key=1&KEY=2&xkey=3&keyx=4&key=5", "xkey=3&keyx=4"},
		{"key[]=1&a&[key]=2&+key=3&Key%00=4", "a"},
		{"a;key=K&b", "a&b"},
		{"filter=name;eq;bob&key=K", "filter=name;eq;bob"},
		{"filter=name;key=K;eq;%&b=100%", "filter=name;eq;%&b=100%"},
		{";key=K;&b", ";&b"},
		{"key=K;rest-of-the-key&b", "b"}, // to most readers, all of it is the value
		{"a;key%zz=K&b", "a;key%zz=K&b"},
		{"a=key", "a=key"},
		{"&key=K&", "&"},
	} {
		if got := identity.CutQuery(c[0], "key"); got != c[1] {
			t.Errorf("%q without key is %q, want %q", c[0], got, c[1])
		}
	}
}

func FuzzNoReaderFindsAParameterThatIsCutOut(f *testing.F) {
	f.Add("a=1&key=K;b&k%65y")
	f.Fuzz(func(t *testing.T, raw string) {
		got := identity.CutQuery(raw, "key")
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.RawQuery = got
		if values := r.URL.Query(); values.Has("key") {
			t.Fatalf("%q: %q", raw, got)
		}
		r.URL.RawQuery = strings.ReplaceAll(got, ";", "&") // as older servers read it
		if values := r.URL.Query(); values.Has("key") {
			t.Fatalf("%q: %q", raw, got)
		}
		if again := identity.CutQuery(got, "key"); again != got {
			t.Fatalf("%q: %q, then %q", raw, got, again)
		}
	})
}

func TestATokenInACommonPlaceAllocatesNothingOnceSeen(t *testing.T) {
	for place, fields := range map[string][]string{
		"bearer":           {"Authorization", "Bearer " + acmeKey},
		"header:X-Api-Key": {"X-Api-Key", acmeKey},
		"query:api_key":    nil,
	} {
		r, req := fromPlaces(t, place), request("192.0.2.1:4711", fields...)
		req.URL.RawQuery = "api_key=" + acmeKey
		var c identity.Caller
		key := make([]byte, 0, 64)
		if n := testing.AllocsPerRun(100, func() {
			r.Start(&c, req)
			if _, ok := c.AppendKey(key, identity.Token); !ok {
				t.Fatal("no token")
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", place, n)
		}
	}
}

func BenchmarkTokenInAField(b *testing.B) {
	r, req := fromPlaces(b, "header:X-Api-Key"), request("192.0.2.1:4711", "X-Api-Key", acmeKey)
	var c identity.Caller
	key := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		r.Start(&c, req)
		if _, ok := c.AppendKey(key, identity.Token); !ok {
			b.Fatal("no token")
		}
	}
}
