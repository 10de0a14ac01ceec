package owned

import (
	"os/user"
	"strconv"
)

// An owner is whom a file belongs to.
type owner struct{ uid, gid int }

// user returns the user's name, or the number of a user without one.
func (o owner) user() string {
	id := strconv.Itoa(o.uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// group returns the group's name, or the number of a group without one.
func (o owner) group() string {
	id := strconv.Itoa(o.gid)
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}

// runAs returns the hint to run a command as the user, or "" for root: a server that lacks a
// permission is not to run as root.
func (o owner) runAs() string {
	if o.uid == 0 {
		return ""
	}
	name := o.user()
	if name == strconv.Itoa(o.uid) {
		name = "'#" + name + "'" // as sudo takes a number
	}
	return "run this as the user " + o.user() + ", such as with: sudo -u " + name + " weir …"
}
