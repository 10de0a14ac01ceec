package main

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	endian "encoding/binary" // "binary" is a name of the tests
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
)

// denials seal the facts of each refusal into the id that its 429 carries.
type denials struct {
	*denial.Sealer
	shared func() []byte          // the secret of all nodes that share a store; nil: there is none
	agents func() []byte          // keys the hashes of agents in the access log; nil: the data directory's key does
	policy atomic.Pointer[string] // the version of the one in force
}

// denialLabel is what the secret of ids is derived by from that of a shared store.
const denialLabel = "denial ids"

// open makes o give 429s ids, by the secret that the nodes of a shared store have in common, or by one in the data directory.
func (d *denials) open(f *serveFlags, p weir.Policy, log *slog.Logger, o *gateway.Options) error {
	secret := d.shared
	if secret == nil {
		path := filepath.Join(absolute(f.data), denialKeyFile)
		key, err := keptKey(path, rand.Reader)
		var wrong *wrongKeyError
		if errors.As(err, &wrong) {
			return cli.Fail(err, "put the right file back, or remove this one: then a new key is made, and ids that were given before can no longer be opened")
		}
		if err != nil {
			return cli.Fail(fmt.Errorf("keep the key of denial ids: %w", err), dataHint)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
			log.Warn("others can read the key of denial ids, and with it who was refused: chmod 600 it", "file", path, "mode", info.Mode().Perm())
		}
		secret = func() []byte { return key }
	}
	version := live.Version(p)
	d.policy.Store(&version)
	var err error
	if d.Sealer, err = denial.New(secret, func() string { return *d.policy.Load() }, rand.Reader); err != nil {
		return cli.Fail(err, "")
	}
	o.Denial = d.ID
	o.AgentHash, err = d.agentHash(secret)
	return err
}

// agentLabel is what the key of agents in the access log is derived by.
const agentLabel = "agents in the access log"

// agentHash returns the keyed hash of agents in the access log (D18). It is the same on all nodes
// that share a store, else for as long as the data directory keeps its key, so that a log can be
// replayed. kept is that directory's key.
func (d *denials) agentHash(kept func() []byte) (func(agent string) (uint64, bool), error) {
	secret := d.agents
	if secret == nil {
		key, err := hkdf.Key(sha256.New, kept(), nil, "weir "+agentLabel, 16)
		if err != nil {
			return nil, fmt.Errorf("derive the key of agents in the access log: %w", err)
		}
		secret = func() []byte { return key }
	}
	return func(agent string) (uint64, bool) {
		key := secret()
		if len(key) < 16 { // a shared store that has not told its secret yet
			return 0, false
		}
		bytes := unsafe.Slice(unsafe.StringData(agent), len(agent)) // read only
		return siphash.Hash(endian.LittleEndian.Uint64(key), endian.LittleEndian.Uint64(key[8:]), bytes), true
	}, nil
}

// under hears which policy is in force.
func (d *denials) under(s live.State) { d.policy.Store(&s.Version) }

// denialKeyFile is where in the data directory the key of denial ids is kept.
const denialKeyFile = "denial.key"

// denialKeySize is its length in bytes.
const denialKeySize = 32

// A wrongKeyError says that a file cannot be a key that was made here. It is never replaced: ids depend on what it should be.
type wrongKeyError struct{ path, is string }

func (e *wrongKeyError) Error() string {
	return fmt.Sprintf("read the key of denial ids: %s is %s, and a key is a file of %d bytes", e.path, e.is, denialKeySize)
}

// keptKey returns the key in a file, which is made where there is none; of processes that start at once all get the same.
func keptKey(path string, random io.Reader) ([]byte, error) {
	key, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := makeKey(path, random); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return readKey(path)
}

func readKey(path string) ([]byte, error) {
	info, err := os.Stat(path) // first, since to open a pipe may take for ever
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &wrongKeyError{path, "no regular file"}
	}
	if info.Size() != denialKeySize {
		return nil, &wrongKeyError{path, fmt.Sprintf("%d bytes long", info.Size())}
	}
	key, err := os.ReadFile(path)
	if err == nil && len(key) != denialKeySize {
		return nil, &wrongKeyError{path, fmt.Sprintf("%d bytes long", len(key))}
	}
	return key, err
}

// makeKey makes the file, whole or not at all. The error is fs.ErrExist where another process was first.
func makeKey(path string, random io.Reader) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+denialKeyFile+"-*") // its owner's alone
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = io.CopyN(temp, random, denialKeySize)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if err = os.Link(temp.Name(), path); err == nil || errors.Is(err, fs.ErrExist) {
		if dir, err := os.Open(filepath.Dir(path)); err == nil { // so that the name survives a power cut too, where that can be
			_, _ = dir.Sync(), dir.Close()
		}
		return err
	}
	// A file system without second names: who comes in between finds the file too short, and says so.
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(file, random, denialKeySize)
	return errors.Join(err, file.Sync(), file.Close())
}
