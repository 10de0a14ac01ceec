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
	l = t.newLine(r, limiter)
	t.mu.Lock()
	defer t.mu.Unlock()
	l = t.enlist(l)
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
	key = append(append(key, origin(r)...), 0)
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

// origin is the server that a request goes to, in one spelling.
func origin(r *http.Request) string {
	host := strings.ToLower(r.URL.Host)
	switch r.URL.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return host
}

// newLine makes the line of a request.
func (t *Transport) newLine(r *http.Request, limiter *weir.Limiter) *line {
	l := &line{host: origin(r), cost: 1, poked: make(chan struct{}, 1)}
	ways := t.ways[:1]
	if limiter != nil {
		l.limiter, l.cost = limiter.Name, max(limiter.Cost, 1)
		if t.countsByAddress(r, limiter) {
			ways = t.ways
		}
	}
	for _, e := range ways {
		w := way{base: e.base}
		if limiter == nil {
			w.windows = append(w.windows, uncovered(r, l.host))
		} else {
			for _, declared := range limiter.Windows {
				w.windows = append(w.windows, t.covered(r, l.host, limiter.Name, declared, e.addr))
			}
		}
		l.ways = append(l.ways, w)
	}
	return l
}

// enlist returns the line that l is another one of, else l, with the windows that it has in common with others. t.mu is held.
func (t *Transport) enlist(l *line) *line {
	var names strings.Builder
	for w := range l.windows() {
		names.WriteString(w.key)
	}
	if old := t.lines[names.String()]; old != nil {
		return old
	}
	t.lines[names.String()] = l
	for _, w := range l.ways {
		for i, window := range w.windows {
			if old := t.windows[window.key]; old != nil {
				w.windows[i] = old
			} else {
				t.windows[window.key] = window
			}
		}
	}
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

// uncovered makes the one window of requests that no route covers.
func uncovered(r *http.Request, host string) *window {
	value := r.Header.Get("Authorization")
	w := &window{host: host, key: name(r.URL.Scheme, host, "", "authorization", value)}
	w.view.phase = silent
	if value != "" {
		w.shown = "authorization " + hashed(value)
	}
	return w
}

// covered makes a window of a limiter.
func (t *Transport) covered(r *http.Request, host, limiter string, declared weir.Window, addr netip.Addr) *window {
	w := &window{host: host, limiter: limiter, declared: declaredBy(declared)}
	parts := []string{r.URL.Scheme, host, limiter, declared.Key.String(), declared.Per.String()}
	var people []string
	for _, part := range declared.Key {
		source, value := t.answer(r, part)
		text := source
		switch {
		case source != "ip":
			value, text = subject(source, value)
		case addr.IsValid():
			value, text = addr.String(), "ip "+addr.String()
		}
		if source == "ip" {
			w.egress = addr
		}
		parts, people = append(parts, source, value), append(people, text)
	}
	w.key, w.shown = name(parts...), strings.Join(people, " + ")
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
		for w := range l.windows() {
			kept[w] = true
		}
	}
	clear(t.aliases) // they are found again
	for key, w := range t.windows {
		if !kept[w] {
			delete(t.windows, key)
		}
	}
	t.sweepAt = max(1024, 2*(len(t.aliases)+len(t.windows)))
}

// idle says whether nothing would be lost with the line.
func (l *line) idle(now int64) bool {
	for w := range l.windows() {
		if !w.idle(now) {
			return false
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
