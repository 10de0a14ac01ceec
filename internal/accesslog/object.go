package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A role is the meaning of a value in a JSON line.
type role uint8

const (
	rolePeer role = iota
	roleBegun
	roleLogged
	roleTook
	roleRequest
	roleMethod
	roleTarget
	rolePath
	roleQuery
	roleStatus
	roleAgent
	roleHost
	roleHash // keyed hash of the agent
	roleReserved
	roleCost
	roleMark // a member that no other shape has
	roles
)

// A shape is the layout of one server's JSON lines: for each role, the paths at which its value may
// be. The first path with a value is used.
type shape struct {
	paths [roles][]string
	took  func(b []byte) (ns int64, ok bool) // parses roleTook; nil in a format without one
	bytes bool                               // \u00HH is a byte and not a character
	// Weir's log, which also has lines that are not requests
	own bool
}

// The names are from the servers' documentation. A log_format of nginx may have any names: these
// are its variables and common names for them.
var (
	nginxShape = shape{paths: [roles][]string{
		rolePeer:    {"remote_addr", "client_ip", "remote_ip", "clientip", "client", "ip"},
		roleLogged:  {"msec", "time_iso8601", "time_local", "@timestamp", "timestamp", "time", "ts"},
		roleTook:    {"request_time"},
		roleRequest: {"request"},
		roleMethod:  {"request_method", "method", "verb"},
		roleTarget:  {"request_uri"},
		rolePath:    {"uri", "document_uri", "path", "url"},
		roleQuery:   {"args", "query_string", "query"},
		roleStatus:  {"status", "status_code", "response"},
		roleAgent:   {"http_user_agent", "user_agent", "agent"},
		roleHost:    {"host", "http_host", "vhost", "server_name"},
	}, took: inSeconds}
	caddyShape = shape{paths: [roles][]string{
		// the first respects trusted_proxies
		rolePeer:   {"request.client_ip", "request.remote_ip", "request.remote_addr"},
		roleLogged: {"ts", "time"},
		roleTook:   {"duration"},
		roleMethod: {"request.method"},
		roleTarget: {"request.uri"},
		roleStatus: {"status"},
		roleAgent:  {"request.headers.User-Agent.0"},
		roleHost:   {"request.host"},
		roleMark:   {"request.method"},
	}, took: asCaddyWrites}
	traefikShape = shape{paths: [roles][]string{
		// the first is X-Forwarded-For if that came from a trusted address
		rolePeer:   {"ClientHost", "ClientAddr"},
		roleBegun:  {"StartUTC", "StartLocal"},
		roleLogged: {"time"},
		roleTook:   {"Duration"},
		roleMethod: {"RequestMethod"},
		roleTarget: {"RequestPath"},
		roleStatus: {"DownstreamStatus", "OriginStatus"},
		roleAgent:  {"request_User-Agent"},
		roleHost:   {"RequestAddr", "RequestHost"},
		roleMark:   {"RequestMethod", "RequestPath"},
	}, took: inNanoseconds}
	envoyShape = shape{paths: [roles][]string{
		rolePeer: {"downstream_remote_address_without_port", "downstream_remote_address",
			"downstream_direct_remote_address_without_port", "downstream_direct_remote_address"},
		roleBegun:  {"start_time"},
		roleMethod: {"method", ":method"},
		roleTarget: {"x-envoy-original-path", "x_envoy_original_path", "x-envoy-origin-path", "path", ":path"},
		roleStatus: {"response_code"},
		roleAgent:  {"user_agent", "user-agent"},
		roleHost:   {"authority", ":authority"},
		roleTook:   {"duration"},
		roleMark:   {"start_time"},
	}, took: inMilliseconds}
	weirShape = shape{paths: [roles][]string{
		rolePeer:   {"client"},
		roleBegun:  {"time"},
		roleMethod: {"method"},
		roleTarget: {"path"},
		roleStatus: {"status"},
		roleHash:   {"agent"},
		roleHost:   {"host"},
		roleTook:   {"duration_ms"},
		roleMark:   {"outcome"},

		roleReserved: {"reserved"},
		roleCost:     {"cost"},
	}, took: inMilliseconds, bytes: true, own: true}
)

// A branch is a wanted value, or one that contains wanted values.
type branch struct {
	slots []int
	in    map[string]*branch // by name, or by index in decimal
}

// An object parses JSON lines of one shape. A line must be a single object (RFC 8259). A line with
// a duplicate name is malformed, because parsers differ in which value they use. Bytes that are not
// UTF-8 are kept.
type object struct {
	shape   *shape
	clock   clock
	root    branch
	first   [roles + 1]int // first slot of each role; the slots of Options.Fields follow
	fields  int            // first slot of Options.Fields, which have two slots each
	message int            // first slot of level, msg and lines
	values  [][]byte

	decoder *jsontext.Decoder
	options []jsontext.Options
	own     ownLines
	text    bytes.Buffer
	line    []byte
	name    []byte
}

