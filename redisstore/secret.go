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
	minSecret = 32 // bytes
	// secretLasts is how long the server keeps the secret after a process has last read it: longer
	// than any counter.
	secretLasts = 40 * 24 * time.Hour
)

// The value of PREFIX:secret begins with one of these: the secret itself follows if a process has
// generated it, else the mark of the secret that an operator has given.
const (
	generated = "secret:"
	given     = "mark:"
)

// agree makes all processes hash with one secret (D18: keys are hashed with a secret), and puts
// client in force with it. The first process writes its own, atomically. A process that finds
// another one uses it if its own was generated, and fails if its own was given. On a server that
// was emptied, agree writes the secret again.
func (s *Store) agree(ctx context.Context, client rueidis.Client) error {
	name := s.prefix + ":secret"
	if s.mark == "" {
		s.mark = s.ownMark()
	}
	var found string
	for range 3 { // the key can vanish between the two commands
		set := client.B().Set().Key(name).Value(s.mark).Nx().Ex(secretLasts).Build()
		if err := client.Do(ctx, set).Error(); err != nil && !rueidis.IsRedisNil(err) {
			return s.diagnosed(ctx, client, err)
		}
		get := client.B().Getex().Key(name).Ex(secretLasts).Build()
		var err error
		if found, err = client.Do(ctx, get).ToString(); err == nil {
			break
		} else if !rueidis.IsRedisNil(err) {
			return s.diagnosed(ctx, client, err)
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
		s.log.Warn("the server's secret has changed, as after a loss of its data: this process uses the new secret, and windows start from zero", "store", s.addresses)
	}
	s.secret, s.mark = secret, found
	s.adopt(client)
	return nil
}

// ownMark returns what to write to a server without a secret.
func (s *Store) ownMark() string {
	if s.options.Secret != nil {
		return given + newHasher(s.prefix, s.options.Secret).mark
	}
	var made [minSecret]byte
	rand.Read(made[:])
	return generated + base64.RawStdEncoding.EncodeToString(made[:])
}

// secretOf returns the secret to use with a server that has the value found.
func (s *Store) secretOf(found string) ([]byte, error) {
	own := s.options.Secret
	encoded, isGenerated := strings.CutPrefix(found, generated)
	mark, isMark := strings.CutPrefix(found, given)
	switch {
	case isGenerated:
		secret, err := base64.RawStdEncoding.DecodeString(encoded)
		if err != nil || len(secret) < minSecret {
			return nil, fmt.Errorf("%w: %s:secret holds something else; delete it if nothing of yours is counted there", ErrSecret, s.prefix)
		}
		if own != nil && !bytes.Equal(secret, own) {
			return nil, fmt.Errorf("%w, one that a process generated: leave the secret out, or delete %s:secret when no process uses it", ErrSecret, s.prefix)
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
