package weir

import (
	"fmt"
	"strings"
)

// A SourceKind is how far the value of a key source can be trusted, which decides what a count by
// it bounds.
type SourceKind uint8

const (
	// Chosen by the caller: it can send another value and get another budget, or spend another
	// caller's. Such a source may only divide the budget of another one (D17).
	Chosen SourceKind = iota
	// Address of the client. Every caller has one, so it replaces a source that has no value.
	Address
	// Credential that was verified.
	Credential
	// Common to all callers, which share one budget.
	Common
)

// String returns the kind in words: "chosen by the caller".
func (k SourceKind) String() string {
	switch k {
	case Chosen:
		return "chosen by the caller"
	case Address:
		return "an address"
	case Credential:
		return "a verified credential"
	case Common:
		return "shared by all callers"
	}
	return fmt.Sprintf("SourceKind(%d)", uint8(k))
}

// A Source describes one key source: what a window can count by.
type Source struct {
	// Name is how a policy spells it: lower-case letters, digits and dashes, a letter first.
	Name string
	// Field, if set, means that the name is followed by a colon and the name of what is read, as in
	// header:X-Api-Key; it is the placeholder for that name in documentation. For a source of an
	// embedding service's own it is the name of an HTTP field.
	Field string
	names nameForm // the spelling of the name after the colon
	Kind  SourceKind
	// From names the credential that the value is read from: "session" for a claim, which is part
	// of a session. It is empty for a source that is read from nothing else.
	From string
	// Optional means that a request may have no value of it. Then the next alternative of the Part
	// is counted, in the end the address.
	Optional bool
	// OfConnection means that the value belongs to the connection: a request may have it beside any
	// other credential.
	OfConnection bool
	// Public means that the value may be shown to operators: it identifies the caller, and is no
	// secret.
	Public bool
	// About describes the owner of one budget, such as "one address".
	About string
	// Counts says in a sentence what a window counts by, for help and documentation. It may be
	// empty for a source of an embedding service's own.
	Counts string
}

// builtInSources is the one table of the built-in key sources. Code that handles a source (the
// policy file and its schema, explain, the admin API, log replay, pacing, verify) goes by its row.
// Package identity adds how the value is found in a request.
var builtInSources = []Source{
	{Name: addressSource, Kind: Address, About: "one address",
		Counts: "the client's address: IPv4 whole, IPv6 by its /64"},
	{Name: "agent", Kind: Chosen, About: "one agent",
		Counts: "the assistant that a widget embeds"},
	{Name: "session", Kind: Credential, Optional: true, About: "one session",
		Counts: "the verified visitor session"},
	{Name: tokenSource, Kind: Credential, Optional: true, Public: true, About: "one token",
		Counts: "the id of the verified workspace API token"},
	{Name: "header", Field: "NAME", Kind: Chosen, Optional: true, About: "one value of the field",
		Counts: "the value of one HTTP field"},
	{Name: pathSource, Field: "NAME", names: segmentName, Kind: Chosen, About: "one value of the parameter",
		Counts: "the value of one parameter of the route"},
	{Name: "cookie", Field: "NAME", names: cookieName, Kind: Chosen, Optional: true, About: "one value of the cookie",
		Counts: "the value of one cookie"},
	{Name: "query", Field: "NAME", names: parameterName, Kind: Chosen, Optional: true, About: "one value of the parameter",
		Counts: "the value of one query parameter"},
	{Name: "host", Kind: Chosen, Optional: true, About: "one host",
		Counts: "the name of the host that the request is for"},
	{Name: "claim", Field: "NAME", names: claimName, Kind: Credential, From: "session", Optional: true, About: "one value of the claim",
		Counts: "the value of one claim of the verified visitor session"},
	{Name: "cert", Kind: Credential, Optional: true, OfConnection: true, About: "one certificate",
		Counts: "the name in the verified client certificate of the connection"},
	{Name: everyoneSource, Kind: Common, About: "all callers together",
		Counts: "nothing: all callers share one budget"},
}

// Sources returns the built-in key sources, in the order in which documentation lists them.
func Sources() []Source { return append([]Source(nil), builtInSources...) }

// Credentials returns the names of the built-in key sources that are verified credentials, which a
// limiter can require.
func Credentials() (names []string) {
	for _, s := range builtInSources {
		if s.Kind == Credential && s.From == "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// Credential returns the credential that a request must have for a value of the source: "session"
// for session and claim:NAME. It is empty for a source that needs none.
func (s Source) Credential() string {
	switch {
	case s.Kind != Credential:
		return ""
	case s.From != "":
		return s.From
	}
	return s.Name
}

// FindSource returns the row of all that a name in a Part refers to: "ip", or "header:X-Api-Key",
// whose row is that of "header". ok is false if there is none, or if the name has a field and the
// source takes none, or the other way round.
func FindSource(all []Source, name string) (s Source, ok bool) {
	base, field := SplitSource(name)
	for _, s := range all {
		if s.Name == base {
			return s, (s.Field != "") == (field != "")
		}
	}
	return Source{}, false
}

// SourceOf returns the row of the built-in key source that a name in a Part refers to. For any
// other name it returns the zero Source, whose kind is Chosen: that is what a source has to be
// taken for if nothing is known about it.
func SourceOf(name string) Source {
	for i := range builtInSources { // most names have no field, and every request asks
		if s := &builtInSources[i]; s.Name == name && s.Field == "" {
			return *s
		}
	}
	s, ok := FindSource(builtInSources, name)
	if !ok {
		return Source{}
	}
	return s
}

// SplitSource splits a name in a Part into the source and the name of what it reads, in canonical
// form: "header:X-Api-Key" into "header" and "X-Api-Key". field is empty for a name without one.
func SplitSource(name string) (source, field string) {
	source, field, _ = strings.Cut(name, ":")
	return source, field
}

// String returns the source as documentation writes it: "header:NAME".
func (s Source) String() string {
	if s.Field != "" {
		return s.Name + ":" + s.Field
	}
	return s.Name
}

// SourceNames lists sources as documentation writes them.
func SourceNames(all []Source) string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.String()
	}
	return strings.Join(names, ", ")
}
