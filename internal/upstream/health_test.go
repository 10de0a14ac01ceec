package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/wire"
	"pgregory.net/rapid"
)

// who takes n connections in sequence and returns their addresses. It answers those
// that connect.
func who(t *testing.T, p *Pool, n int) string {
	t.Helper()
	var all []string
	for range n {
		c, err := p.Take(context.Background(), Want{})
		if err != nil {
			all = append(all, "none")
			continue
		}
		all = append(all, strings.TrimSuffix(c.Address().Host, ":80"))
		c.Keep(time.Now())
	}
	return strings.Join(all, " ")
}

func TestAFailingAddressBacksOffExponentially(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		n := &network{fails: map[string]error{"a:80": syscall.ECONNREFUSED}}
		p := poolOf(t, n, &log, "a:80", "b:80")
		defer p.Close()
		if got := who(t, p, 4); got != "b b b b" || strings.Count(n.tried(), "a:80") != 1 {
			t.Fatalf("with a refusing: %s", got)
		}
		for _, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			time.Sleep(pause*time.Second - time.Millisecond)
			if who(t, p, 4); strings.Contains(n.tried(), "a:80") {
				t.Errorf("a was tried again before %d s", pause)
			}
			time.Sleep(time.Millisecond)
			if who(t, p, 4); strings.Count(n.tried(), "a:80") != 1 {
				t.Errorf("after %d s a was not tried once", pause)
			}
		}
		n.set("a:80", nil)
		time.Sleep(30 * time.Second)
		if got := who(t, p, 4); strings.Count(got, "a") != 2 {
			t.Errorf("a has recovered: %s", got)
		}
		n.set("a:80", syscall.ECONNREFUSED)
		p.addresses[0].takeKept()[0].Conn.Close()
		who(t, p, 2)
		n.tried()
		time.Sleep(time.Second)
		if who(t, p, 2); strings.Count(n.tried(), "a:80") != 1 {
			t.Error("a success did not make the pause a second again")
		}
		if down, back := strings.Count(log.String(), "is down"), strings.Count(log.String(), "is back"); down != 2 || back != 1 {
			t.Errorf("logged %d times that it is down, %d that it is back: want 2 and 1\n%s", down, back, &log)
		}
	})
}

func TestOneExchangeAtATimeProbesAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{fails: map[string]error{"a:80": syscall.ECONNREFUSED}}
		p := poolOf(t, n, io.Discard, "a:80", "b:80")
		defer p.Close()
		who(t, p, 2)
		n.set("a:80", nil)
		time.Sleep(time.Second)
		var taken []*Conn
		for range 8 {
			taken = append(taken, take(t, p))
		}
		count := func() (a int, at *Conn) {
			for _, c := range taken {
				if c.Address().Host == "a:80" {
					a, at = a+1, c
				}
			}
			return a, at
		}
		trials, trial := count()
		if trials != 1 {
			t.Fatalf("%d concurrent exchanges probe a, want one", trials)
		}
		trial.Answered() // its body may last: a is healthy from here
		taken = append(taken, take(t, p))
		if a, _ := count(); a != 2 {
			t.Error("the answer's head did not make a healthy")
		}
		for _, c := range taken {
			c.Drop(nil)
		}
	})
}

func TestAProbeWithoutAResultIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{fails: map[string]error{"a:80": syscall.ECONNREFUSED}}
		p := poolOf(t, n, io.Discard, "a:80", "b:80")
		defer p.Close()
		who(t, p, 2)
		n.set("a:80", nil)
		time.Sleep(time.Second)
		busy := take(t, p) // one of the next two is a's: the least busy
		other := take(t, p)
		if busy.Address() == other.Address() {
			t.Fatal("no exchange probes a")
		}
		if other.Address().Host != "a:80" {
			busy, other = other, busy
		}
		other.Drop(nil) // its client went away
		if c := take(t, p); c.Address().Host != "a:80" {
			t.Error("a is not probed again after a probe without a result")
		} else {
			c.Drop(nil)
		}
		busy.Drop(nil)
	})
}

