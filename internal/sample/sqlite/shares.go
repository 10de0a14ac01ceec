package sqlite

import "fmt"

// A Share is a part of the storage that is bounded by itself.
type Share string

const (
	OfDocuments Share = "documents" // everything but what visitors store
	OfVisitors  Share = "visitors"  // what visitors store, of all workspaces
	OfWorkspace Share = "workspace" // what the visitors of one workspace store
	OfNetwork   Share = "network"   // what visitors of one IPv6 network store
	OfAddress   Share = "address"   // what visitors at one address store
	OfSession   Share = "session"   // what one session stores
)

// A ShareError says which share has no room for what a transaction would have stored. It is an
// ErrFull.
type ShareError struct {
	Share     Share
	Workspace string // whose visitor asked; empty for OfDocuments
	Used      int64  // bytes that would be in use
	Most      int64  // bytes that may be
}

func (e *ShareError) Error() string {
	return fmt.Sprintf("the share of one %s is used up: %d bytes would be in use, %d may be", e.Share, e.Used, e.Most)
}

// Is makes every ShareError an ErrFull.
func (e *ShareError) Is(target error) bool { return target == ErrFull }

const (
	visitorsPart  = 2 // visitors have a half of what the empty database leaves; documents have the other
	workspacePart = 4 // a workspace has at most four times what is free, so that a fifth is left for the others
	networkPart   = 4 // a network has at most a fourth of its workspace's allowance
	addressPart   = 8 // an address an eighth; in a network, a half of what the network has left
	sessionPart   = 8 // a session an eighth of what its address has left

	// alwaysServed is what a network, an address and a session may have in any case, as long as
	// their workspace has room. A visitor who asks a few questions and leaves an address needs
	// less.
	alwaysServed = 16 << 10
)

// holdings say who holds how much of the visitors' share, in bytes, once a transaction has stored
// something.
type holdings struct {
	visitors  int64 // pages in use
	workspace int64 // charges from here on
	network   int64 // 0: the address is in none that counts
	address   int64
	session   int64
}

// overdrawn returns the share that h exceeds, the narrowest first, where all visitors together may
// have most bytes; nil: none.
//
// No bound is a fixed part of the storage, for nothing is deleted to make room: a fixed part for
// each address would let as many addresses as there are parts fill it. Instead a bound is a part of
// what is left, times how much of it is left. The more is used, the less a newcomer may take, so
// that what n addresses leave goes down with n, and not with a power of n: of one workspace's room
// ten addresses leave nearly a half, a hundred a thirteenth, and five hundred a sixtieth.
func (h holdings) overdrawn(most int64) *ShareError {
	free := most - h.visitors
	room := (workspacePart*free - h.workspace) / (workspacePart + 1) // what the workspace could add if nobody else did
	if free < 0 {
		return &ShareError{Share: OfVisitors, Used: h.visitors, Most: most}
	}
	if room < 0 {
		return &ShareError{Share: OfWorkspace, Used: h.workspace, Most: workspacePart * free}
	}
	allowance := int64(float64(room) * float64(room) / float64(max(1, room+h.workspace)))
	network := allowance / networkPart
	address := allowance / addressPart
	if h.network > 0 {
		address = (network - h.network) / 2
	}
	session := (address - h.address) / sessionPart
	for _, bound := range []struct {
		share      Share
		used, most int64
	}{
		{OfSession, h.session, session},
		{OfAddress, h.address, address},
		{OfNetwork, h.network, network},
	} {
		if bound.used > max(alwaysServed, bound.most) {
			return &ShareError{Share: bound.share, Used: bound.used, Most: max(alwaysServed, bound.most)}
		}
	}
	return nil
}
