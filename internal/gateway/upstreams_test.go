package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestUpstreamsShareRequestsAndAFailedOneIsSkipped(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // the address has no listener now
	var mu sync.Mutex
	asked := make(map[string]int)
	serve := func(name string) *url.URL {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			asked[name]++
			fmt.Fprintf(w, "%s %s %s", r.Host, r.URL.Path, body)
		}))
		t.Cleanup(s.Close)
		u, err := url.Parse(s.URL + "/base/")
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	e := open(t, nil, func(o *Options) {
		before(t, "http://"+l.Addr().String()+"/base")(o)
		o.Sites = To(o.Sites[0].Upstreams[0], serve("one"), serve("two"))
	})
	for range 8 {
		req, err := http.NewRequest("POST", e.url("/elsewhere"), strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "shop.example.com"
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK || string(got) != "shop.example.com /base/elsewhere body" {
			t.Errorf("%s: %q", res.Status, got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if asked["one"] < 3 || asked["two"] < 3 {
		t.Errorf("8 requests one after the other went to %v: want about half to each", asked)
	}
	if down := strings.Count(e.log.String(), "is down"); down != 1 {
		t.Errorf("logged %d times that an address is down, want once:\n%s", down, e.log)
	}
}

func TestUpstreamAddressesDifferOnlyInHostAndPort(t *testing.T) {
	for bad, why := range map[string]string{
		"https://127.0.0.1:2/base":      "same scheme and base path",
		"http://127.0.0.1:2":            "same scheme and base path",
		"http://127.0.0.1:2/other":      "same scheme and base path",
		"http://127.0.0.1:2/base?query": "only a scheme",
		"ftp://127.0.0.1:2/base":        "an http or https URL",
		"http://127.0.0.1:1/base/":      "twice",
	} {
		t.Run(bad, func(t *testing.T) {
			more, err := url.Parse(bad)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{Sites: To(&url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/base"}, more), Limits: Limits{}.WithDefaults(true)}
			g := Gateway{options: o}
			if _, err := g.newSites(); err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s with %v: %v; want %q", bad, o.Sites, err, why)
			}
		})
	}
}

func TestAnAvoidedAddressIsNotConnectedTo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go s.Serve(l)
	defer s.Close()
	port := l.Addr().(*net.TCPAddr).Port
	var mu sync.Mutex
	var asked []netip.AddrPort
	avoided := true
	e := open(t, nil, func(o *Options) {
		before(t, fmt.Sprintf("http://localhost:%d", port))(o)
		o.Avoid = func(to netip.AddrPort) error {
			mu.Lock()
			defer mu.Unlock()
			if asked = append(asked, to); avoided {
				return errors.New("it is this server")
			}
			return nil
		}
	})
	if got := e.ask("GET /x").StatusCode; got != http.StatusBadGateway {
		t.Errorf("status %d, want 502", got)
	}
	mu.Lock()
	if want := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)); !slices.Contains(asked, want) {
		t.Errorf("asked about %v, want %v, which is what the name resolves to", asked, want)
	}
	avoided = false // the name resolves to another machine now
	mu.Unlock()
	if got := e.ask("GET /x").StatusCode; got != http.StatusOK {
		t.Errorf("status %d, want 200", got)
	}
	if log := e.log.String(); !strings.Contains(log, "it is this server") {
		t.Errorf("the log does not have the reason: %s", log)
	}
}