func TestABackedOffAddressIsUsedIfThereIsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{fails: map[string]error{"a:80": syscall.ECONNREFUSED, "b:80": syscall.ECONNREFUSED}}
		p := poolOf(t, n, io.Discard, "a:80", "b:80")
		defer p.Close()
		for range 100 { // during a second's outage, which must not extend the pauses
			who(t, p, 1)
			time.Sleep(10 * time.Millisecond)
		}
		n.set("b:80", nil)
		if got := who(t, p, 3); got != "b b b" {
			t.Errorf("b connects, and both are backed off: %s", got)
		}
		n.set("a:80", nil)
		time.Sleep(2*time.Second + time.Millisecond)
		if got := who(t, p, 4); strings.Count(got, "a") != 2 {
			t.Errorf("two seconds later: %s; a probe for lack of others must not extend the pause", got)
		}
	})
}

// failureOf is an exchange that ends with an error before an answer's head. If kept
// is set, the connection has carried an answer before.
func failureOf(t *testing.T, p *Pool, kept bool, failure error) {
	t.Helper()
	c := take(t, p)
	if kept {
		c.Keep(time.Now())
		c = take(t, p)
	}
	c.AwaitHead(time.Now())
	c.Drop(failure)
}

func TestWhichFailuresCountAgainstAnAddress(t *testing.T) {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	late := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	nonsense := &wire.Refusal{Status: 400, Reason: "a bare line feed"}
	for name, c := range map[string]struct {
		kept, counts bool
		failure      error
	}{
		"nothing, new":             {false, false, nil},
		"nothing, kept":            {true, false, nil},
		"time-out, new":            {false, true, late},
		"time-out, kept":           {true, true, late},
		"reset, new":               {false, true, reset},
		"reset, kept":              {true, false, reset},
		"end, new":                 {false, true, io.EOF},
		"end, kept":                {true, false, io.EOF},
		"wrapped end, kept":        {true, false, fmt.Errorf("read the head: %w", io.ErrUnexpectedEOF)},
		"in other words, kept":     {true, false, errors.New("no answer came")},
		"nonsense, new":            {false, true, nonsense},
		"nonsense, kept":           {true, true, fmt.Errorf("the answer's head: %w", nonsense)},
		"closed by us":             {false, false, net.ErrClosed},
		"the client went away":     {false, false, context.Canceled},
		"no more files, new":       {false, false, os.NewSyscallError("write", syscall.ENOBUFS)},
		"the exchange's own words": {false, true, errors.New("anything else")},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(t, new(network), io.Discard, "a:80")
			failureOf(t, p, c.kept, c.failure)
			if got := p.addresses[0].failures != 0; got != c.counts {
				t.Errorf("counted: %v, want %v", got, c.counts)
			}
		})
	}
	for name, c := range map[string]struct {
		err    error
		counts bool
	}{
		"refused":       {syscall.ECONNREFUSED, true},
		"unreachable":   {syscall.EHOSTUNREACH, true},
		"no such name":  {&net.DNSError{Err: "no such host", Name: "a", IsNotFound: true}, true},
		"no more files": {os.NewSyscallError("socket", syscall.EMFILE), false},
		"no more ports": {os.NewSyscallError("connect", syscall.EADDRNOTAVAIL), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(t, &network{fails: map[string]error{"a:80": c.err}}, io.Discard, "a:80")
			if _, err := p.Take(context.Background(), Want{}); !errors.Is(err, ErrUnavailable) {
				t.Errorf("%v: want ErrUnavailable", err)
			}
			if got := p.addresses[0].failures != 0; got != c.counts {
				t.Errorf("counted: %v, want %v", got, c.counts)
			}
		})
	}
}

func TestOneSlowRequestDoesNotBackOffAnAddress(t *testing.T) {
	p := poolOf(t, new(network), io.Discard, "a:80")
	slow := take(t, p)
	take(t, p).Keep(time.Now())
	slow.Drop(os.ErrDeadlineExceeded)
	if p.addresses[0].failures != 0 {
		t.Error("an address that answered another exchange meanwhile is backed off")
	}
}

func TestAnOutageCountsAsOneFailure(t *testing.T) {
	p := poolOf(t, new(network), io.Discard, "a:80")
	var all []*Conn
	for range 20 {
		all = append(all, take(t, p))
	}
	kept := take(t, p)
	for _, c := range all {
		c.Drop(io.EOF)
	}
	if got := p.addresses[0].failures; got != 1 {
		t.Errorf("%d failures counted, want 1", got)
	}
	kept.Keep(time.Now()) // began before: it does not prove that the address is healthy now
	if a := p.addresses[0]; a.failures != 1 || len(a.kept) != 0 {
		t.Errorf("an older exchange's end: %d failures, %d kept; want 1 and none", a.failures, len(a.kept))
	}
}

