package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
)

var _ weir.Keeper = (*Store)(nil)

//go:embed reset.lua
var resetText string

//go:embed grant.lua
var grantText string

//go:embed granted.lua
var grantedText string

// Reset implements weir.Keeper: one script deletes the windows, and this process forgets what it
// remembers of them. Another process remembers a refusal for at most a second. If an outage begins
// before that process has asked for the window again, it goes on from the count that it knows, and
// may refuse early. Slots stay held. On a cluster the charges must be of one caller, as in a take.
func (s *Store) Reset(ctx context.Context, charges []weir.Charge) error {
	if !slices.ContainsFunc(charges, func(c weir.Charge) bool { return !c.Held }) {
		return nil
	}
	l := s.link.Load()
	if l == nil {
		return s.notConnected()
	}
	var names, marks []string
	var ids []id
	for i := range charges {
		if charges[i].Held {
			continue
		}
		x := l.hasher.hash(&charges[i])
		name := l.hasher.name(&charges[i], x)
		names, marks, ids = append(names, name), append(marks, name+resetName), append(ids, x.id())
	}
	if l.cluster && !sameSlot(names) {
		return fmt.Errorf("redis %s: reset %d windows: %w: they do not begin with the same key source, and a cluster cannot keep them together", s.addresses, len(charges), weir.ErrCharges)
	}
	if s.leases != nil {
		var hashes [weir.MaxCharges]hash
		var windows []weir.Charge
		for i := range charges {
			if !charges[i].Held {
				hashes[len(windows)] = l.hasher.hash(&charges[i])
				windows = append(windows, charges[i])
			}
		}
		end, err := s.leases.hold(ctx, windows, hashes[:])
		if err != nil {
			return fmt.Errorf("redis %s: reset %d windows: %w", s.addresses, len(charges), err)
		}
		defer end()
	}
	after, end := s.marks.begin()
	defer end()
	for _, i := range ids {
		s.memory.beginSettling(i)
		defer s.memory.endSettling(i)
	}
	if !l.cluster {
		marks = append(marks, s.prefix+allResetsName)
	}
	reply, err := s.run(ctx, l, &l.reset, append(names, marks...), []string{strconv.FormatInt(after, 10)})
	if all, replyErr := reply.AsIntSlice(); err == nil && replyErr == nil && len(all) == len(ids) {
		for i, mark := range all {
			s.marks.noteReset(ids[i], mark)
		}
		err = s.noteResets(ctx, l, all)
	}
	for _, i := range ids { // also if the outcome is unknown: asking the server is always correct
		s.memory.forgetStanding(i)
	}
	if err != nil {
		return fmt.Errorf("redis %s: reset %d windows: %w", s.addresses, len(charges), err)
	}
	return nil
}

// grants is this process's copy of the hash PREFIX:grants on the server. It compares the version
// once a second.
type grants struct {
	now     atomic.Pointer[granted] // nil: no grants
	reading slots                   // a mutex with a context: one read at a time

	version string // of the last read, "" without grants; guarded by reading
	logged  string // the last error that was logged; guarded by reading
}

// A granted is a set of grants. It is immutable.
type granted struct {
	hasher *hasher
	of     map[hash]weir.Grant
	last   int64 // the latest Until of them
}

// Granted implements weir.Keeper. Without grants it costs one atomic load. During an outage the
// last known grants hold.
func (s *Store) Granted(charges []weir.Charge, grants []weir.Grant) bool {
	g := s.grants.now.Load()
	if g == nil {
		return false
	}
	return g.lookUp(s.Now().Unix(), charges, grants)
}

func (g *granted) lookUp(now int64, charges []weir.Charge, grants []weir.Grant) (found bool) {
	if now >= g.last {
		clear(grants[:len(charges)])
		return false
	}
	for i := range charges {
		grants[i] = g.of[g.hasher.hash(&charges[i])]
		if grants[i].Until <= now {
			grants[i] = weir.Grant{}
		}
		found = found || grants[i] != weir.Grant{}
	}
	return found
}

// versionField is the hash field with the version: the mark of the secret that keys the hashes, and
// a random text that is new with each write.
const versionField = "version"

// maxUntil is the latest Until that a grant may have, in the year 2106.
const maxUntil = 1<<32 - 1

// Grant implements weir.Keeper: one script writes all grants or none, and removes those that have
// ended. A grant whose Until has passed is the zero Grant. Grant fails if more than weir.MaxGrants
// would be in force, or if a grant is invalid; then, and if the server returns an error, nothing
// has changed.
func (s *Store) Grant(ctx context.Context, charges []weir.Charge, given []weir.Grant) error {
	if len(charges) != len(given) {
		return fmt.Errorf("redis %s: grant %d windows other limits: got %d grants, one for each window is needed", s.addresses, len(charges), len(given))
	}
	for _, g := range given {
		if g.Limit < 0 || g.Limit > weir.MaxLimit || g.Until < 0 || g.Until > maxUntil {
			return fmt.Errorf("redis %s: grant a limit of %d until second %d: limits from 1 to %d are allowed, 0 to take a grant back, and seconds from 0 to %d",
				s.addresses, g.Limit, g.Until, weir.MaxLimit, int64(maxUntil))
		}
	}
	if err := s.grant(ctx, charges, given); err != nil {
		return fmt.Errorf("redis %s: grant %d windows other limits: %w", s.addresses, len(charges), err)
	}
	return nil
}

