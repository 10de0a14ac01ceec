package sample

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirlimit/weir/internal/owned"
	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// secretFile is the file of the secret that signs sessions, in hexadecimal digits. `weir serve
// --jwt-key` can read it too.
const secretFile = "session.key"

// sessionSecret returns the data directory's secret, and creates a missing one. Concurrent
// processes all get the same secret: it is created under the database's write lock and appears
// atomically.
func sessionSecret(ctx context.Context, db *sqlite.DB, dir string) (secret []byte, err error) {
	path := filepath.Join(dir, secretFile)
	if secret, err = readSecret(path); !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	err = db.WithWriteLock(ctx, func() error {
		if secret, err = readSecret(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := writeSecret(path); err != nil {
			return fmt.Errorf("make session secret %s: %w", path, err)
		}
		secret, err = readSecret(path)
		return err
	})
	return secret, err
}

// readSecret reads the secret. It refuses a file that others can read or that is too short.
func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("session secret %s has mode %04o, so that others can read it: chmod 600 it, or remove it for a new one (which ends all sessions)", path, mode)
	}
	secret, err := os.ReadFile(path)
	if err != nil {
		return nil, owned.Explain(err)
	}
	secret = bytes.TrimSuffix(secret, []byte("\n"))
	if len(secret) < 32 {
		return nil, fmt.Errorf("session secret %s has %d bytes, fewer than 32: put a copy in its place, or remove it for a new one (which ends all sessions)", path, len(secret))
	}
	return secret, nil
}

// writeSecret atomically creates path with 256 random bits.
func writeSecret(path string) error {
	var secret [32]byte
	rand.Read(secret[:]) // never fails
	return owned.Replace(path, []byte(hex.EncodeToString(secret[:])+"\n"))
}
