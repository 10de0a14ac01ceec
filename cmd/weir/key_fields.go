package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/admin"
)

// A namedFields value has the values of HTTP fields by their key sources, such as header:X-Api-Key.
// Its flag is repeatable, and takes each field once.
type namedFields map[string]string

func (f *namedFields) Set(text string) error {
	source, value, err := admin.ParseField(text)
	if err != nil {
		return err
	}
	if _, ok := (*f)[source]; ok {
		return fmt.Errorf("%s is given twice", source)
	}
	if *f == nil {
		*f = make(namedFields)
	}
	(*f)[source] = value
	return nil
}

// list returns the fields as the admin listener reads them.
func (f namedFields) list() []string {
	var all []string
	for _, source := range slices.Sorted(maps.Keys(f)) {
		_, name := weir.SplitSource(source)
		all = append(all, name+"="+f[source])
	}
	return all
}

// String returns no value, since a value may be a secret.
func (f *namedFields) String() string { return "" }
func (f *namedFields) Type() string   { return "NAME=VALUE" }
func (f *namedFields) Repeatable()    {}
