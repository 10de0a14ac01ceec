package events

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	postTimeout = 10 * time.Second // for one attempt
	// minSecret and maxSecret bound the secret, in bytes (Standard Webhooks, "Signature scheme").
	minSecret, maxSecret = 24, 64
	maxRead              = 64 << 10 // of an answer, so that its connection can be used again
)

// ErrSecret is wrapped by the error of New for a secret that is not one.
var ErrSecret = errors.New("expected whsec_ and the base64 of 24 to 64 bytes")

// A webhook posts events to one URL.
type webhook struct {
	url    string
	signer *standardwebhooks.Webhook
	client http.Client
}

func newWebhook(o Options) (*webhook, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(o.Secret, "whsec_"))
	if err != nil || len(raw) < minSecret || len(raw) > maxSecret {
		return nil, ErrSecret // without the secret
	}
	signer, err := standardwebhooks.NewWebhookRaw(raw)
	if err != nil {
		return nil, ErrSecret
	}
	transport := o.Transport
	if transport == nil {
		transport = &http.Transport{ // no proxy from the environment
			MaxConnsPerHost: senders, MaxIdleConnsPerHost: senders, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: postTimeout, ForceAttemptHTTP2: true,
		}
	}
	return &webhook{o.URL.String(), signer, http.Client{
		Transport: transport, Timeout: postTimeout,
		// A signed event goes only to the URL that the operator named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (h *webhook) close() { h.client.CloseIdleConnections() }

// A postError is why an attempt failed.
type postError struct {
	final bool          // another attempt is useless
	after time.Duration // the receiver wants no attempt before
	err   error         // without the URL, which may hold a secret
}

func (e *postError) Error() string { return e.err.Error() }

// post makes one attempt at a time. It returns nil if the receiver accepted the event.
func (h *webhook) post(ctx context.Context, e *Event, now time.Time) *postError {
	body, err := json.Marshal(e)
	if err != nil {
		return &postError{final: true, err: fmt.Errorf("write an event: %w", err)}
	}
	signature, err := h.signer.Sign(e.ID, now, body)
	if err != nil {
		return &postError{final: true, err: fmt.Errorf("sign an event: %w", err)}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return &postError{final: true, err: errors.New("the URL of events is not one")}
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "weir")
	r.Header.Set(standardwebhooks.HeaderWebhookID, e.ID)
	r.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	r.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	res, err := h.client.Do(r)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err
		}
		return &postError{err: err}
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxRead))
	status := res.StatusCode
	switch {
	case status/100 == 2:
		return nil
	case status == http.StatusTooManyRequests || status >= 500:
		return &postError{after: retryAfter(res.Header.Get("Retry-After"), now), err: fmt.Errorf("the receiver answered %d", status)}
	}
	return &postError{final: true, err: fmt.Errorf("the receiver answered %d", status)}
}

// retryAfter returns the pause that a Retry-After asks for, in seconds or until a date (RFC 9110,
// section 10.2.3); 0 if it asks for none.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
