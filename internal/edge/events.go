package edge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/events"
)

// callerLabel is the label by which the secret of callers in events is derived (see openDenials).
const callerLabel = "callers in events"

// maxEventFlush bounds the time in which a server that ends posts the events that wait.
const maxEventFlush = 5 * time.Second

// maxEventsSecret bounds the file of --events-secret, in bytes.
const maxEventsSecret = 1 << 10

const eventsSecretHint = "make one with: echo whsec_$(openssl rand -base64 32), and give the receiver the same"

// openEvents reports the requests that bring a window to a percentage of its limiter's notify, to
// the log and to --events-url.
func openEvents(o *observing) error {
	key, err := o.hooks.derive(callerLabel)
	if err != nil {
		return err
	}
	options := events.Options{URL: o.EventsURL, Key: key, Log: o.Log, Random: rand.Reader}
	if o.EventsURL != nil {
		if options.Secret, err = readEventsSecret(o.EventsSecret); err != nil {
			return cli.Fail(fmt.Errorf("read the secret of --events-secret: %w", err), fileHint(err, eventsSecretHint))
		}
	}
	sender, err := events.New(options)
	if errors.Is(err, events.ErrSecret) {
		return cli.Fail(fmt.Errorf("read the secret of --events-secret %s: %w", o.EventsSecret, events.ErrSecret), eventsSecretHint)
	}
	if err != nil {
		return cli.Fail(err, "")
	}
	o.own.own(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), maxEventFlush)
		defer cancel()
		return sender.Close(ctx)
	})
	h := o.hooks
	h.crossings = append(h.crossings, sender.Crossed)
	h.events = sender.Totals
	if o.EventsURL != nil {
		if isPlainAbroad(o.EventsURL) {
			o.Log.Warn("events are signed, but not encrypted on their way: use https", "host", o.EventsURL.Host)
		}
		h.policies = append(h.policies, warnOnce(o.Log, EventWarnings))
		h.rows = append(h.rows, Row{"events", "to the log, and signed to " + o.EventsURL.Scheme + "://" + o.EventsURL.Host})
	}
	return nil
}

// isPlainAbroad reports whether a URL is http and of another machine.
func isPlainAbroad(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" && u.Hostname() != "localhost" && !ip.IsLoopback()
}

// readEventsSecret returns the text of a file.
func readEventsSecret(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxEventsSecret))
	return strings.TrimSpace(string(b)), err
}
