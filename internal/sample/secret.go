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

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// secretFile holds the secret that signs sessions, in hexadecimal digits: text that `weir serve --jwt-key` reads too.
const secretFile = "session.key"

// sessionSecret returns the data directory's secret, and makes it where there is none. However many processes ask at
// once, all get the same one: whoever makes it holds the database's write lock, and it appears whole or not at all.
func sessionSecret(ctx context.Context, db *sqlite.DB, dir string) (secret []byte, err error) {
	path := filepath.Join(dir, secretFile)
	if secret, err = readSecret(path); !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	err = db.Alone(ctx, func() error {
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

// readSecret refuses a secret that others can read, or that is too short to be one.
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
		return nil, err
	}
	secret = bytes.TrimSuffix(secret, []byte("\n"))
	if len(secret) < 32 {
		return nil, fmt.Errorf("session secret %s has %d bytes, fewer than 32: put a copy in its place, or remove it for a new one (which ends all sessions)", path, len(secret))
	}
	return secret, nil
}

// writeSecret puts 256 random bits at path in one step. A file that a killed process left half-written is in its way
// only until here.
func writeSecret(path string) (err error) {
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	var secret [32]byte
	rand.Read(secret[:]) // never fails
	_, err = f.WriteString(hex.EncodeToString(secret[:]) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path)) // so that the name survives a power cut too
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
