package edge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
)

// A testDoor serves until its drain may end.
type testDoor struct {
	serving, draining, drained chan struct{}
	fail                       error // ends Serve at once
}

func newTestDoor() *testDoor {
	return &testDoor{serving: make(chan struct{}), draining: make(chan struct{}), drained: make(chan struct{})}
}

func (d *testDoor) Serve(ctx context.Context) error {
	close(d.serving)
	if d.fail != nil {
		return d.fail
	}
	<-ctx.Done()
	close(d.draining)
	<-d.drained
	return nil
}

func (d *testDoor) Addr() net.Addr { return &net.TCPAddr{Port: 1} }

// served serves doors until end is called.
func served(t *testing.T, d *doors) (result chan error, end func()) {
	t.Helper()
	d.log = slog.New(slog.DiscardHandler)
	ctx, end := context.WithCancel(t.Context())
	result = make(chan error, 1)
	go func() { result <- d.serve(ctx) }()
	return result, end
}

// The admin listener stays until all public doors have drained, so that operators
// can watch them.
func TestTheAdminListenerDrainsLast(t *testing.T) {
	one, two, operators := newTestDoor(), newTestDoor(), newTestDoor()
	result, end := served(t, &doors{callers: []Door{one, two}, operators: []Door{operators}})
	for _, d := range []*testDoor{one, two, operators} {
		<-d.serving
	}
	end()
	<-one.draining
	<-two.draining
	close(one.drained)
	select {
	case <-operators.draining:
		t.Error("the admin listener drains while a public one does")
	case err := <-result:
		t.Fatalf("the server has ended while a listener drains: %v", err)
	default:
	}
	close(two.drained)
	<-operators.draining
	close(operators.drained)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestIfAPublicListenerFailsTheOthersDrain(t *testing.T) {
	one, bad, operators := newTestDoor(), newTestDoor(), newTestDoor()
	bad.fail = errors.New("the port has gone")
	close(one.drained)
	close(operators.drained)
	result, end := served(t, &doors{callers: []Door{one, bad}, operators: []Door{operators}})
	defer end()
	if err := <-result; !errors.Is(err, bad.fail) {
		t.Errorf("the server ends with %v", err)
	}
	<-one.draining
}

func TestAServerContinuesIfItsAdminListenerFails(t *testing.T) {
	one, bad := newTestDoor(), newTestDoor()
	bad.fail = errors.New("the port has gone")
	close(one.drained)
	result, end := served(t, &doors{callers: []Door{one}, operators: []Door{bad}})
	<-bad.serving
	<-one.serving
	end()
	if err := <-result; err != nil {
		t.Errorf("the server ends with %v", err)
	}
}
