package gateway

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir/identity"
)

const hiddenKey = "sk_live_4711_4711_4711"

func places(t *testing.T, all ...string) (list []identity.Place) {
	for _, s := range all {
		p, err := identity.ParsePlace(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// A hiddenRequest is a request with tokens in it. want are the target and the Authorization that
// the upstream gets.
type hiddenRequest struct {
	target string
	fields []string

	want, authorization string
}

func hiddenRequests() []hiddenRequest {
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(hiddenKey+":"))
	return []hiddenRequest{
		{"/a?x=%zz&api_key=" + hiddenKey + "&&y=+%20", []string{"X-Api-Key: " + hiddenKey}, "/a?x=%zz&&y=+%20", ""},
		{"/a?api_key=" + hiddenKey, []string{"x-api-key: a", "X-API-KEY: b", "Authorization: " + basic}, "/a", ""},
		{"/a?api%5Fkey=" + hiddenKey + "&b", []string{"Authorization: basic\t" + hiddenKey}, "/a?b", ""},
		{"/a?b;api_key=" + hiddenKey, []string{"Authorization: Bearer session"}, "/a?b", "Bearer session"},
		{"/a?filter=name;eq;bob&api_key=" + hiddenKey + "&q=100%", nil, "/a?filter=name;eq;bob&q=100%", ""},
		{"/a?filter=name;api_key=" + hiddenKey + ";eq;%&x", nil, "/a?filter=name;eq;%&x", ""},
		{"/a?", []string{"Authorization: Bearer session", "authorization: " + basic}, "/a?", ""},
		{"//a/?ä=1&api_key=", []string{"Authorization: Basically x"}, "/a/?%C3%A4=1", "Basically x"},
	}
}

// A token's place is not forwarded over HTTP/1.1 or HTTP/2, or with a websocket, whatever is in it,
// and it is in no log. The rest of the query stays byte for byte.
func TestNoPlaceOfATokenIsForwarded(t *testing.T) {
	heads := make(chan string, 1)
	o := newOrigin(t, func(s *served) {
		head, _ := readHead(s.Conn)
		heads <- head
		s.answers("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	})
	e := open(t, nil, func(options *Options) {
		o.use(options)
		options.HideTokens = places(t, "basic", "header:X-Api-Key", "query:api_key")
	})
	check := func(door string, r hiddenRequest) {
		t.Helper()
		head := within(t, patience, "the upstream is asked", heads)
		authorization := ""
		for line := range strings.SplitSeq(head, "\r\n") {
			if name, value, _ := strings.Cut(line, ": "); strings.EqualFold(name, "Authorization") {
				authorization += value
			}
		}
		lower := strings.ToLower(head)
		if !strings.HasPrefix(head, "GET "+r.want+" HTTP/1.1\r\n") || authorization != r.authorization ||
			strings.Contains(head, hiddenKey) || strings.Contains(lower, "x-api-key") || !strings.Contains(lower, "\r\nx-own: kept\r\n") {
			t.Errorf("%s: GET %s with %q: the upstream gets\n%s", door, r.target, r.fields, head)
		}
	}
	client := h2c(t)
	for _, r := range hiddenRequests() {
		header := append([]string{"X-Own: kept"}, r.fields...)
		e.send("GET " + r.target + " HTTP/1.1\r\nHost: weir.test\r\n" + strings.Join(header, "\r\n") + "\r\n\r\n")
		check("HTTP/1.1", r)
		e.send("GET " + r.target + " HTTP/1.1\r\nHost: weir.test\r\n" + strings.Join(append(header, upgrading...), "\r\n") + "\r\n\r\n")
		check("a websocket", r)

		req, err := http.NewRequest("GET", e.url(r.target), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range header {
			name, value, _ := strings.Cut(f, ": ")
			req.Header.Add(name, value)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		check("HTTP/2", r)
	}
	e.stop()
	if logs := e.access.String() + e.log.String(); strings.Contains(logs, hiddenKey) || !strings.Contains(logs, "path=/a ") {
		t.Errorf("the logs are\n%s", logs)
	}
}

func TestNoPlaceOfATokenIsForwardedAsATrailer(t *testing.T) {
	e := open(t, nil, func(o *Options) {
		behind(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, r.Trailer)
		})(o)
		o.HideTokens = places(t, "header:X-Api-Key")
	})
	for _, client := range []*http.Client{{Transport: new(http.Transport)}, h2c(t)} {
		req, err := http.NewRequest("POST", e.url("/x"), io.MultiReader(strings.NewReader("x")))
		if err != nil {
			t.Fatal(err)
		}
		req.Trailer = http.Header{"X-Sum": {"1"}, "X-Api-Key": {hiddenKey}}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, res); res.StatusCode != http.StatusOK || got != "map[X-Sum:[1]]" {
			t.Errorf("%d, the upstream gets the trailers %s", res.StatusCode, got)
		}
	}
}

// Without HideTokens everything goes up.
func TestTokensAreForwardedUnlessTheyAreHidden(t *testing.T) {
	got := make(chan string, 1)
	e := open(t, nil, behind(t, func(_ http.ResponseWriter, r *http.Request) {
		got <- r.URL.RawQuery + " " + r.Header.Get("X-Api-Key") + " " + r.Header.Get("Authorization")
	}))
	e.ask("GET /x?api_key=a", "X-Api-Key: b", "Authorization: Basic c")
	if s := <-got; s != "api_key=a b Basic c" {
		t.Errorf("the upstream gets %q", s)
	}
}
