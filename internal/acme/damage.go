package acme

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/weirlimit/weir/internal/owned"
)

// damagedDir is the directory in Options.Dir that damaged files are put into.
const damagedDir = "damaged"

// issueLock is the name of the lock under which certmagic writes the files of a certificate, in
// this server and in others that share the directory.
func issueLock(name string) string { return "issue_cert_" + name }

// errBusy means that another server is writing a certificate, or is still asking for it.
var errBusy = errors.New("another server has the lock of the stored certificate, which cannot be used as it is")

// putAside puts the stored certificate of a name aside, if it cannot be used, so that another is
// obtained. It loads the certificate once more, under the lock of those who write it: what was read
// before may have been the key of one certificate and the chain of another. It waits for the lock
// as long as patience; 0: it does not wait.
//
// The error is nil if the certificate is in use now, fs.ErrNotExist if none is stored now, errBusy
// if another server has the lock, and else why the files cannot be used and are still there. Files
// that cannot be read, such as without permission, are left alone: they may be whole.
func (m *Manager) putAside(ctx context.Context, name string, patience time.Duration) error {
	lock := issueLock(name)
	ok, err := m.files.lockWithin(ctx, lock, patience)
	if err != nil {
		return fmt.Errorf("lock the stored certificate: %w", err)
	}
	if !ok {
		return errBusy
	}
	defer func() { _ = m.files.Unlock(ctx, lock) }() // it is locked
	err = m.load(ctx, name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := m.files.Filename(certmagic.StorageKeys.CertsSitePrefix(m.config.Issuers[0].IssuerKey(), name))
	found, _ := filepath.Glob(filepath.Join(dir, "*")) // a pattern of ours is valid
	for _, file := range found {
		if _, unreadable := os.ReadFile(file); unreadable != nil {
			return err
		}
	}
	if len(found) == 0 || !m.move(dir, "certificate-"+name, "a stored certificate is damaged, and another is obtained", err) {
		return err
	}
	return fs.ErrNotExist
}

// putAsideAccounts puts damaged accounts aside, so that others are registered.
func (m *Manager) putAsideAccounts() {
	accounts, _ := filepath.Glob(filepath.Join(m.options.Dir, "acme", "*", "users", "*"))
	for _, dir := range accounts {
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				break
			}
			block, _ := pem.Decode(b)
			if filepath.Ext(file) == ".json" && !json.Valid(b) || filepath.Ext(file) == ".key" && block == nil {
				m.move(dir, "account-"+filepath.Base(dir), "the stored account of an authority is damaged, and another is registered", nil)
				break
			}
		}
	}
}

// move moves a directory into damagedDir, in place of an earlier one of the name. It reports
// whether it could, and logs what happened, or that it could not.
func (m *Manager) move(dir, name, what string, cause error) bool {
	to := filepath.Join(m.options.Dir, damagedDir, name)
	err := owned.MkdirAll(filepath.Dir(to))
	if err == nil {
		err = os.RemoveAll(to)
	}
	if err == nil {
		err = os.Rename(dir, to)
	}
	if err != nil {
		m.log.Warn("damaged files cannot be put aside: remove them", "directory", dir, "error", err)
		return false
	}
	attributes := []any{"damaged", to}
	if cause != nil {
		attributes = append(attributes, "error", cause)
	}
	m.log.Warn(what, attributes...)
	return true
}
