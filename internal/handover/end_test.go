//go:build linux

package handover

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir"
)

// A process that is to hand over while it takes over does not: the counts may still be taken back.
func TestCountsThatAreNotTakenOverYetAreNotHandedOn(t *testing.T) {
	o, _ := options(t)
	old, now := opened(t, o), process(t, o)
	minute := charge("minute", 10, 60, 3)
	take(t, old, minute)
	offer, err := old.Release()
	if err != nil {
		t.Fatal(err)
	}
	next, previous := pair(t)
	continued := make(chan error, 1)
	go func() { continued <- previous.Continue(now) }()
	if err := errors.Join(next.AwaitOpen(t.Context()), next.offer(offer)); err != nil {
		t.Fatal(err)
	}
	if early, err := now.Release(); early != nil || err == nil {
		t.Errorf("released: %v, %v", early, err)
	}
	if err := errors.Join(next.link.send(step{Op: opGo}), <-continued, offer.State.Lock.Close()); err != nil {
		t.Fatal(err)
	}
	old.follow(next.link)
	take(t, old, minute)
	third := process(t, o)
	handOver(t, now, third)
	if n := spent(t, old, minute); n != 6 {
		t.Errorf("%d units are counted, want 6", n)
	}
}

// A process that is to end while it hands over keeps the counts, and the next one ends.
func TestAHandOverEndsWithItsProcess(t *testing.T) {
	for name, until := range map[string]func(*Previous){
		"before the other is open": func(*Previous) {},
		"while it has an offer": func(p *Previous) {
			if _, err := p.ask(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := options(t)
			now := opened(t, o)
			minute, slots := charge("minute", 10, 60, 1), slot(10)
			take(t, now, minute, slots)
			next, previous := pair(t)
			ctx, end := context.WithCancelCause(t.Context())
			ending := errors.New("it is to end")
			go func() { // a process that then hangs
				until(previous)
				end(ending)
			}()
			err := next.AwaitOpen(ctx)
			if err == nil {
				err = next.Give(ctx, now, func(int) { t.Error("the next process is said to decide") })
			}
			if !errors.Is(err, ending) {
				t.Errorf("%v, want %v", err, ending)
			}
			select {
			case <-next.ended:
			default:
				t.Error("the next process has not ended")
			}
			take(t, now, minute, slots)
			if m, s := spent(t, now, minute), spent(t, now, slots); m != 2 || s != 2 {
				t.Errorf("%d of the minute and %d slots are taken, want 2 and 2", m, s)
			}
		})
	}
}

// A next process that has an offer and hangs is ended, and the counts are taken back.
func TestAProcessThatHangsIsEnded(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a next process has 3 s to open the counts")
	}
	o, _ := options(t)
	now := opened(t, o)
	minute := charge("minute", 10, 60, 1)
	take(t, now, minute)
	next, previous := pair(t)
	go func() {
		if _, err := previous.ask(); err != nil {
			t.Error(err)
		}
	}()
	err := next.AwaitOpen(t.Context())
	if err == nil {
		err = next.Give(t.Context(), now, func(int) { t.Error("the next process is said to decide") })
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ErrNoCounts) {
		t.Errorf("a process that hangs: %v", err)
	}
	take(t, now, minute)
	if n := spent(t, now, minute); n != 2 {
		t.Errorf("%d units are counted, want 2", n)
	}
}

