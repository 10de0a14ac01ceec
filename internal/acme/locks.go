package acme

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/gofrs/flock"

	"github.com/weirlimit/weir/internal/owned"
)

// A storage is the directory of a Manager, with locks of the system instead of certmagic's: what a
// killed process held is free at once. It is safe for concurrent use.
type storage struct {
	*certmagic.FileStorage

	mu   sync.Mutex
	held map[string]*flock.Flock // by name; each has a descriptor of its own
}

// Store implements certmagic.Storage. It replaces the file atomically. Other servers may store the
// same file at that moment.
func (s *storage) Store(_ context.Context, key string, value []byte) error {
	path := s.Filename(key)
	if err := owned.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := owned.Create(path + ".new-" + rand.Text())
	if err != nil {
		return err
	}
	_, err = f.Write(value)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// lockRetry is how often a lock that another holds is tried.
const lockRetry = 200 * time.Millisecond

// Lock implements certmagic.Locker.
func (s *storage) Lock(ctx context.Context, name string) error {
	f, err := s.lockFile(name)
	if err != nil {
		return err
	}
	ok, err := f.TryLockContext(ctx, lockRetry)
	return s.hold(name, f, ok, err)
}

// TryLock implements certmagic.TryLocker.
func (s *storage) TryLock(_ context.Context, name string) (bool, error) {
	f, err := s.lockFile(name)
	if err != nil {
		return false, err
	}
	ok, err := f.TryLock()
	return ok, s.hold(name, f, ok, err)
}

// lockWithin is Lock for a caller that waits only so long; 0: it does not wait. It reports false if
// another holds the lock all the while.
func (s *storage) lockWithin(ctx context.Context, name string, patience time.Duration) (bool, error) {
	ok, err := s.TryLock(ctx, name)
	if ok || err != nil || patience == 0 {
		return ok, err
	}
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = s.Lock(patient, name)
	if patient.Err() != nil && ctx.Err() == nil && err != nil {
		return false, nil
	}
	return err == nil, err
}

func (s *storage) lockFile(name string) (*flock.Flock, error) {
	path := filepath.Join(s.Path, "locks", certmagic.StorageKeys.Safe(name)+".lock")
	if err := owned.MkdirAll(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := owned.Make(path); err != nil {
		return nil, err
	}
	return flock.New(path, flock.SetPermissions(0o600)), nil
}

// hold keeps a lock that was taken, until Unlock.
func (s *storage) hold(name string, f *flock.Flock, ok bool, err error) error {
	if !ok {
		_ = f.Close() // it holds nothing
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = f
	return nil
}

// Unlock implements certmagic.Locker. The file stays, since another process may wait for it.
func (s *storage) Unlock(_ context.Context, name string) error {
	s.mu.Lock()
	f := s.held[name]
	delete(s.held, name)
	s.mu.Unlock()
	if f == nil {
		return fmt.Errorf("unlock %q: it is not locked", name)
	}
	return f.Close()
}
