package acme

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The events of certmagic that note receives.
const (
	eventFailed   = "cert_failed"
	eventObtained = "cert_obtained"
)

// note receives the events of certmagic.
func (m *Manager) note(_ context.Context, event string, data map[string]any) error {
	name, _ := data["identifier"].(string)
	switch event {
	case eventFailed:
		err, _ := data["error"].(error)
		m.failed(name, err)
	case eventObtained:
		m.mu.Lock()
		m.issued[name] = true
		m.mu.Unlock()
		if again, _ := data["renewal"].(bool); again {
			m.succeeded(name) // of a first certificate, obtain reports that clients get it
		}
	}
	return nil
}

// failed logs that a name has no certificate, or that its certificate could not be renewed. It does
// so once, until that succeeds.
func (m *Manager) failed(name string, err error) {
	if errors.Is(err, context.Canceled) {
		return // the server ends
	}
	m.mu.Lock()
	again := m.failing[name]
	m.failing[name] = true
	m.mu.Unlock()
	if again {
		m.log.Debug("no certificate by ACME for a name, again", "name", name, "error", err)
		return
	}
	checks := "port 443 of its address reaches --listen"
	if m.options.Redirect.IsValid() {
		checks += ", or port 80 --redirect"
	}
	what := "no certificate by ACME for a name"
	attributes := []any{"name", name, "error", err}
	if c := m.current(name); c != nil {
		what = "the certificate by ACME could not be renewed, and stays in use"
		attributes = append(attributes, "expires", c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	m.log.Warn(what+": it is tried again, after longer and longer pauses; check that the name resolves to this server, and that "+checks, attributes...)
}

// succeeded logs that a name has a new certificate, if this server got one from the authority, and
// has the log report the next failure of the name.
func (m *Manager) succeeded(name string) {
	m.mu.Lock()
	issued := m.issued[name]
	delete(m.issued, name)
	delete(m.failing, name)
	m.mu.Unlock()
	if issued {
		m.log.Info("a certificate was issued by ACME", "name", name, "authority", m.options.Directory)
	}
}

// Missing returns which names have no certificate that clients accept; nil if all have one.
func (m *Manager) Missing(now time.Time) error {
	var none []string
	for _, name := range m.options.Names {
		if c := m.current(name); c == nil || now.After(c.Leaf.NotAfter) {
			none = append(none, name)
		}
	}
	if none == nil {
		return nil
	}
	return fmt.Errorf("no valid certificate by ACME for %s", strings.Join(none, ", "))
}

// Expiries returns when the certificate of each name expires, of those that have one.
func (m *Manager) Expiries() map[string]time.Time {
	ends := make(map[string]time.Time, len(m.options.Names))
	for _, name := range m.options.Names {
		if c := m.current(name); c != nil {
			ends[name] = c.Leaf.NotAfter
		}
	}
	return ends
}

// maxNotice is for how long before its end a certificate is reported at most.
const maxNotice = 14 * 24 * time.Hour

// Warn logs which certificates have expired or expire soon: in two weeks, or in the last sixth of a
// shorter life. They should have been renewed when a third was left.
func (m *Manager) Warn(now time.Time) {
	for _, name := range m.options.Names {
		c := m.current(name)
		if c == nil {
			continue
		}
		left := c.Leaf.NotAfter.Sub(now)
		if left > min(maxNotice, c.Leaf.NotAfter.Sub(c.Leaf.NotBefore)/6) {
			continue
		}
		what := "a certificate by ACME expires soon and is not renewed: an earlier warning has the reason"
		if left <= 0 {
			what = "a certificate by ACME has expired, and clients refuse it: an earlier warning has the reason"
		}
		m.log.Warn(what, "name", name, "expires", c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
}