func TestAnAddressThatFailedKeepsNoConnection(t *testing.T) {
	n := new(network)
	p := poolOf(t, n, io.Discard, "a:80")
	kept, failing := take(t, p), take(t, p)
	kept.Keep(time.Now())
	c, err := p.Take(context.Background(), Want{Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	failing.Drop(nil)
	c.Drop(io.EOF)
	if n.opened() != 0 {
		t.Errorf("%d connections are open", n.opened())
	}
}

func TestAnOlderExchangeDoesNotExtendThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(network)
		p := poolOf(t, n, io.Discard, "a:80", "b:80")
		defer p.Close()
		one, two, three, four := take(t, p), take(t, p), take(t, p), take(t, p)
		defer func() { two.Drop(nil); four.Drop(nil) }()
		one.Drop(io.EOF)
		time.Sleep(900 * time.Millisecond)
		three.Drop(io.EOF)
		time.Sleep(100 * time.Millisecond)
		if c := take(t, p); c.Address().Host != "a:80" {
			t.Error("a is not probed a second after the failure that counted")
		} else {
			c.Drop(nil)
		}
	})
}

func TestOfBackedOffAddressesTheFirstDueIsProbedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{fails: map[string]error{"a:80": syscall.ECONNREFUSED}}
		p := poolOf(t, n, io.Discard, "a:80", "b:80")
		defer p.Close()
		who(t, p, 2)
		time.Sleep(500 * time.Millisecond)
		n.set("b:80", syscall.ECONNREFUSED)
		closeAll(p.addresses[1].takeKept()) // b ends
		if got := who(t, p, 1); got != "none" {
			t.Fatalf("took one of %s", got)
		}
		p.addresses[0].until = time.Now().Add(400 * time.Millisecond)
		for begin := range 2 {
			p.next = begin
			n.tried()
			who(t, p, 1)
			if got := n.tried(); got != "a:80 b:80" {
				t.Errorf("tried %q, want the one that is due first", got)
			}
			p.addresses[0].until = time.Now().Add(400 * time.Millisecond)
		}
	})
}

func TestAFlappingAddressDoesNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		p := poolOf(t, new(network), &log, "a:80")
		defer p.Close()
		for range 100 { // in 10 s
			take(t, p).Drop(os.ErrDeadlineExceeded)
			take(t, p).Keep(time.Now())
			time.Sleep(99 * time.Millisecond)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 2 {
			t.Errorf("%d lines in ten seconds, want one that it is down and one that it is back:\n%s", lines, &log)
		}
		time.Sleep(time.Second)
		take(t, p).Drop(os.ErrDeadlineExceeded)
		take(t, p).Drop(os.ErrDeadlineExceeded)
		if down := strings.Count(log.String(), "is down"); down != 2 {
			t.Errorf("logged %d times that it is down, want once more", down)
		}
	})
}

func TestTheLeastBusyAddressIsChosenWithTiesInRotation(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(r, "addresses")
		var addresses []string
		for i := range n {
			addresses = append(addresses, fmt.Sprintf("%c:80", 'a'+i))
		}
		p := poolOf(t, new(network), io.Discard, addresses...)
		defer p.Close()
		busy := make(map[string]int)
		last := n - 1
		var taken []*Conn
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			if len(taken) > 0 && rapid.Bool().Draw(r, "return") {
				i := rapid.IntRange(0, len(taken)-1).Draw(r, "which")
				busy[taken[i].Address().Host]--
				if rapid.Bool().Draw(r, "keep") {
					taken[i].Keep(time.Now())
				} else {
					taken[i].Drop(nil)
				}
				taken = append(taken[:i], taken[i+1:]...)
				continue
			}
			want := -1 // the first of the least busy after the last one chosen
			for i := range n {
				at := (last + 1 + i) % n
				if want < 0 || busy[addresses[at]] < busy[addresses[want]] {
					want = at
				}
			}
			c, err := p.Take(context.Background(), Want{})
			if err != nil || c.Address().Host != addresses[want] {
				r.Fatalf("chose %v, %v; want %s of %v", c.Address(), err, addresses[want], busy)
			}
			last = want
			busy[addresses[want]]++
			taken = append(taken, c)
		}
		for _, c := range taken {
			c.Drop(nil)
		}
	})
}
