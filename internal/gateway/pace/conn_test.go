package pace

import (
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// deadlines records the write deadlines of a connection.
type deadlines struct {
	net.Conn
	set []time.Time
}

func (d *deadlines) Write(p []byte) (int, error) { return len(p), nil }

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// The deadline does not depend on the system clock, which may be changed. A clock
// that ticks now and then is sufficient, though it is late.
func TestAWriteDeadlineIsRenewedEveryQuarter(t *testing.T) {
	for name, late := range map[string]bool{"the system's clock": false, "a clock that is ticked": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				d := &deadlines{}
				clock := NewClock()
				clock.began = began.Add(-time.Second)
				c := NewConn(d, 8*time.Second, clock)
				for range 10 {
					if _, err := c.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(500 * time.Millisecond)
					if late {
						clock.Tick()
					}
				}
				want := []time.Time{began.Add(8 * time.Second), began.Add(10 * time.Second), began.Add(12 * time.Second)}
				if !slices.EqualFunc(d.set, want, time.Time.Equal) {
					t.Errorf("%v: want %v", d.set, want)
				}
			})
		})
	}
}
