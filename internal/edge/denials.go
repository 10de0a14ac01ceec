package edge

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
)

// The labels by which secrets are derived from that of a shared store.
const (
	valueLabel  = "agents in the access log" // and parameters of routes
	loggedLabel = "callers in the access log"
)

// openDenials seals the facts of each refusal into the id that its 429 carries, and keys the hashes
// of agents in the access log. The secrets are those that the nodes of a shared store have in
// common, or derived from a key in the data directory.
func openDenials(o *observing) error {
	var sealing func() []byte
	if o.store.secret != nil {
		sealing = o.store.secret(denial.Label)
		o.hooks.derive = func(label string) (func() []byte, error) { return o.store.secret(label), nil }
	} else {
		key, err := o.denialKey()
		if err != nil {
			return err
		}
		sealing = func() []byte { return key }
		o.hooks.derive = func(label string) (func() []byte, error) {
			derived, err := hkdf.Key(sha256.New, key, nil, "weir "+label, 16)
			if err != nil {
				return nil, fmt.Errorf("derive the key of %s: %w", label, err)
			}
			return func() []byte { return derived }, nil
		}
	}
	values, err := o.hooks.derive(valueLabel)
	if err != nil {
		return err
	}
	callers, err := o.hooks.derive(loggedLabel)
	if err != nil {
		return err
	}
	version := new(atomic.Pointer[string]) // of the policy in force
	version.Store(new(string))
	sealer, err := denial.New(sealing, func() string { return *version.Load() }, rand.Reader, nil)
	if err != nil {
		return cli.Fail(err, "")
	}
	h := o.hooks
	h.denial = sealer.ID
	h.policies = append(h.policies, func(s live.State) { version.Store(&s.Version) })
	h.gateway = append(h.gateway, func(g *gateway.Options) {
		g.Denial, g.ValueHash, g.CallerHash = sealer.ID, valueHash(values), keyedHash(callers)
	})
	h.admin = append(h.admin, func(a *admin.Options) { a.Denials = sealer.Open })
	return nil
}

// denialKey returns the key in the data directory. It makes one if there is none.
func (o *observing) denialKey() ([]byte, error) {
	path := filepath.Join(absolute(o.Data), denialKeyFile)
	key, err := keptKey(path, rand.Reader)
	var wrong *wrongKeyError
	if errors.As(err, &wrong) {
		return nil, cli.Fail(err, "put the right file back, or remove this one: then a new key is made, and ids that were given before can no longer be opened")
	}
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("keep the key of denial ids: %w", err), DataHint(err))
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		o.Log.Warn("other users can read the key of denial ids, and so who was refused: chmod 600 it", "file", path, "mode", info.Mode().Perm())
	}
	return key, nil
}

// valueHash is keyedHash for agents and for parameters of routes.
func valueHash(secret func() []byte) func(value string) (hash uint64, ok bool) {
	hash := keyedHash(secret)
	return func(value string) (uint64, bool) {
		return hash(unsafe.Slice(unsafe.StringData(value), len(value))) // read only
	}
}

// keyedHash returns the keyed hash of agents or callers in the access log (D18: no caller is named
// in a log). It is the same on all nodes that share a store, and otherwise as long as the data
// directory keeps its key, so that a log can be replayed. secret returns fewer than 16 bytes while
// it is not known.
func keyedHash(secret func() []byte) func(of []byte) (hash uint64, ok bool) {
	return func(of []byte) (uint64, bool) {
		key := secret()
		if len(key) < 16 {
			return 0, false
		}
		return siphash.Hash(binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:]), of), true
	}
}