func newObject(s *shape, fields []string) *object {
	o := &object{shape: s, options: []jsontext.Options{jsontext.AllowInvalidUTF8(true)}}
	o.decoder = jsontext.NewDecoder(&o.text, o.options...)
	for i, paths := range s.paths {
		o.first[i] = len(o.values)
		for _, path := range paths {
			o.add(strings.Split(path, "."))
		}
	}
	o.message = len(o.values)
	for _, name := range []string{"level", "msg", "lines"} {
		o.add([]string{name})
	}
	o.fields = len(o.values)
	o.first[roles] = o.message
	for _, path := range fields {
		o.add(strings.Split(path, "."))
		o.add([]string{path}) // a name that contains dots
	}
	return o
}

// want adds a slot for the value at path.
func (o *object) add(path []string) {
	at := &o.root
	for _, name := range path {
		if at.in == nil {
			at.in = map[string]*branch{}
		}
		if at.in[name] == nil {
			at.in[name] = &branch{}
		}
		at = at.in[name]
	}
	at.slots = append(at.slots, len(o.values))
	o.values = append(o.values, nil)
}

func (o *object) has(string) bool { return true }

func (o *object) parse(b []byte, r *record) error {
	if o.shape.own && o.own.banner(b) {
		return &ownLine{}
	}
	if err := o.read(b); err != nil {
		return err
	}
	if o.shape.own && o.value(roleMark) == nil && o.value(roleBegun) != nil && o.values[o.message] != nil && o.values[o.message+1] != nil {
		return newOwnLine(o.written(o.message+1), o.written(o.message+2))
	}
	if o.shape.paths[roleMark] != nil && o.value(roleMark) == nil {
		return fmt.Errorf("not a request: it has no value %q", o.shape.paths[roleMark][0])
	}
	at, err := o.time()
	if err != nil {
		return err
	}
	status := 0
	if text := o.value(roleStatus); text != nil {
		if status, err = parseStatus(text); err != nil {
			return err
		}
	}
	if !o.present(roleRequest) && !(o.present(roleMethod) && (o.present(roleTarget) || o.present(rolePath))) {
		return errorString("not a request: no method and path in it")
	}
	for i := range r.extra {
		value := o.written(o.fields + 2*i)
		if value == nil {
			value = o.written(o.fields + 2*i + 1)
		}
		r.extra[i] = given(o.plain(r.own(value)))
	}
	r.Time, r.Status = at, status
	if text := o.value(roleTook); text != nil && o.shape.took != nil {
		r.took(o.shape.took(text))
	}
	r.Reserved, r.Cost = unitsOf(o.value(roleReserved)), o.plain(o.value(roleCost))
	r.Peer, r.UserAgent = lastOf(o.plain(o.value(rolePeer))), o.plain(o.value(roleAgent))
	r.Agent, r.HasAgent = o.plain(o.value(roleHash)), o.present(roleAgent) || o.present(roleHash)
	r.Host = o.plain(o.value(roleHost))
	r.Method, r.Target = o.request(r)
	return nil
}

// request returns the method and target, both nil where the line holds none.
func (o *object) request(r *record) (method, target []byte) {
	if line := o.plain(o.value(roleRequest)); line != nil {
		if method, target = requestLine(line); method != nil {
			return method, r.origin(target)
		}
	}
	method, target = o.plain(o.value(roleMethod)), o.plain(o.value(roleTarget))
	if target == nil {
		if target = o.plain(o.value(rolePath)); target != nil && bytes.IndexByte(target, '?') < 0 {
			if query := o.plain(o.value(roleQuery)); query != nil {
				r.own(target)
				r.own([]byte{'?'})
				r.own(query)
				target = r.scratch[len(r.scratch)-len(target)-1-len(query):]
			}
		}
	}
	if target == nil || !isMethod(method) {
		return nil, nil
	}
	return method, r.origin(target)
}

// time returns when the request began.
func (o *object) time() (int64, error) {
	text := o.value(roleBegun)
	logged := text == nil
	if logged {
		if text = o.value(roleLogged); text == nil {
			return 0, errorString("no time in it")
		}
	}
	at, ok := o.clock.any(text)
	if !ok {
		return 0, wrong("time", text, "has no known format")
	}
	if text = o.value(roleTook); logged && text != nil && o.shape.took != nil {
		took, ok := o.shape.took(text)
		if !ok {
			return 0, wrong("duration", text, "is not valid")
		}
		at -= took
	}
	return at, nil
}

// read stores the JSON text of the wanted values in o.values.
func (o *object) read(b []byte) error {
	clear(o.values)
	o.line = b
	o.text = *bytes.NewBuffer(b)
	o.decoder.Reset(&o.text, o.options...)
	if o.decoder.PeekKind() != '{' {
		return errorString("not a JSON object")
	}
	if err := o.walk(&o.root); err != nil {
		return invalid(b, err)
	}
	if len(bytes.TrimSpace(b[o.decoder.InputOffset():])) > 0 {
		return errorString("more after the JSON object")
	}
	return nil
}

