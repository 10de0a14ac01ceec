package meter

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

// FuzzJSON compares what a Meter reads with encoding/json, and with what it reads of the same bytes
// in other pieces.
func FuzzJSON(f *testing.F) {
	for _, body := range []string{
		`{"usage":{"total":17}}`, `{"a":[{"usage":{"total":1}}],"usage":{"b":"\"","total":2},"c":null}`,
		`{"usage":{"total":1,"total":1}}`, `{"\u0075sage":{"tota\u006c":5}}`, `{"usage\ud83d\ude00":{},"usage":{"total":-0.5e+7}}`,
		"{\"usage\":{\"total\":\n12 , \"x\\/\":[]}}\t", `{"usage":{"total":"1"},"usage":{"total":2}}`, `{"usage":{"total":2147483648}}`,
		`[{"usage":{"total":1}}]`, `{"usage":{"total":01}}`, `{"usage":[{"total":1}],"é":"\u00e9\ud800x"}`, `{"usage":{"total":null}}`,
	} {
		f.Add([]byte(body), 3)
	}
	f.Fuzz(func(t *testing.T, body []byte, size int) {
		for _, path := range []string{"total", "usage.total", "é"} {
			want, wantOK := oracle(path, body)
			for _, pieces := range []int{len(body) + 1, min(max(size, 1), 64), 1} {
				if got, ok := read(path, JSON, string(body), pieces); got != want || ok != wantOK {
					t.Errorf("%s of %q in pieces of %d is read as %d, %v; encoding/json reads %d, %v", path, body, pieces, got, ok, want, wantOK)
				}
			}
		}
	})
}

// oracle reads a member by encoding/json.
func oracle(path string, body []byte) (n int64, ok bool) {
	if !json.Valid(body) {
		return 0, false
	}
	value, ok := body, true
	for name := range strings.SplitSeq(path, ".") {
		if value, ok = member(value, name); !ok {
			return 0, false
		}
	}
	units, err := strconv.ParseInt(string(value), 10, 32)
	if err != nil || value[0] == '-' {
		return 0, false
	}
	return units, true
}

// member returns the only member of an object that has the name.
func member(object []byte, name string) (value []byte, ok bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		got, err := d.Token()
		if err != nil {
			return nil, false
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, false
		}
		if got != name {
			continue
		}
		if ok {
			return nil, false
		}
		value, ok = raw, true
	}
	return value, ok
}

// Whatever encoding/json reads into a field, a caller's text tells the same or nothing.
func FuzzCallersJSON(f *testing.F) {
	for _, body := range []string{`{"max_tokens":1}`, `{"max_tokens":1,"MAX_TOKENS":9}`, `{"max_token\u017f":9,"max_tokens":1}`, `{"max_tokens":1,"max_tokens\u0000":9}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := read("max_tokens", CallersJSON, string(body), len(body)+1)
		if !ok {
			return
		}
		var into struct {
			Tokens json.Number `json:"max_tokens"`
		}
		if err := json.Unmarshal(body, &into); err != nil || into.Tokens.String() != strconv.FormatInt(got, 10) {
			t.Errorf("%q tells %d, and encoding/json reads %q, %v", body, got, into.Tokens, err)
		}
	})
}

// FuzzEvents compares what a Meter reads with a reader of whole streams, and in pieces.
func FuzzEvents(f *testing.F) {
	for _, body := range []string{
		"data: {\"n\":5}\n\n", "\ufeffdata:{\"n\":5}\r\n\r\ndata: {\"n\":6}\r\rdata: [DONE]\n\n", "data: {\"n\":\ndata: 5}\n\nid: 3\ndata\n\n",
		":x\ndata: {\"n\":5}\ndata:\n\ndata: {\"n\":null}\n\ndata: {\"n\":\"5\"}", "data: {\"n\":1}\n\ndata: {\"n\":2",
	} {
		f.Add([]byte(body), 3)
	}
	f.Fuzz(func(t *testing.T, body []byte, size int) {
		want, wantOK := eventsOracle("n", string(body))
		for _, pieces := range []int{len(body) + 1, min(max(size, 1), 64), 1} {
			if got, ok := read("n", Events, string(body), pieces); got != want || ok != wantOK {
				t.Errorf("%q in pieces of %d is read as %d, %v, want %d, %v", body, pieces, got, ok, want, wantOK)
			}
		}
	})
}

// eventsOracle reads the last event of a stream that has the member.
func eventsOracle(name, body string) (n int64, ok bool) {
	body = strings.TrimPrefix(body, "\ufeff")
	body = strings.ReplaceAll(strings.ReplaceAll(body, "\r\n", "\n"), "\r", "\n")
	var data []string
	for line := range strings.SplitSeq(body+"\n\n", "\n") {
		field, value, _ := strings.Cut(line, ":")
		switch {
		case field == "data":
			data = append(data, strings.TrimPrefix(value, " "))
		case line == "":
			if text := []byte(strings.Join(data, "\n")); has(text, name) {
				n, ok = oracle(name, text)
			}
			data = nil
		}
	}
	return n, ok
}

// has reports whether text is an object that has a member, other than null, or has it twice.
func has(text []byte, name string) bool {
	var object map[string]json.RawMessage
	if !json.Valid(text) || json.Unmarshal(text, &object) != nil || object[name] == nil {
		return false
	}
	_, once := member(text, name)
	return !once || string(object[name]) != "null"
}
