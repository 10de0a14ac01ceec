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

// A role is what a value of a JSON line is for.
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
	roleHash // of the agent
	roleMark // present in this shape and in no other
	roles
)

// A shape is how one server writes its JSON lines: for each role, the paths at which its value may stand. The first that is
// there counts.
type shape struct {
	paths [roles][]string
	took  func(b []byte) (ns int64, ok bool) // reads roleTook; nil: the format has none
	bytes bool                               // \u00HH is a byte, not a character
	own   bool                               // Weir's: the file has other lines than those of requests, too
}

// The names are those that the servers' documentation gives; of nginx, whose log_format has any names at all, its variables and what
// is commonly written for them.
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
	}, took: inSeconds}
	caddyShape = shape{paths: [roles][]string{
		rolePeer:   {"request.client_ip", "request.remote_ip", "request.remote_addr"}, // the first minds trusted_proxies
		roleLogged: {"ts", "time"},
		roleTook:   {"duration"},
		roleMethod: {"request.method"},
		roleTarget: {"request.uri"},
		roleStatus: {"status"},
		roleAgent:  {"request.headers.User-Agent.0"},
		roleMark:   {"request.method"},
	}, took: asCaddyWrites}
	traefikShape = shape{paths: [roles][]string{
		rolePeer:   {"ClientHost", "ClientAddr"}, // the first is X-Forwarded-For where that came from a trusted address
		roleBegun:  {"StartUTC", "StartLocal"},
		roleLogged: {"time"},
		roleTook:   {"Duration"},
		roleMethod: {"RequestMethod"},
		roleTarget: {"RequestPath"},
		roleStatus: {"DownstreamStatus", "OriginStatus"},
		roleAgent:  {"request_User-Agent"},
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
		roleMark:   {"start_time"},
	}}
	weirShape = shape{paths: [roles][]string{
		rolePeer:   {"client"},
		roleBegun:  {"time"},
		roleMethod: {"method"},
		roleTarget: {"path"},
		roleStatus: {"status"},
		roleHash:   {"agent"},
		roleMark:   {"outcome"},
	}, bytes: true, own: true}
)

// A branch is a value of which something is wanted: itself, or what it holds.
type branch struct {
	slots []int
	in    map[string]*branch // by name, or by index in decimal
}

// An object reads JSON lines of one shape. A line must be one whole object as RFC 8259 has it, and a name that an object has twice
// makes it malformed: readers differ in which they take. Bytes that are no UTF-8 stay as they are.
type object struct {
	shape   *shape
	clock   clock
	root    branch
	first   [roles + 1]int // of each role's slots; those of Options.Fields follow
	fields  int            // first slot of each of Options.Fields: two each
	message int            // first slot of what a line of ownLines has
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
			o.want(strings.Split(path, "."))
		}
	}
	o.message = len(o.values)
	for _, name := range []string{"level", "msg", "lines"} {
		o.want([]string{name})
	}
	o.fields = len(o.values)
	o.first[roles] = o.message
	for _, path := range fields {
		o.want(strings.Split(path, "."))
		o.want([]string{path}) // a name with points in it
	}
	return o
}

// want adds a slot for the value at a path.
func (o *object) want(path []string) {
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
		return fmt.Errorf("no request: it has no value %q", o.shape.paths[roleMark][0])
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
		return errorString("no request: no method and path in it")
	}
	for i := range r.extra {
		value := o.written(o.fields + 2*i)
		if value == nil {
			value = o.written(o.fields + 2*i + 1)
		}
		r.extra[i] = given(o.plain(r.own(value)))
	}
	r.Time, r.Status = at, status
	r.Peer, r.UserAgent = lastOf(o.plain(o.value(rolePeer))), o.plain(o.value(roleAgent))
	r.Agent, r.TellsAgent = o.plain(o.value(roleHash)), o.present(roleAgent) || o.present(roleHash)
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
		return 0, wrong("time", text, "is none that is known")
	}
	if text = o.value(roleTook); logged && text != nil && o.shape.took != nil {
		took, ok := o.shape.took(text)
		if !ok {
			return 0, wrong("duration", text, "is none")
		}
		at -= took
	}
	return at, nil
}

// read fills values with the JSON text of what is wanted.
func (o *object) read(b []byte) error {
	clear(o.values)
	o.line = b
	o.text = *bytes.NewBuffer(b)
	o.decoder.Reset(&o.text, o.options...)
	if o.decoder.PeekKind() != '{' {
		return errorString("no JSON object")
	}
	if err := o.walk(&o.root); err != nil {
		return invalid(b, err)
	}
	if len(bytes.TrimSpace(b[o.decoder.InputOffset():])) > 0 {
		return errorString("more after the JSON object")
	}
	return nil
}

// invalid says why a line is no JSON without the names in it, which lead to the place and may be of any length.
func invalid(b []byte, err error) error {
	what := "no valid JSON"
	if bytes.Contains(b, []byte(`\x`)) {
		what += " (nginx writes it with escape=json only)"
	}
	var at *jsontext.SyntacticError
	if errors.As(err, &at) {
		return fmt.Errorf("%s: %w after byte %d", what, at.Err, at.ByteOffset)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// walk reads one value.
func (o *object) walk(at *branch) error {
	kind := o.decoder.PeekKind()
	if at.in == nil || kind != '{' && kind != '[' {
		if len(at.slots) == 0 {
			return o.decoder.SkipValue()
		}
		text, err := o.decoder.ReadValue()
		end := int(o.decoder.InputOffset())
		for _, slot := range at.slots {
			o.values[slot] = o.line[end-len(text) : end] // the decoder's own slice is void after its next call
		}
		return err
	}
	if _, err := o.decoder.ReadToken(); err != nil {
		return err
	}
	for index := int64(0); o.decoder.PeekKind() != kind+2; index++ { // ']' is '[' + 2, '}' is '{' + 2
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

// child returns the branch of the next member or element; nil if nothing of it is wanted.
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
		return nil, errorString("a name is no string")
	}
	if bytes.IndexByte(name, '\\') < 0 {
		return at.in[string(name[1:len(name)-1])], nil
	}
	o.name = append(o.name[:0], name[1:len(name)-1]...)
	return at.in[string(unescape(o.name))], nil
}

// present reports whether a line has a value for the role, be it an empty one or null.
func (o *object) present(r role) bool {
	for i := o.first[r]; i < o.first[r+1]; i++ {
		if len(o.values[i]) > 0 && o.values[i][0] != '{' && o.values[i][0] != '[' {
			return true
		}
	}
	return false
}

// value returns the text of a role's first value that is there, with its escapes; nil if none is.
func (o *object) value(r role) []byte {
	for i := o.first[r]; i < o.first[r+1]; i++ {
		if text := given(o.written(i)); text != nil {
			return text
		}
	}
	return nil
}

// written returns the text of a slot: a string without its quotes, a number, true or false.
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

// plain undoes the escapes of a text, in place.
func (o *object) plain(text []byte) []byte {
	if o.shape.bytes {
		return unescapeBytes(text)
	}
	return unescape(text)
}

func inSeconds(b []byte) (int64, bool)     { return floating(b, 1e9) }
func inNanoseconds(b []byte) (int64, bool) { return floating(b, 1) }

// asCaddyWrites reads seconds with a fraction, which is what Caddy writes unless told otherwise; a whole number is of nanoseconds
// (duration_format nano), which is wrong by little where it is not; and a text is one of Go's.
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

// floating reads a number of units as decimal does, or with an exponent.
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
