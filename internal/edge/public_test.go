package edge

import (
	"context"
	"testing"
	"time"
)

// The systemd watchdog is notified only if the server accepts connections.
func TestTheWatchdogChecksTheAcceptLoop(t *testing.T) {
	s, _ := opened(t, testConfig(t, twoPolicy))
	p := &pulse{counter: s.counter, front: s.public.gateway, at: s.Addr()}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.alive(soon); err == nil {
		t.Error("no connection is accepted, and it counts as alive")
	}
	running, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Run(running) }()
	for range 3 {
		if err := p.alive(t.Context()); err != nil {
			t.Error(err)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := p.alive(t.Context()); err != nil {
		t.Errorf("drained: %v", err)
	}
}

// What counts connections must not stand between the sockets and the gateway: it waits for them,
// and asks them what their clients have acknowledged.
func TestTheGatewayGetsTheSocketsThemselves(t *testing.T) {
	s, h := opened(t, testConfig(t, twoPolicy))
	if len(h.listeners) == 0 {
		t.Fatal("nothing counts connections")
	}
	if s.public.listener != s.listeners.public {
		t.Errorf("the gateway gets a %T, want the %T itself", s.public.listener, s.listeners.public)
	}
}
