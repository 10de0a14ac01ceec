package acme

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/gofrs/flock"
)

// A storage is the directory of a Manager, with locks of the system instead of certmagic's: what a
// killed process held is free at once. It is safe for concurrent use.
type storage struct {
	*certmagic.FileStorage

	mu   sync.Mutex
	held map[string]*flock.Flock // by name; each has a descriptor of its own
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
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
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