// invalid returns the reason why a line is not JSON. It leaves out the path of names to the place,
// which may be of any length.
func invalid(b []byte, err error) error {
	what := "not valid JSON"
	if bytes.Contains(b, []byte(`\x`)) {
		what += " (nginx writes it with escape=json only)"
	}
	var at *jsontext.SyntacticError
	if errors.As(err, &at) {
		return fmt.Errorf("%s: %w after byte %d", what, at.Err, at.ByteOffset)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// walk reads one value and the wanted values in it.
func (o *object) walk(at *branch) error {
	kind := o.decoder.PeekKind()
	if at.in == nil || kind != '{' && kind != '[' {
		if len(at.slots) == 0 {
			return o.decoder.SkipValue()
		}
		text, err := o.decoder.ReadValue()
		end := int(o.decoder.InputOffset())
		for _, slot := range at.slots {
			// the decoder's slice is invalid after its next call
			o.values[slot] = o.line[end-len(text) : end]
		}
		return err
	}
	if _, err := o.decoder.ReadToken(); err != nil {
		return err
	}
	// ']' is '[' + 2, '}' is '{' + 2
	for index := int64(0); o.decoder.PeekKind() != kind+2; index++ {
		child, err := o.child(at, kind, index)
		if err != nil {
			return err
		}
		if child == nil {
			err = o.decoder.SkipValue()
		} else {
			err = o.walk(child)
		}
		if err != nil {
			return err
		}
	}
	_, err := o.decoder.ReadToken()
	return err
}

// child returns the branch of the next member or element, or nil for one without a wanted value.
func (o *object) child(at *branch, kind jsontext.Kind, index int64) (*branch, error) {
	if kind == '[' {
		o.name = strconv.AppendInt(o.name[:0], index, 10)
		return at.in[string(o.name)], nil
	}
	name, err := o.decoder.ReadValue()
	if err != nil {
		return nil, err
	}
	if len(name) < 2 || name[0] != '"' {
		return nil, errorString("a name is not a string")
	}
	if bytes.IndexByte(name, '\\') < 0 {
		return at.in[string(name[1:len(name)-1])], nil
	}
	o.name = append(o.name[:0], name[1:len(name)-1]...)
	return at.in[string(unescape(o.name))], nil
}

// present reports whether a line has a value for the role, even if it is empty or null.
func (o *object) present(r role) bool {
	for i := o.first[r]; i < o.first[r+1]; i++ {
		if len(o.values[i]) > 0 && o.values[i][0] != '{' && o.values[i][0] != '[' {
			return true
		}
	}
	return false
}

// value returns the text, with its escapes, of the first value of a role that is present, or nil if
// none is.
func (o *object) value(r role) []byte {
	for i := o.first[r]; i < o.first[r+1]; i++ {
		if text := given(o.written(i)); text != nil {
			return text
		}
	}
	return nil
}

// written returns the text of a slot: a string without its quotes, a number, true or false. It
// returns nil for anything else.
func (o *object) written(slot int) []byte {
	text := o.values[slot]
	if len(text) == 0 {
		return nil
	}
	switch text[0] {
	case '"':
		return text[1 : len(text)-1]
	case 'n', '{', '[':
		return nil
	}
	return text
}

// plain removes the escapes of a text, in place.
func (o *object) plain(text []byte) []byte {
	if o.shape.bytes {
		return unescapeBytes(text)
	}
	return unescape(text)
}

func inSeconds(b []byte) (int64, bool)      { return floating(b, 1e9) }
func inMilliseconds(b []byte) (int64, bool) { return floating(b, 1e6) }
func inNanoseconds(b []byte) (int64, bool)  { return floating(b, 1) }

// asCaddyWrites reads a duration as Caddy writes it: seconds with a fraction by default, an integer
// of nanoseconds (duration_format nano), or a text of Go's time.Duration. A whole number of seconds
// is misread as nanoseconds, which is a small error.
func asCaddyWrites(b []byte) (int64, bool) {
	if ns, ok := decimal(b, 1); ok && isNumber(b) {
		return ns, true
	}
	if ns, ok := floating(b, 1e9); ok {
		return ns, true
	}
	took, err := time.ParseDuration(string(b))
	return int64(took), err == nil && took >= 0
}

// floating reads a number of units, as decimal does or with an exponent.
func floating(b []byte, unit int64) (int64, bool) {
	if ns, ok := decimal(b, unit); ok {
		return ns, true
	}
	if !bytes.ContainsAny(b, "eE") {
		return 0, false
	}
	n, err := strconv.ParseFloat(string(b), 64)
	n *= float64(unit)
	return int64(n), err == nil && n >= 0 && n < 1e18
}
