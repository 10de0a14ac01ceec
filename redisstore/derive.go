package redisstore

import (
	"crypto/hkdf"
	"crypto/sha256"
	"sync/atomic"
)

// Secret returns a function that derives 32 bytes for a label from the secret of the processes that
// count here. Every process derives the same bytes, each label gives others, and they do not reveal
// the secret. The function returns nil while the secret is unknown: Options.Secret is nil, and the
// server has not been reached yet. If the server loses its data the secret may change. Do not
// modify the returned bytes. The function does no I/O, does not block, and is safe for concurrent
// use.
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
		panic(err) // impossible: HKDF makes up to 8,160 bytes
	}
	return key
}
