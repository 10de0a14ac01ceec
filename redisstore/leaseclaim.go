package redisstore

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// A take can be refused while other processes hold leased units of its windows. So the process that
// was refused claims these windows on the server, if units of them were leased at all. The others
// look at the claims once a second, and give back what they hold of them. Nothing waits for that:
// the refusal stands, and the caller's next request finds the units. A process that leases nothing
// claims as well, while others do.

//go:embed claim.lua
var claimText string

const (
	// leasedName follows a window's name in the name of the mark that lease.lua sets when it grants
	// units of the window. The mark expires with the window.
	leasedName = ":leased"
	claimsName = ":claims" // after the prefix
	// leasingName, after the prefix, is of a mark that says that some process holds units.
	leasingName  = ":leasing"
	leasingLasts = time.Minute

	claimLasts = 3 * time.Second // a process that looks once a second finds it
	maxClaims  = 1000
	// maxClaiming is how many windows may wait to be claimed. One more is not: its caller's next
	// refusal claims it.
	maxClaiming = 256
)

// claims are the windows that this process is about to claim.
type claims chan string

// claim claims the windows that have refused a take, later. It does not block.
func (waiting claims) claim(t *leaseTake) {
	for i := range t.charges {
		c, used := &t.charges[i], t.r.Used[i]
		if c.Held || c.Cost == 0 || used.Fits(c.Cost, c.Limit) || t.watches[i].spendsAlone(t.hashes[i], used) {
			continue
		}
		select {
		case waiting <- t.names[i]:
		default:
		}
	}
}

// sendClaims sends what is to be claimed until the store is closed.
func (s *Store) sendClaims() {
	for {
		var names []string
		select {
		case <-s.closing.Done():
			return
		case name := <-s.claims:
			names = append(names, name)
		}
		for more := true; more && len(names) < maxPipeline; {
			select {
			case name := <-s.claims:
				names = append(names, name)
			default:
				more = false
			}
		}
		if l := s.link.Load(); l != nil {
			s.sendClaim(l, names)
		}
	}
}

// sendClaim claims those of some windows of which units were leased. If it fails, they are claimed
// at the next refusal.
func (s *Store) sendClaim(l *link, names []string) {
	ctx, cancel := context.WithTimeout(s.closing, checkTimeout)
	defer cancel()
	marks := make([]rueidis.Completed, len(names))
	for i, name := range names {
		marks[i] = l.client.B().Pttl().Key(name + leasedName).Build()
	}
	args := []string{strconv.FormatInt(claimLasts.Milliseconds(), 10), strconv.Itoa(maxClaims)}
	before := len(args)
	for i, reply := range l.client.DoMulti(ctx, marks...) {
		if left, err := reply.AsInt64(); err == nil && left > 0 {
			args = append(args, names[i])
		}
	}
	if len(args) == before {
		return
	}
	if _, err := s.send(ctx, l, &l.claim, []string{s.prefix + claimsName}, args); err == nil {
		s.claimed.Add(int64(len(args) - before))
	}
}

// mayClaim reports whether other processes may hold units.
func (s *Store) mayClaim() bool { return s.leases != nil || s.othersLease.Load() }

// tellLeasing says that some process holds units. If it fails, it is said again in a while.
func (s *Store) tellLeasing() {
	l := s.link.Load()
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.closing, checkTimeout)
	defer cancel()
	_, _ = s.do(ctx, l, l.client.B().Set().Key(s.prefix+leasingName).Value("1").Px(leasingLasts).Build())
}

// lookAtClaims gives back what this process holds of windows that others have claimed. A process
// that leases nothing looks whether others do.
func (s *Store) lookAtClaims(ctx context.Context, l *link) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if s.leases == nil {
		if reply, err := s.do(ctx, l, l.client.B().Get().Key(s.prefix+leasingName).Build()); err == nil {
			switch err := reply.Error(); {
			case err == nil:
				s.othersLease.Store(true)
			case rueidis.IsRedisNil(err):
				s.othersLease.Store(false)
			}
		}
		return
	}
	held := s.leases.active.list()
	if len(held) == 0 {
		return
	}
	if s.local()-s.toldLeasing > int64(leasingLasts/3) {
		s.done.Go(s.tellLeasing) // on a cluster its machine may hang, and that of the claims not
		s.toldLeasing = s.local()
	}
	reply, err := s.do(ctx, l, l.client.B().Zrange().Key(s.prefix+claimsName).Min("0").Max("-1").Build())
	if err != nil {
		return
	}
	names, err := reply.AsStrSlice()
	if err != nil || len(names) == 0 {
		return
	}
	claimed := make(map[string]bool, len(names))
	for _, name := range names {
		claimed[name] = true
	}
	var back []*leased
	for _, e := range held {
		if at := e.place.Load(); at != nil && claimed[at.name] {
			back = append(back, e)
		}
	}
	s.leases.returnThese(ctx, back)
}
