package gateway

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

var _ Door = (*Gateway)(nil)

// A slowDoor fails after a while, or drains for a while.
type slowDoor struct {
	fails   time.Duration // 0: never
	drains  time.Duration
	drained bool
}

var errDoor = errors.New("accept: too many open files")

func (d *slowDoor) Serve(ctx context.Context, _ net.Listener) error {
	if d.fails > 0 {
		select {
		case <-time.After(d.fails):
			return errDoor
		case <-ctx.Done():
		}
	}
	<-ctx.Done()
	time.Sleep(d.drains)
	d.drained = true
	return nil
}

func TestAllDoorsDrainBeforeServeAllReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &slowDoor{drains: time.Second}, &slowDoor{drains: 3 * time.Second}
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		began := time.Now()
		if err := ServeAll(ctx, OpenDoor{Door: a}, OpenDoor{Door: b}); err != nil || !a.drained || !b.drained {
			t.Errorf("%v, drained: %v, %v", err, a.drained, b.drained)
		}
		if took := time.Since(began); took != time.Minute+3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestADoorThatFailsDrainsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing, other := &slowDoor{fails: time.Second}, &slowDoor{drains: time.Second}
		if err := ServeAll(t.Context(), OpenDoor{Door: failing}, OpenDoor{Door: other}); !errors.Is(err, errDoor) {
			t.Errorf("the error is %v", err)
		}
		if !other.drained {
			t.Error("the other door did not drain")
		}
	})
}
