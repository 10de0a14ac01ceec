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
	return f.add(source, value, err)
}

// add adds what was read of a flag, unless err.
func (f *namedFields) add(source, value string, err error) error {
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

// Redact implements cli.Redacter. A text that is no NAME=VALUE may be a value.
func (f *namedFields) Redact(string) string { return "…" }

// Repeatable makes each of several flags add a field.
func (f *namedFields) Repeatable() {}

// A namedParameters value has the values of parameters of routes by their key sources, such as
// path:tenant.
type namedParameters struct{ namedFields }

func (p *namedParameters) Set(text string) error {
	source, value, err := admin.ParseParameter(text)
	return p.add(source, value, err)
}
