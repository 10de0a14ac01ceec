package sqlite

import "fmt"

// A Share is a part of the storage that has its own bound.
type Share string

const (
	OfDocuments Share = "documents" // everything except visitors' rows
	OfVisitors  Share = "visitors"  // visitors' rows of all workspaces
	OfWorkspace Share = "workspace" // visitors' rows of one workspace
	OfNetwork   Share = "network"   // visitors' rows from one IPv6 network
	OfAddress   Share = "address"   // visitors' rows from one address
	OfSession   Share = "session"   // rows of one session
)

// A ShareError means that a share has no room for what a transaction would have stored. It wraps
// ErrFull.
type ShareError struct {
	Share     Share
	Workspace string // the visitor's workspace; empty for OfDocuments
	Used      int64  // bytes that the transaction would have left in use
	Max       int64  // bytes that may be in use
}

func (e *ShareError) Error() string {
	return fmt.Sprintf("the %s share is used up: %d bytes would be in use, %d are allowed", e.Share, e.Used, e.Max)
}

// Is reports whether target is ErrFull.
func (e *ShareError) Is(target error) bool { return target == ErrFull }

const (
	// visitors have half of what the empty database leaves, documents the other half
	visitorsPart = 2
	// a workspace has at most 4 times what is free, which leaves a fifth for the others
	workspacePart = 4
	networkPart   = 4 // a network has at most a quarter of its workspace's allowance
	// An address has at most an eighth of that allowance; in a network, half of what the network
	// has left.
	addressPart = 8
	sessionPart = 8 // a session has at most an eighth of what its address has left

	// minShare is the min bound of a network, an address and a session, as long as their workspace
	// has room. A visitor who asks a few questions and leaves an address needs less.
	minShare = 16 << 10
)

// holdings are the bytes in use of each share that a transaction belongs to, after it has stored
// its rows.
type holdings struct {
	visitors  int64 // pages in use
	workspace int64 // charges, like the fields below
	network   int64 // 0 means that the address is counted alone
	address   int64
	session   int64
}

// exceeded returns the narrowest share that h exceeds, or nil. All visitors together may have limit
// bytes.
//
// No bound is a fixed part of the storage, because nothing is deleted to make room: if each address
// had a fixed part, as many addresses as there are parts would fill it. A bound is instead a part
// of the free space, times the fraction that is free. A newcomer may store less the more is in use,
// so that the space that n addresses leave falls with 1/n instead of exponentially: ten addresses
// leave nearly half of a workspace's room, a hundred a thirteenth, and five hundred a sixtieth.
func (h holdings) exceeded(limit int64) *ShareError {
	free := limit - h.visitors
	// This is what the workspace could add if no other did.
	room := (workspacePart*free - h.workspace) / (workspacePart + 1)
	if free < 0 {
		return &ShareError{Share: OfVisitors, Used: h.visitors, Max: limit}
	}
	if room < 0 {
		return &ShareError{Share: OfWorkspace, Used: h.workspace, Max: workspacePart * free}
	}
	allowance := int64(float64(room) * float64(room) / float64(max(1, room+h.workspace)))
	network := allowance / networkPart
	address := allowance / addressPart
	if h.network > 0 {
		address = (network - h.network) / 2
	}
	session := (address - h.address) / sessionPart
	for _, bound := range []struct {
		share       Share
		used, limit int64
	}{
		{OfSession, h.session, session},
		{OfAddress, h.address, address},
		{OfNetwork, h.network, network},
	} {
		if bound.used > max(minShare, bound.limit) {
			return &ShareError{Share: bound.share, Used: bound.used, Max: max(minShare, bound.limit)}
		}
	}
	return nil
}
