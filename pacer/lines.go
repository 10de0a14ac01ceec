package pacer

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirlimit/weir"
)

// line returns the line that a request belongs to. Its caller is one of the line's users until it says otherwise.
func (t *Transport) line(r *http.Request) *line {
	var memory [512]byte
	key, limiter := t.carried(memory[:0], r)
	t.mu.RLock()
	l := t.aliases[string(key)]
	if l != nil {
		l.users.Add(1)
	}
	t.mu.RUnlock()
	if l != nil {
		return l
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l = t.newLine(r, limiter)
	l.users.Add(1)
	t.aliases[string(key)] = l
	if len(t.aliases)+len(t.windows) >= t.sweepAt {
		t.sweep()
	}
	return l
}

// carried appends what a request carries of what it will be counted by, as it stands there.
func (t *Transport) carried(key []byte, r *http.Request) ([]byte, *weir.Limiter) {
	limiter := t.routes.Match(r.Method, r.URL.Path).Limiter()
	key = append(key, r.URL.Scheme...)
	key = append(append(key, "://"...), r.URL.Host...)
	key = append(key, 0)
	if limiter == nil {
		return append(key, r.Header.Get("Authorization")...), nil
	}
	key = append(append(key, limiter.Name...), 0)
	for _, w := range limiter.Windows {
		for _, part := range w.Key {
			source, value := t.answer(r, part)
			key = append(append(key, source...), 0)
			key = binary.AppendUvarint(key, uint64(len(value)))
			key = append(key, value...)
		}
	}
	return key, limiter
}

// answer returns the first source of a part that a request has, and its value.
func (t *Transport) answer(r *http.Request, part weir.Part) (source, value string) {
	for _, source := range part {
		if source == "ip" {
			return source, ""
		}
		if value, ok := t.options.Source(r, source); ok && value != "" {
			return source, value
		}
	}
	return "ip", ""
}

// newLine returns the line of a request whose like has not been seen, or that the server counts as one which has. t.mu is held.
func (t *Transport) newLine(r *http.Request, limiter *weir.Limiter) *line {
	l := &line{host: r.URL.Host, cost: 1, poked: make(chan struct{}, 1)}
	origin := r.URL.Scheme + "://" + r.URL.Host
	ways := t.ways[:1]
	if limiter != nil {
		l.limiter, l.cost = limiter.Name, max(limiter.Cost, 1)
		if t.countsByAddress(r, limiter) {
			ways = t.ways
		}
	}
	var names strings.Builder
	for _, e := range ways {
		w := way{base: e.base}
		if limiter == nil {
			w.windows = append(w.windows, t.uncovered(r, origin))
		} else {
			for _, declared := range limiter.Windows {
				w.windows = append(w.windows, t.covered(r, origin, limiter.Name, declared, e.addr))
			}
		}
		for _, window := range w.windows {
			names.WriteString(window.key)
		}
		l.ways = append(l.ways, w)
	}
	if old := t.lines[names.String()]; old != nil {
		return old
	}
	t.lines[names.String()] = l
	return l
}

// countsByAddress says whether a limiter counts a request by the address that it comes from.
func (t *Transport) countsByAddress(r *http.Request, limiter *weir.Limiter) bool {
	for _, w := range limiter.Windows {
		for _, part := range w.Key {
			if source, _ := t.answer(r, part); source == "ip" {
				return true
			}
		}
	}
	return false
}

// uncovered returns the one window of requests that no route covers.
func (t *Transport) uncovered(r *http.Request, origin string) *window {
	value := r.Header.Get("Authorization")
	w := &window{host: r.URL.Host, key: name(origin, "", "authorization", value)}
	w.view.phase = silent
	if value != "" {
		w.shown = shown("authorization", value)
	}
	return t.known(w)
}

// covered returns a window of a limiter.
func (t *Transport) covered(r *http.Request, origin, limiter string, declared weir.Window, addr netip.Addr) *window {
	w := &window{host: r.URL.Host, limiter: limiter, declared: declaredBy(declared)}
	parts := []string{origin, limiter, declared.Key.String(), declared.Per.String()}
	var people []string
	for _, part := range declared.Key {
		source, value := t.answer(r, part)
		if source == "ip" {
			w.egress = addr
			if value = ""; addr.IsValid() {
				value = addr.String()
			}
		} else {
			value = subject(source, value)
		}
		parts = append(parts, source, value)
		if value == "" {
			people = append(people, source)
		} else {
			people = append(people, shown(source, value))
		}
	}
	w.key, w.shown = name(parts...), strings.Join(people, " + ")
	return t.known(w)
}

// known returns the window that has w's key already, else w.
func (t *Transport) known(w *window) *window {
	if old := t.windows[w.key]; old != nil {
		return old
	}
	t.windows[w.key] = w
	return w
}

// name is a hash of parts: no two different lists have the same. Credentials are not kept in it.
func name(parts ...string) string {
	h := sha256.New()
	var length [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write([]byte(p))
	}
	return string(h.Sum(nil))
}

// sweep forgets what nobody uses and whose budget is whole again. t.mu is held.
func (t *Transport) sweep() {
	now := t.now()
	kept := make(map[*window]bool)
	for key, l := range t.lines {
		if l.users.Load() == 0 && l.idle(now) {
			delete(t.lines, key)
			continue
		}
		for _, w := range l.ways {
			for _, window := range w.windows {
				kept[window] = true
			}
		}
	}
	used := make(map[*line]bool, len(t.lines))
	for _, l := range t.lines {
		used[l] = true
	}
	for key, l := range t.aliases {
		if !used[l] {
			delete(t.aliases, key)
		}
	}
	for key, w := range t.windows {
		if !kept[w] {
			delete(t.windows, key)
		}
	}
	t.sweepAt = max(1024, 2*(len(t.aliases)+len(t.windows)))
}

// idle says whether nothing would be lost with the line.
func (l *line) idle(now int64) bool {
	for _, w := range l.ways {
		for _, window := range w.windows {
			if !window.idle(now) {
				return false
			}
		}
	}
	return true
}

// restored returns the local time at which the windows that a call was charged to are restored.
func (l *line) restored(p pass, now int64) (at int64) {
	for _, w := range p.way.windows {
		if view := w.look(); view.phase == known {
			at = max(at, view.restored(now))
		}
	}
	return at
}
