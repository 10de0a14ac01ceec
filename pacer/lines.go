package pacer

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirlimit/weir"
)

// line returns the line of a request. It counts the caller as a user of the line, until users is
// decremented.
func (t *Transport) line(r *http.Request) *line {
	var memory [512]byte
	key, limiter := t.requestKey(memory[:0], r)
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
	l = t.intern(l)
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

// requestKey appends the parts of a request that it may be counted by, in the form of the request.
func (t *Transport) requestKey(key []byte, r *http.Request) ([]byte, *weir.Limiter) {
	limiter := t.routes.Match(r.Method, hostOf(r), r.URL.Path).Limiter()
	key = append(append(key, r.URL.Scheme...), 0)
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
	for _, w := range limiter.Rows() {
		for _, part := range w.Key {
			source, value := t.answer(r, part)
			key = append(append(key, source...), 0)
			key = binary.AppendUvarint(key, uint64(len(value)))
			key = append(key, value...)
		}
	}
	return key, limiter
}

// hostOf returns what a request's Host field is.
func hostOf(r *http.Request) string {
	if r.Host != "" {
		return r.Host
	}
	return r.URL.Host
}

// answer returns the first source of a part that a request has, and its value.
func (t *Transport) answer(r *http.Request, part weir.Part) (source, value string) {
	for _, source := range part {
		if source == "ip" {
			return source, ""
		}
		if name, parameter := weir.SplitSource(source); name == "path" {
			if value, ok := t.routes.Match(r.Method, hostOf(r), r.URL.Path).Parameter(parameter); ok {
				return source, value
			}
		} else if value, ok := t.options.Source(r, source); ok && value != "" {
			return source, value
		}
	}
	return "ip", ""
}

// origin returns the server of a request, in a canonical form.
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
	host := origin(r)
	l := &line{host: host, limiter: limiter.Name, cost: max(limiter.Cost, 1), slots: t.slotsOf(r, host, limiter), poked: make(chan struct{}, 1)}
	ways := t.ways[:1]
	if t.countsByAddress(r, limiter) {
		ways = t.ways
	}
	for _, e := range ways {
		w := way{base: e.base}
		for _, declared := range limiter.Windows {
			covered := t.covered(r, l.host, limiter.Name, declared, e.addr)
			covered.later = limiter.Actual.Form == weir.ReadJSON && !declared.Requests
			covered.on = len(limiter.Count.Statuses) > 0 || limiter.Actual != (weir.Reading{}) && !declared.Requests
			w.windows = append(w.windows, covered)
		}
		l.ways = append(l.ways, w)
	}
	return l
}

// uncoveredLine makes a line for requests that no route covers. place is empty, or the place whose
// budget differs from that of the rest.
func (t *Transport) uncoveredLine(r *http.Request, place string) *line {
	host := origin(r)
	w := way{base: t.ways[0].base, windows: []*window{t.uncovered(r, host, place)}}
	return &line{host: host, cost: 1, poked: make(chan struct{}, 1), ways: []way{w}}
}

// intern returns the existing line with the windows of l, else l itself, with the windows and the
// slots that it shares with other lines. t.mu is held.
func (t *Transport) intern(l *line) *line {
	var names strings.Builder
	if l.slots != nil {
		names.WriteString(l.slots.key)
	}
	for w := range l.windows() {
		names.WriteString(w.key)
	}
	if old := t.lines[names.String()]; old != nil {
		return old
	}
	t.lines[names.String()] = l
	if l.slots != nil {
		if old := t.slots[l.slots.key]; old != nil {
			l.slots = old
		} else {
			t.slots[l.slots.key] = l.slots
		}
	}
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

// countsByAddress reports whether a limiter counts a request by its address.
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

// uncovered makes the window of a line of requests that no route covers. It keeps only hashes of
// credentials.
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
	parts := []string{r.URL.Scheme, host, limiter, declared.Key.String(), declared.Per.String() + declared.Calendar.String()}
	if declared.Requests {
		parts = append(parts, "requests")
	}
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

// name returns a collision-free hash of a list of parts. It reveals no credential.
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

// sweep drops the lines without users and with restored budgets, and what only they had. Slots of
// which a call still holds one stay: its answer may last longer than its budget. t.mu is held.
func (t *Transport) sweep() {
	now := t.now()
	kept, keptSlots := make(map[*window]bool), make(map[*slots]bool)
	for key, l := range t.lines {
		if l.users.Load() == 0 && l.idle(now) && (l.family == nil || l.family.idle(now)) {
			delete(t.lines, key)
			continue
		}
		keptSlots[l.slots] = true
		for w := range l.windows() {
			kept[w] = true
		}
	}
	for key, s := range t.slots {
		if !keptSlots[s] && s.free.TryAcquire(s.limit) {
			delete(t.slots, key)
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

// idle reports whether the line can be dropped without a loss.
func (l *line) idle(now int64) bool {
	for w := range l.windows() {
		if !w.idle(now) {
			return false
		}
	}
	return true
}
