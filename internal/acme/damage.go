package acme

import (
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"

	"github.com/caddyserver/certmagic"
)

// damagedDir is the directory in Options.Dir that damaged files are put into.
const damagedDir = "damaged"

// putAside puts the stored certificate of a name aside, so that another is obtained. err is why it
// cannot be used. It reports false if its files cannot be read, such as without permission: then
// they may be whole.
func (m *Manager) putAside(name string, err error) bool {
	dir := m.files.Filename(certmagic.StorageKeys.CertsSitePrefix(m.config.Issuers[0].IssuerKey(), name))
	found, _ := filepath.Glob(filepath.Join(dir, "*")) // a pattern of ours is valid
	for _, file := range found {
		if _, err := os.ReadFile(file); err != nil {
			return false
		}
	}
	if len(found) == 0 {
		return false
	}
	return m.move(dir, "certificate-"+name, "a stored certificate is damaged, and another is obtained", err)
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
	err := os.MkdirAll(filepath.Dir(to), 0o700)
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
