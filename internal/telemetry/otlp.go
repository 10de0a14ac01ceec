package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A collector posts spans by OTLP over HTTP. (The library's own client, otlptracehttp, links in
// gRPC for the types of one message: 69 packages, 7.5 MB. The message has the same single field as
// TracesData, so it has the same bytes.)
type collector struct {
	url     string
	header  http.Header
	trouble func(error) // called after each failed attempt that is retried
	client  http.Client
}

func newCollector(to *url.URL, header http.Header, trouble func(error)) *collector {
	// no proxy from the environment
	transport := &http.Transport{MaxIdleConns: 2, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: exportTimeout}
	return &collector{url: to.String(), header: header, trouble: trouble, client: http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Start implements otlptrace.Client.
func (c *collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// firstPause is the pause before the first retry. It doubles before each further one.
const firstPause = time.Second

// UploadTraces posts one batch. If the error is temporary, it retries until ctx ends.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("write spans: %w", err)
	}
	for pause := firstPause; ; pause *= 2 {
		after, err := c.post(ctx, body)
		if err == nil || after < 0 {
			return err
		}
		c.trouble(err)
		timer := time.NewTimer(max(after, pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return err // more specific than the context's error
		case <-timer.C:
		}
	}
}

// post sends a batch once. With an error it returns the minimum pause before a retry; a negative
// pause means that a retry is useless.
func (c *collector) post(ctx context.Context, body []byte) (after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, fmt.Errorf("post spans: %w", err)
	}
	for name, values := range c.header {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	res, err := c.client.Do(r)
	if err != nil {
		return 0, fmt.Errorf("post spans: %w", err)
	}
	defer res.Body.Close()
	// so that the connection can be reused
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.ParseUint(res.Header.Get("Retry-After"), 10, 16)
		return time.Duration(seconds) * time.Second, fmt.Errorf("post spans: the collector answered %s", res.Status)
	}
	if res.StatusCode/100 != 2 {
		return -1, fmt.Errorf("post spans: the collector answered %s", res.Status)
	}
	return 0, nil
}
