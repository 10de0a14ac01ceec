package acme

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Run gets the certificates that are missing, and renews all in time, until ctx ends. The
// authority connects to Listen and Redirect meanwhile. What fails is tried again after longer and
// longer pauses.
func (m *Manager) Run(ctx context.Context) {
	var missing sync.WaitGroup
	for _, name := range m.options.Names {
		if m.current(name) == nil {
			missing.Go(func() { m.obtain(ctx, name) })
		}
	}
	// The next look is a minute away. Its error is always nil.
	_ = m.cache.RenewManagedCertificates(ctx)
	missing.Wait()
	<-ctx.Done()
}

// The pauses after a failure before the authority was asked, such as a directory that is read-only.
// Certmagic itself repeats what fails at the authority, and has pauses of its own.
const firstPause, longestPause = time.Minute, time.Hour

// obtain returns when a name has its first certificate, or when ctx ends.
func (m *Manager) obtain(ctx context.Context, name string) {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = firstPause, longestPause
	// The error is that of ctx.
	_, _ = backoff.Retry(ctx, func() (none struct{}, err error) {
		switch err = m.try(ctx, name); {
		case err == nil:
			m.succeeded(name) // perhaps with what another server has obtained
		case ctx.Err() == nil:
			m.failed(name, err)
		}
		return none, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0))
}

// try gets the first certificate of a name, and asks the authority for at most one. It takes as
// long as certmagic repeats the attempt: weeks.
func (m *Manager) try(ctx context.Context, name string) error {
	if err := m.stored(ctx, name, firstPause); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.config.ObtainCertAsync(ctx, name); err != nil {
		return err
	}
	if err := m.load(ctx, name); err != nil {
		return fmt.Errorf("use the certificate that was issued: %w", err)
	}
	return nil
}

// stored loads the stored certificate of a name, and puts it aside if it is damaged (putAside). The
// error is fs.ErrNotExist if there is none, or none any more.
func (m *Manager) stored(ctx context.Context, name string, patience time.Duration) error {
	err := m.load(ctx, name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return m.putAside(ctx, name, patience)
}

// load makes the stored certificate of a name the one that clients get. The error is fs.ErrNotExist
// if there is none.
func (m *Manager) load(ctx context.Context, name string) error {
	_, err := m.config.CacheManagedCertificate(ctx, name)
	return err
}
