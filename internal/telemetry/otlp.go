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

// A collector takes spans by OTLP over HTTP. (The library's own client of that protocol, otlptracehttp, links gRPC in, for the types
// of one message: 69 packages, 7.5 MB. The message has one field, the same as TracesData has, and so the same bytes.)
type collector struct {
	url     string
	header  http.Header
	trouble func(error) // is told of every try that was in vain
	client  http.Client
}

func newCollector(to *url.URL, header http.Header, trouble func(error)) *collector {
	transport := &http.Transport{MaxIdleConns: 2, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: exportTimeout} // no proxy from the environment
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

// firstPause is before a second try, and doubled before each one after.
const firstPause = time.Second

// UploadTraces posts one batch, again where the collector says that it may take it later, until ctx ends.
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
			return err // what it said says more than that there was no more time
		case <-timer.C:
		}
	}
}

// post sends a batch once. After an error it returns when to try again; less than zero is never.
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
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection is used again
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.ParseUint(res.Header.Get("Retry-After"), 10, 16)
		return time.Duration(seconds) * time.Second, fmt.Errorf("post spans: the collector answers %s", res.Status)
	}
	if res.StatusCode/100 != 2 {
		return -1, fmt.Errorf("post spans: the collector answers %s", res.Status)
	}
	return 0, nil
}
