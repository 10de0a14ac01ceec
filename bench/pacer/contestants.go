package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gofri/go-github-ratelimit/v2/github_ratelimit/github_primary_ratelimit"
	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/time/rate"

	"github.com/weirlimit/weir/pacer"
)

// A caller sends a request until it is served. It makes a new request for each attempt of its own.
type caller func(ctx context.Context, make func() (*http.Request, error)) (*http.Response, error)

const (
	pacerName     = "weir/pacer"
	retryableName = "hashicorp/go-retryablehttp"
	gofriName     = "gofri/go-github-ratelimit"
	rateName      = "x/time/rate, and plain retry"
	plainName     = "plain retry"

	// Callers in JavaScript: callers/caller.mjs.
	jsName     = "clients/js"
	fetchName  = "fetch"
	pRetryName = "fetch, p-retry"
	kyName     = "ky"
	axiosName  = "axios-retry"

	// Callers in PHP: callers/caller.php.
	phpName         = "clients/php"
	phpGuzzleName   = "clients/php, Guzzle"
	guzzleName      = "Guzzle"
	guzzleRetryName = "Guzzle, its retry middleware"
	wpRemoteName    = "wp_remote_request"
)

// ours reports whether a contestant is one of this repository, which has aims.
func ours(who string) bool {
	return who == pacerName || who == jsName || who == phpName || who == phpGuzzleName
}

// notes describe the settings of the others.
var notes = map[string]string{
	retryableName: "v0.7.8, unchanged except for RetryMax",
	gofriName:     "v2.0.2; each call gets an error until the reset, sleeps until then and tries again. It requires X-RateLimit-Resource to see Weir's 429, so the base transport adds that here",
	rateName:      "knows the limit and does not share the credential: requests spread evenly, one at a time",
	plainName:     "sleeps Retry-After and sends again",

	fetchName:  "a 429 is an answer like any other: what was refused is lost",
	pRetryName: "7.1.1, as it is: 10 retries of an error, 1 s, 2 s, 4 s and so on apart; a 429 is made an error",
	kyName:     "1.9.1, 10 retries of a 429 for every method; it waits Retry-After",
	axiosName:  "4.5.0 over axios 1.21.1, 10 retries of a 429; it waits Retry-After",

	phpName:         "PSR-18",
	phpGuzzleName:   "middleware",
	guzzleName:      "7.4, as it is: a 429 is an exception, what was refused is lost",
	guzzleRetryName: "Middleware::retry of a 429, up to 10 times, with its delay: 1 s, 2 s, 4 s and so on",
	wpRemoteName:    "WordPress 6.1: a 429 is no error, what was refused is lost; 64 processes of one call",
}

// open returns the client that sends a process's requests over the wire; end closes it when all are
// answered.
func open(j job, w *wire, own *word) (call caller, end func() error, err error) {
	end = func() error { return nil }
	switch j.Who {
	case pacerName:
		return openPacer(j, w, own)
	case retryableName:
		c := retryablehttp.NewClient()
		c.Logger, c.RetryMax, c.HTTPClient = nil, 10_000, &http.Client{Transport: w}
		return once(c.StandardClient()), end, nil
	case gofriName:
		return untilReset(github_primary_ratelimit.New(named{w})), end, nil
	case rateName:
		even := rate.NewLimiter(rate.Every(j.Per/time.Duration(j.Limit)), 1)
		return retry(&http.Client{Transport: w}, even.Wait), end, nil
	case plainName:
		return retry(&http.Client{Transport: w}, func(context.Context) error { return nil }), end, nil
	}
	return nil, nil, fmt.Errorf("there is no contestant %q", j.Who)
}

// A word is what the pacer itself reports.
type word struct{ refused, failures atomic.Int64 }

func openPacer(j job, w *wire, own *word) (caller, func() error, error) {
	o := pacer.Options{Base: w, OnRefused: func(pacer.Refusal) { own.refused.Add(1) }}
	end := func() error { return nil }
	if j.Shift != 0 {
		o.Now = func() time.Time { return time.Now().Add(j.Shift) }
	}
	if j.Everything {
		o.Threshold = pacer.Keep(0)
	}
	if j.Shared != "" {
		f, err := pacer.OpenFile(j.Shared)
		if err != nil {
			return nil, nil, err
		}
		o.Shared, end = f, f.Close
		o.OnSharedFailure = func(err error) {
			own.failures.Add(1)
			fmt.Fprintln(os.Stderr, "the shared view:", err)
		}
	}
	return once(&http.Client{Transport: pacer.New(&o)}), end, nil
}

// once sends a request once, and leaves the rest to the client.
func once(c *http.Client) caller {
	return func(_ context.Context, make func() (*http.Request, error)) (*http.Response, error) {
		r, err := make()
		if err != nil {
			return nil, err
		}
		return c.Do(r)
	}
}

// retry sleeps as long as a 429 asks, and sends again.
func retry(c *http.Client, before func(context.Context) error) caller {
	return func(ctx context.Context, make func() (*http.Request, error)) (*http.Response, error) {
		for {
			if err := before(ctx); err != nil {
				return nil, err
			}
			r, err := make()
			if err != nil {
				return nil, err
			}
			answer, err := c.Do(r)
			if err != nil || answer.StatusCode != http.StatusTooManyRequests {
				return answer, err
			}
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
			if err != nil {
				return nil, fmt.Errorf("read Retry-After: %w", err)
			}
			if err := sleep(ctx, time.Duration(seconds)*time.Second); err != nil {
				return nil, err
			}
		}
	}
}

// untilReset sends through gofri's transport, which returns an error from the first refusal until
// the reset.
func untilReset(t http.RoundTripper) caller {
	return func(ctx context.Context, make func() (*http.Request, error)) (*http.Response, error) {
		for {
			r, err := make()
			if err != nil {
				return nil, err
			}
			answer, err := t.RoundTrip(r)
			var reached *github_primary_ratelimit.RateLimitReachedError
			if !errors.As(err, &reached) {
				return answer, err
			}
			if reached.Response != nil {
				io.Copy(io.Discard, reached.Response.Body)
				reached.Response.Body.Close()
			}
			// Its own timer ends at the reset too: a millisecond later it has certainly fired.
			if err := sleep(ctx, max(time.Until(*reached.ResetTime), 0)+time.Millisecond); err != nil {
				return nil, err
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// named adds the field without which gofri's transport ignores a response.
type named struct{ http.RoundTripper }

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := n.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Header.Set("X-RateLimit-Resource", "core")
	}
	return answer, err
}
