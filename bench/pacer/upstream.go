package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Every request of a run has a number. A request that reaches the upstream was admitted, and is
// checked and counted there, independently of the callers and the limiter.

// An upstream is the backend behind the server. It records which requests reached it, and whether
// they were complete.
type upstream struct {
	url  string
	http *http.Server

	mu      sync.Mutex
	tabs    http.Handler // serves paths below /bench/; nil: none
	served  map[int]int  // how often, by number
	mangled int          // requests with a body that does not match their number
}

func startUpstream() (*upstream, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{url: "http://" + l.Addr().String(), served: map[int]int{}}
	u.http = &http.Server{Handler: u}
	go u.http.Serve(l) // ends with stop
	return u, nil
}

func (u *upstream) stop() { u.http.Close() }

// page serves paths below /bench/, which are not counted.
func (u *upstream) page(h http.Handler) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tabs = h
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	tabs := u.tabs
	u.mu.Unlock()
	if tabs != nil && strings.HasPrefix(r.URL.Path, "/bench/") {
		tabs.ServeHTTP(w, r)
		return
	}
	number, err := strconv.Atoi(r.URL.Query().Get("number"))
	body, readErr := io.ReadAll(r.Body)
	u.mu.Lock()
	if err != nil || readErr != nil || r.Method != methodOf(number) || !bytes.Equal(body, bodyOf(number)) {
		u.mangled++
	}
	u.served[number]++
	u.mu.Unlock()
	fmt.Fprint(w, number)
}

// count returns how many of the numbers below n arrived never and more than once, and how many
// requests were mangled.
func (u *upstream) count(n int) (missing, again, mangled int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for number := range n {
		switch times := u.served[number]; {
		case times == 0:
			missing++
		case times > 1:
			again++
		}
	}
	return missing, again, u.mangled
}

// methodOf returns the method of a request: a third are a GET, a third a PUT whose body net/http
// can rewind, a third a POST whose body is a stream.
func methodOf(number int) string {
	return []string{http.MethodGet, http.MethodPut, http.MethodPost}[number%3]
}

// bodyOf returns a body of up to 4 KiB that is unique to its number.
func bodyOf(number int) []byte {
	if methodOf(number) == http.MethodGet {
		return nil
	}
	sum := sha256.Sum256([]byte(strconv.Itoa(number)))
	return []byte(strings.Repeat(hex.EncodeToString(sum[:]), 1+number%64))
}

// newRequest makes a new request, as needed for a retry by hand.
func (j job) newRequest(number int) (*http.Request, error) {
	var body io.Reader
	path := "/v1/wp/status"
	switch b := bodyOf(number); methodOf(number) {
	case http.MethodPut:
		body, path = bytes.NewReader(b), "/v1/wp/documents"
	case http.MethodPost:
		body, path = struct{ io.Reader }{bytes.NewReader(b)}, "/v1/wp/documents"
	}
	r, err := http.NewRequest(methodOf(number), j.URL+path+"?number="+strconv.Itoa(number), body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+j.Token)
	return r, nil
}
