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
		if l.family != nil {
			l = l.family.line(r)
		}
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
	t.aliases[string(key)] = l
	if l.family != nil {
		l = l.family.line(r)
	}
	l.users.Add(1)
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
		for _, name := range t.options.Credentials {
			for _, value := range r.Header[name] {
				key = append(append(key, name...), 0)
				key = binary.AppendUvarint(key, uint64(len(value)))
				key = append(key, value...)
			}
		}
		return key, nil
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
	if limiter == nil {
		l := t.uncoveredLine(r, "")
		l.family = &family{lines: []*line{l}, names: []string{""}, of: make(map[place]*line)}
		return l
	}
	l := &line{host: origin(r), limiter: limiter.Name, cost: max(limiter.Cost, 1), poked: make(chan struct{}, 1)}
	ways := t.ways[:1]
	if t.countsByAddress(r, limiter) {
		ways = t.ways
	}
	for _, e := range ways {
		w := way{base: e.base}
		for _, declared := range limiter.Windows {
			w.windows = append(w.windows, t.covered(r, l.host, limiter.Name, declared, e.addr))
		}
		l.ways = append(l.ways, w)
	}
	return l
}

// uncoveredLine makes a line of requests that no route covers. place is empty, or the one whose
// budget is another than that of the rest.
func (t *Transport) uncoveredLine(r *http.Request, place string) *line {
	host := origin(r)
	w := way{base: t.ways[0].base, windows: []*window{t.uncovered(r, host, place)}}
	return &line{host: host, cost: 1, poked: make(chan struct{}, 1), ways: []way{w}}
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

// uncovered makes the window of a line of requests that no route covers. Of a credential it keeps
// hashes alone.
func (t *Transport) uncovered(r *http.Request, host, place string) *window {
	parts := []string{r.URL.Scheme, host, "", place}
	var people []string
	for _, field := range t.options.Credentials {
		for _, value := range r.Header[field] {
			parts = append(parts, field, value)
			people = append(people, strings.ToLower(field)+" "+hashed(value))
		}
	}
	if place != "" {
		people = append(people, place)
	}
	w := &window{host: host, key: name(parts...), shown: strings.Join(people, " + ")}
	w.view.phase = silent
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
		if l.users.Load() == 0 && l.idle(now) && (l.family == nil || l.family.idle(now)) {
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