// If it is to end when the next process decides already, that drains too, and both have counts
// until they have ended.
func TestAnEndThatComesTooLateIsPassedOn(t *testing.T) {
	for name, elsewhere := range map[string]bool{"counts in memory": false, "counts elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			var old, now *Counts
			if !elsewhere {
				o, _ := options(t)
				old, now = opened(t, o), process(t, o)
			}
			next, previous := pair(t)
			stops := 0
			next.stop = func() error { stops++; return os.ErrProcessDone }
			continued := make(chan error, 1)
			go func() { continued <- previous.Continue(now) }()
			ctx, end := context.WithCancel(t.Context())
			defer end()
			err := next.AwaitOpen(ctx)
			if err == nil {
				err = next.Give(ctx, old, func(int) { end() })
			}
			if err := errors.Join(err, <-continued); err != nil {
				t.Fatal(err)
			}
			if stops != 1 {
				t.Errorf("the next process was made to drain %d times", stops)
			}
			if !elsewhere {
				take(t, old, charge("minute", 10, 60, 1))
			}
		})
	}
}

// An end that comes just when the next process has answered interrupts nothing later.
func TestALateEndDoesNotInterruptALink(t *testing.T) {
	next, previous := pair(t)
	ctx, end := context.WithCancel(t.Context())
	if err := next.until(ctx, func() error { end(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("an end at the last moment: %v", err)
	}
	if err := errors.Join(next.link.unbound(), previous.link.send(step{Op: opOpen}), next.await(opOpen)); err != nil {
		t.Errorf("interrupted later: %v", err)
	}
}

// The service manager knows this process again if the next one has ended at the last moment.
func TestTheMainProcessIsTheOneThatDecides(t *testing.T) {
	o, _ := options(t)
	now := opened(t, o)
	minute := charge("minute", 10, 60, 1)
	take(t, now, minute)
	next, previous := pair(t)
	go func() {
		if _, err := previous.ask(); err != nil {
			t.Error(err)
		}
		if err := previous.link.send(step{Op: opHave}); err != nil {
			t.Error(err)
		}
	}()
	var main []int
	err := next.AwaitOpen(t.Context())
	if err == nil {
		err = next.Give(t.Context(), now, func(pid int) {
			if main = append(main, pid); pid == next.pid {
				_ = next.kill()
			}
		})
	}
	if err == nil || errors.Is(err, ErrNoCounts) {
		t.Errorf("a process that has ended: %v", err)
	}
	if want := []int{next.pid, os.Getpid()}; !slices.Equal(main, want) {
		t.Errorf("reported as main processes: %v, want %v", main, want)
	}
	if take(t, now, minute); spent(t, now, minute) != 2 {
		t.Errorf("%d units are counted, want 2", spent(t, now, minute))
	}
}

// The kernel may unlock the files of a process a moment after its end. The counts are not lost.
func TestCountsAreTakenBackOnceTheirFileIsUnlocked(t *testing.T) {
	o, clock := options(t)
	opens := make(chan struct{}, 1<<16)
	o.Now = func() time.Time {
		select {
		case opens <- struct{}{}:
		default:
		}
		return clock.Now()
	}
	now := opened(t, o)
	minute := charge("minute", 10, 60, 1)
	take(t, now, minute)
	offer, err := now.Release()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(o.File)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	for len(opens) > 0 {
		<-opens
	}
	resumed := make(chan error, 1)
	go func() { resumed <- now.Resume(offer) }()
	for range 10 { // the clock is read twice when a store is opened
		select {
		case <-opens:
		case err := <-resumed:
			t.Fatalf("it gave up: %v", err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-resumed; err != nil {
		t.Fatal(err)
	}
	if n := spent(t, now, minute); n != 1 {
		t.Errorf("%d units are counted, want 1", n)
	}
}

// A process whose counts are elsewhere takes over from one that has some: nothing of these stays
// open, so that another server can use them.
func TestCountsThatNobodyContinuesAreReleased(t *testing.T) {
	o, _ := options(t)
	first, old := opened(t, o), process(t, o)
	minute := charge("minute", 10, 60, 1)
	take(t, first, minute)
	handOver(t, first, old)
	handOver(t, old, nil)
	for i, c := range []*Counts{first, old} {
		if err := c.Take(t.Context(), []weir.Charge{minute}, new(weir.Receipt)); err == nil {
			t.Errorf("process %d counts", i)
		}
	}
	if n := spent(t, opened(t, o), minute); n != 1 {
		t.Errorf("%d units are counted, want 1", n)
	}
}

// What a process should never send is an error, and leaves no descriptor open.
func TestOddMessagesAreErrors(t *testing.T) {
	o, _ := options(t)
	old, now := opened(t, o), process(t, o)
	handOver(t, old, now)
	link := old.place.Load().remote.link
	for _, q := range []question{{Op: "odd"}, {Op: opSettle}} {
		var a answer
		if err := errors.Join(link.send(q), link.receive(&a)); err != nil || a.Error == "" {
			t.Errorf("%+v: %+v, %v", q, a, err)
		}
	}
	next, previous := pair(t)
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mine, sent := os.NewFile(uintptr(ends[0]), "mine"), os.NewFile(uintptr(ends[1]), "sent")
	c, err := net.FileConn(mine)
	if err := errors.Join(err, mine.Close(), next.link.sendFile(sent), sent.Close()); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := previous.link.receive(new(step)); err == nil {
		t.Error("a descriptor is taken for a step")
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the descriptor is still open: %v", err)
	}
}

// A process that is killed while it sends its offer takes its guests' connections with it. They
// refuse then, and the next process counts on from the file.
func TestGuestsOfAProcessThatIsKilledRefuse(t *testing.T) {
	o, _ := options(t)
	first, old, now := opened(t, o), process(t, o), process(t, o)
	minute := charge("minute", 10, 60, 3)
	reserved := take(t, first, minute)
	handOver(t, first, old)
	offer, err := old.Release()
	if err != nil {
		t.Fatal(err)
	}
	next, previous := pair(t)
	continued := make(chan error, 1)
	go func() { continued <- previous.Continue(now) }()
	half := sentOffer{Offer: Offer{State: offer.State}, Locked: true, Held: []map[uint64]int64{offer.Guests[0].held}}
	if err := errors.Join(next.AwaitOpen(t.Context()), next.link.send(step{Op: opOffer, Counts: true}), next.link.send(half)); err != nil {
		t.Fatal(err)
	}
	next.link.close()
	offer.drop()
	if err := <-continued; err != nil {
		t.Fatal(err)
	}
	if err := first.Take(t.Context(), []weir.Charge{minute}, new(weir.Receipt)); err == nil {
		t.Error("a guest counts")
	}
	changes := []weir.Change{{Charge: minute, Reset: reserved.Used[0].Reset, Units: -2}}
	if err := first.Settle(t.Context(), &reserved.Ticket, changes); err == nil || changes[0].Done || !changes[0].Lost {
		t.Errorf("a guest settles: %+v, %v", changes, err)
	}
	if n := spent(t, now, minute); n != 3 {
		t.Errorf("%d units are counted, want 3", n)
	}
}

func TestOnlyAChildOfTheSameUserContinues(t *testing.T) {
	from := &inheritance{PID: 100}
	for _, test := range []struct {
		theirs, own, parent int
		ended               bool
		want                string // nothing: it continues
	}{
		{7, 7, 100, false, ""},
		{7, 7, 1, true, ""},
		{7, 7, 101, false, "has started process 101"},
		{7, 0, 100, false, "its user is 7, and that of this process is 0"},
		{0, 7, 1, true, "its user is 0, and that of this process is 7"},
	} {
		err := from.check(test.theirs, test.own, test.parent, func() bool { return test.ended })
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// A socket hangs up when the process at its other end has ended.
func TestTheEndOfAProcessHangsItsSocketUp(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	if hungUp(int32(fds[0]), 0) {
		t.Error("hung up, and both ends are open")
	}
	closed := make(chan error, 1)
	go func() { closed <- unix.Close(fds[1]) }() // perhaps only while the other end is awaited
	if !hungUp(int32(fds[0]), time.Minute) {
		t.Error("not hung up, and the other end is closed")
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
}
