package telemetry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type answers func(*http.Request) (int, http.Header)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status, header := a(r)
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: header, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func TestABatchIsPostedAgainWhereTheCollectorMayTakeItLater(t *testing.T) {
	for _, c := range []struct {
		name     string
		statuses []int // the last one goes on
		after    string
		posts    int
		took     time.Duration
		ok       bool
	}{
		{"taken", []int{200}, "", 1, 0, true},
		{"busy", []int{503, 429, 200}, "", 3, 3 * time.Second, true},
		{"says when", []int{429, 202}, "5", 2, 5 * time.Second, true},
		{"not there", []int{0, 0, 200}, "", 3, 3 * time.Second, true},
		{"refused", []int{400}, "", 1, 0, false},
		{"elsewhere", []int{307}, "", 1, 0, false}, // the header may be a key
		{"never there", []int{0}, "", 4, 10 * time.Second, false},
		{"says much later", []int{503}, "60000", 1, 10 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				posts, vain := 0, 0
				to := newCollector(&url.URL{Scheme: "http", Host: "collector"}, http.Header{"X-Api-Key": {"k"}}, func(error) { vain++ })
				to.client.Transport = answers(func(r *http.Request) (int, http.Header) {
					if r.Header.Get("X-Api-Key") != "k" || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Method != "POST" {
						t.Errorf("it was sent %s %v", r.Method, r.Header)
					}
					status := c.statuses[min(posts, len(c.statuses)-1)]
					posts++
					return status, http.Header{"Retry-After": {c.after}, "Location": {"http://elsewhere"}}
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				err := to.UploadTraces(ctx, nil)
				if c.ok && vain != posts-1 {
					t.Errorf("it reported %d failed attempts of %d", vain, posts)
				}
				if took := time.Since(start); posts != c.posts || took != c.took || (err == nil) != c.ok {
					t.Errorf("%d posts in %v, %v; want %d in %v, ok %v", posts, took, err, c.posts, c.took, c.ok)
				}
			})
		})
	}
}