func (s *Store) grant(ctx context.Context, charges []weir.Charge, given []weir.Grant) error {
	if err := s.grants.reading.acquire(ctx); err != nil {
		return err
	}
	defer s.grants.reading.release()
	l := s.link.Load()
	if l == nil {
		return s.notConnected()
	}
	reply, err := s.send(ctx, l, &l.grant, []string{s.prefix + grantsName}, l.grantArguments(charges, given))
	if err != nil {
		return err
	}
	return s.readGrants(l, reply)
}

const grantsName = ":grants" // after the prefix

func (l *link) grantArguments(charges []weir.Charge, given []weir.Grant) []string {
	args := make([]string, 0, 3+3*len(charges))
	args = append(args, l.hasher.mark, rand.Text(), strconv.Itoa(weir.MaxGrants))
	for i := range charges {
		args = append(args, l.hasher.hash(&charges[i]).text(), strconv.FormatInt(given[i].Limit, 10), strconv.FormatInt(given[i].Until, 10))
	}
	return args
}

// refreshGrants reads the grants if they have changed since the last read. If it fails, the known
// grants stay in force.
func (s *Store) refreshGrants(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	l := s.link.Load()
	if l == nil || s.grants.reading.acquire(ctx) != nil {
		return
	}
	defer s.grants.reading.release()
	// counts begin anew, and so do grants
	if g := s.grants.now.Load(); g != nil && g.hasher.mark != l.hasher.mark {
		s.grants.now.Store(nil)
		s.grants.version = ""
	}
	err := classified(s.readChanged(ctx, l))
	_, answered := rueidis.IsRedisErr(err) // otherwise the error is reported elsewhere
	switch {
	case err == nil:
		s.grants.logged = ""
	case (answered || lasting(err) || errors.Is(err, errReply)) && s.grants.logged != err.Error():
		s.grants.logged = err.Error()
		s.log.Error("cannot read the grants: the last known ones apply until they end", "store", s.addresses, "error", err)
	}
}

func (s *Store) readChanged(ctx context.Context, l *link) error {
	name := s.prefix + grantsName
	reply, err := s.do(ctx, l, l.client.B().Hget().Key(name).Field(versionField).Build())
	if err != nil {
		return err
	}
	version, err := reply.ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return err
	}
	if version == s.grants.version {
		return nil
	}
	if reply, err = s.send(ctx, l, &l.granted, []string{name}, []string{strconv.Itoa(weir.MaxGrants)}); err != nil {
		return err
	}
	return s.readGrants(l, reply)
}

// readGrants puts the server's grants in force.
func (s *Store) readGrants(l *link, reply rueidis.RedisResult) error {
	all, err := reply.AsStrSlice()
	if err != nil {
		return err
	}
	if len(all)%2 != 0 {
		return errReply
	}
	g := &granted{hasher: l.hasher, of: make(map[hash]weir.Grant, len(all)/2)}
	version, foreign := "", 0
	for i := 0; i < len(all); i += 2 {
		if all[i] == versionField {
			version = all[i+1]
			continue
		}
		of, grant, ok := parseGrant(all[i], all[i+1])
		if !ok {
			foreign++
			continue
		}
		g.of[of] = grant
		g.last = max(g.last, grant.Until)
	}
	if foreign > 0 {
		s.log.Warn("another program writes to the hash of the grants: its fields are ignored", "store", s.addresses, "key", s.prefix+grantsName, "fields", foreign)
	}
	// hashes of another secret match no caller
	if len(g.of) == 0 || !strings.HasPrefix(version, l.hasher.mark) {
		g = nil
	}
	s.grants.version = version
	s.grants.now.Store(g)
	return nil
}

// text is the form of a hash on the server.
func (x hash) text() string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], x.hi)
	binary.BigEndian.PutUint64(raw[8:], x.lo)
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// parseGrant reads a field that grant.lua has written.
func parseGrant(field, value string) (of hash, g weir.Grant, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(field)
	if err != nil || len(raw) != 16 {
		return of, g, false
	}
	limit, until, _ := strings.Cut(value, " ")
	var bad error
	if g.Limit, err = strconv.ParseInt(limit, 10, 64); err == nil {
		g.Until, bad = strconv.ParseInt(until, 10, 64)
	}
	if err != nil || bad != nil || g.Limit < 1 || g.Limit > weir.MaxLimit || g.Until < 1 || g.Until > maxUntil {
		return of, weir.Grant{}, false
	}
	return hash{binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])}, g, true
}
