package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
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

// Reset implements weir.Keeper: one script deletes the windows, and this process forgets what it remembers of them. Other processes
// remember a refusal for a second at most; where an outage begins before one of them has asked for the window again, it goes
// on from the count that it knows, and refuses early. On a cluster the charges must be of one caller, as those of a take.
func (s *Store) Reset(ctx context.Context, charges []weir.Charge) error {
	if len(charges) == 0 {
		return nil
	}
	l := s.link.Load()
	if l == nil {
		return s.unready()
	}
	names, ids := make([]string, len(charges)), make([]id, len(charges))
	for i := range charges {
		x := l.hasher.hash(&charges[i])
		names[i], ids[i] = l.hasher.name(&charges[i], x), x.id()
	}
	if l.cluster && !sameSlot(names) {
		return fmt.Errorf("redis %s: reset %d windows: %w: they do not begin with the same key source, and a cluster keeps only such together", s.where, len(charges), weir.ErrCharges)
	}
	_, err := s.run(ctx, l, &l.reset, names, nil)
	for _, i := range ids { // also where it is unknown whether they are gone: to ask is never wrong
		s.memory.forget(i)
		s.memory.drop(i)
	}
	if err != nil {
		return fmt.Errorf("redis %s: reset %d windows: %w", s.where, len(charges), err)
	}
	return nil
}

// grants are what this process knows of the hash PREFIX:grants on the server. Its version is asked for once a second.
type grants struct {
	now     atomic.Pointer[granted] // nil: there are none
	reading room                    // of one: what is read last is what holds

	version string // of what was read last; empty: there were none. Whoever is in the room has it
	said    string // the last error that an operator was told of; the same
}

// granted is the grants at one time. It is immutable.
type granted struct {
	hasher *hasher
	of     map[hash]weir.Grant
	last   int64 // when the last of them ends
}

// Granted implements weir.Keeper. While nobody has a grant it is one load. Until the server answers again what it last said holds.
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

// versionField is the field that says which grants these are: the mark of the secret that they are hashed with, and what is new with
// each write.
const versionField = "version"

// mostSecond is the latest Until that a grant may have, in the year 2106.
const mostSecond = 1<<32 - 1

// Grant implements weir.Keeper: one script gives all or none, and removes the grants that have ended. A grant whose Until is not to
// come is the zero Grant. It errs where more than weir.MaxGrants would be in force and where a grant cannot be one; then, and where
// the server says no, nothing has changed.
func (s *Store) Grant(ctx context.Context, charges []weir.Charge, given []weir.Grant) error {
	if len(charges) != len(given) {
		return fmt.Errorf("redis %s: grant %d windows other limits: %d grants, as many as windows are needed", s.where, len(charges), len(given))
	}
	for _, g := range given {
		if g.Limit < 0 || g.Limit > weir.MaxLimit || g.Until < 0 || g.Until > mostSecond {
			return fmt.Errorf("redis %s: grant a limit of %d until second %d: limits from 1 to %d are allowed, 0 to take a grant back, and seconds from 0 to %d",
				s.where, g.Limit, g.Until, weir.MaxLimit, int64(mostSecond))
		}
	}
	if err := s.grant(ctx, charges, given); err != nil {
		return fmt.Errorf("redis %s: grant %d windows other limits: %w", s.where, len(charges), err)
	}
	return nil
}

func (s *Store) grant(ctx context.Context, charges []weir.Charge, given []weir.Grant) error {
	if err := s.grants.reading.enter(ctx); err != nil {
		return err
	}
	defer s.grants.reading.leave()
	l := s.link.Load()
	if l == nil {
		return s.unready()
	}
	reply, err := s.send(ctx, l, &l.grant, []string{s.prefix + grantsName}, l.grantArguments(charges, given))
	if err != nil {
		return err
	}
	return s.readGrants(l, reply)
}

const grantsName = ":grants" // behind the prefix

func (l *link) grantArguments(charges []weir.Charge, given []weir.Grant) []string {
	args := make([]string, 0, 3+3*len(charges))
	args = append(args, l.hasher.mark, rand.Text(), strconv.Itoa(weir.MaxGrants))
	for i := range charges {
		args = append(args, l.hasher.hash(&charges[i]).text(), strconv.FormatInt(given[i].Limit, 10), strconv.FormatInt(given[i].Until, 10))
	}
	return args
}

// lookAtGrants reads the grants where they have changed since they were read last. What cannot be read leaves those in force that
// are known.
func (s *Store) lookAtGrants(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	l := s.link.Load()
	if l == nil || s.grants.reading.enter(ctx) != nil {
		return
	}
	defer s.grants.reading.leave()
	if g := s.grants.now.Load(); g != nil && g.hasher.mark != l.hasher.mark { // counts begin anew, and so do these
		s.grants.now.Store(nil)
		s.grants.version = ""
	}
	err := explained(s.readChanged(ctx, l))
	_, answered := rueidis.IsRedisErr(err) // else others say that it does not
	switch {
	case err == nil:
		s.grants.said = ""
	case (answered || lasting(err) || errors.Is(err, errReply)) && s.grants.said != err.Error():
		s.grants.said = err.Error()
		s.log.Error("the grants cannot be read: the last known ones hold until they end", "store", s.where, "error", err)
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

// readGrants puts the grants in force that the server has.
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
		who, grant, ok := parseGrant(all[i], all[i+1])
		if !ok {
			foreign++
			continue
		}
		g.of[who] = grant
		g.last = max(g.last, grant.Until)
	}
	if foreign > 0 {
		s.log.Warn("something else writes among the grants: what is none of ours is left out", "store", s.where, "key", s.prefix+grantsName, "fields", foreign)
	}
	if len(g.of) == 0 || !strings.HasPrefix(version, l.hasher.mark) { // with another secret they are nobody's
		g = nil
	}
	s.grants.version = version
	s.grants.now.Store(g)
	return nil
}

// text is how the server has a hash.
func (x hash) text() string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], x.hi)
	binary.BigEndian.PutUint64(raw[8:], x.lo)
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// parseGrant reads what grant.lua wrote.
func parseGrant(field, value string) (who hash, g weir.Grant, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(field)
	if err != nil || len(raw) != 16 {
		return who, g, false
	}
	limit, until, _ := strings.Cut(value, " ")
	var bad error
	if g.Limit, err = strconv.ParseInt(limit, 10, 64); err == nil {
		g.Until, bad = strconv.ParseInt(until, 10, 64)
	}
	if err != nil || bad != nil || g.Limit < 1 || g.Limit > weir.MaxLimit || g.Until < 1 || g.Until > mostSecond {
		return who, weir.Grant{}, false
	}
	return hash{binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])}, g, true
}
