package sample

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzStrictJSON compares our parsing of objects with encoding/json's: what both accept means the
// same, and ours accepts nothing that encoding/json rejects.
func FuzzStrictJSON(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1}`, ` { "a" : [ 1 , {"b":"}\"]"} ] , "c":null}`, `{"a":"\ud83d\udc4b"}`, `{"a":1,"a":2}`, `{"a":-1.5e+3,"":true}`, `{"a":"\\","b":[[],{}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if grammar(body) != nil || kind(body) != "an object" {
			return
		}
		if !json.Valid(body) {
			t.Fatal("the grammar lets through what is no JSON")
		}
		ours, err := members(body)
		if err != nil {
			return
		}
		var theirs map[string]json.RawMessage
		if err := json.Unmarshal(body, &theirs); err != nil {
			t.Fatal(err)
		}
		if len(ours) != len(theirs) {
			t.Fatalf("%d fields, encoding/json finds %d", len(ours), len(theirs))
		}
		for name, value := range theirs {
			if !bytes.Equal(ours[name], value) {
				t.Errorf("field %q is %s, encoding/json says %s", name, ours[name], value)
			}
			if kind(value) == "a list" {
				var all []json.RawMessage
				if err := json.Unmarshal(value, &all); err != nil {
					t.Fatal(err)
				}
				if mine := elements(value, len(value)); len(mine) != len(all) || len(all) > 0 && !reflect.DeepEqual(mine, all) {
					t.Errorf("elements of %s are %s, encoding/json says %s", value, mine, all)
				}
			}
		}
		_ = checkNested(body, 1) // must terminate
	})
}
