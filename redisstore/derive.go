package redisstore

import (
	"crypto/hkdf"
	"crypto/sha256"
	"sync/atomic"
)

// Secret returns a function that tells what the secret of all processes that count here makes of a label: 32 bytes, the same in
// each of them, another for each label, from which nobody learns the secret. It is nil while the secret is not known, which is
// where it was not given and the server was not reached yet; after a server was emptied it may be another one. What it returns
// must not be changed. It asks nobody, does not block, and may be called by many goroutines.
func (s *Store) Secret(label string) func() []byte {
	type derived struct {
		of     *hasher
		secret []byte
	}
	var last atomic.Pointer[derived]
	if own := s.options.Secret; own != nil {
		secret := derive(own, label)
		return func() []byte { return secret }
	}
	return func() []byte {
		h := s.hasher.Load()
		if h == nil {
			return nil
		}
		d := last.Load()
		if d == nil || d.of != h {
			d = &derived{h, derive(h.secret, label)}
			last.Store(d)
		}
		return d.secret
	}
}

func derive(secret []byte, label string) []byte {
	key, err := hkdf.Key(sha256.New, secret, nil, "weir derived 1: "+label, 32)
	if err != nil {
		panic(err) // only a longer key than HKDF can make, which 32 bytes are not
	}
	return key
}
