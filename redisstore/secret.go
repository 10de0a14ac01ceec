package redisstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

const (
	leastSecret = 32 // bytes
	// secretLasts is how long the server keeps the secret after the last process has looked at it: longer than any counter.
	secretLasts = 40 * 24 * time.Hour
)

// What the server has under PREFIX:secret is either the secret itself, where a process had to make one up, or a mark of the
// one that an operator gave.
const (
	madeUp = "secret:"
	given  = "mark:"
)

// agree sees to it that all processes hash with one secret (D18), and puts client in force with it. The first process writes
// its own, atomically; whoever finds another takes it over where it made its own up, and refuses to go on where it was given
// one. A server that was emptied is told again.
func (s *Store) agree(ctx context.Context, client rueidis.Client) error {
	name := s.prefix + ":secret"
	if s.mark == "" {
		s.mark = s.ownMark()
	}
	var found string
	for range 3 { // it can vanish in between
		set := client.B().Set().Key(name).Value(s.mark).Nx().Ex(secretLasts).Build()
		if err := client.Do(ctx, set).Error(); err != nil && !rueidis.IsRedisNil(err) {
			return s.denied(ctx, client, err)
		}
		get := client.B().Getex().Key(name).Ex(secretLasts).Build()
		var err error
		if found, err = client.Do(ctx, get).ToString(); err == nil {
			break
		} else if !rueidis.IsRedisNil(err) {
			return s.denied(ctx, client, err)
		}
	}
	secret, err := s.secretOf(found)
	if err != nil {
		return err
	}
	l := s.link.Load()
	if l != nil && l.client == client && bytes.Equal(secret, s.secret) {
		return nil
	}
	if s.secret != nil && !bytes.Equal(secret, s.secret) {
		s.log.Warn("the server has another secret than before, as after it was emptied: it is taken over, and windows begin anew", "store", s.where)
	}
	s.secret, s.mark = secret, found
	s.adopt(client)
	return nil
}

// ownMark is what to write where the server has nothing.
func (s *Store) ownMark() string {
	if s.options.Secret != nil {
		return given + newHasher(s.prefix, s.options.Secret).mark
	}
	var made [leastSecret]byte
	rand.Read(made[:])
	return madeUp + base64.RawStdEncoding.EncodeToString(made[:])
}

// secretOf returns the secret to use where the server has found.
func (s *Store) secretOf(found string) ([]byte, error) {
	own := s.options.Secret
	encoded, isMadeUp := strings.CutPrefix(found, madeUp)
	mark, isMark := strings.CutPrefix(found, given)
	switch {
	case isMadeUp:
		secret, err := base64.RawStdEncoding.DecodeString(encoded)
		if err != nil || len(secret) < leastSecret {
			return nil, fmt.Errorf("%w: %s:secret holds something else; delete it if nothing of yours is counted there", ErrSecret, s.prefix)
		}
		if own != nil && !bytes.Equal(secret, own) {
			return nil, fmt.Errorf("%w, one that was made up on the server: leave the secret out, or delete %s:secret when no process uses it", ErrSecret, s.prefix)
		}
		return secret, nil
	case isMark && own == nil:
		return nil, fmt.Errorf("%w, one that its operator gave: give the same to this process, or another prefix", ErrSecret)
	case isMark && mark == newHasher(s.prefix, own).mark:
		return own, nil
	case isMark:
		return nil, fmt.Errorf("%w than the one that was given here: give all processes the same, or another prefix", ErrSecret)
	}
	return nil, fmt.Errorf("%w: %s:secret holds something else; delete it if nothing of yours is counted there", ErrSecret, s.prefix)
}
