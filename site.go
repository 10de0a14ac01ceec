package weir

// sites are the routes of a policy by the host that they name.
type sites struct{ HostTable[site] }

// A site has the routes of one host, or of all hosts under one name.
type site struct {
	table *table
	wider *site // whose routes cover what these do not; nil: no other routes
}

func newSites() *sites {
	s := new(sites)
	s.of("")
	return s
}

// add adds a route, as table.add does.
func (s *sites) add(r Route, by *cover) (taken *cover, ok bool) {
	return s.of(r.Host).table.add(r, by)
}

// of returns the site of a route's host, and makes a missing one.
func (s *sites) of(host string) *site {
	at := s.at(host)
	if at.table == nil {
		at.table = newTable()
	}
	return at
}

// link completes the sites after the last add.
func (s *sites) link() {
	for host, site := range s.exact {
		site.wider = s.above(host)
	}
	for suffix, site := range s.under {
		site.wider = s.above(suffix[1:])
	}
}

// match returns the most specific route of a request: that of the narrowest site that has one.
func (s *sites) match(method, authority, path string) *cover {
	for at := s.Get(authority); at != nil; at = at.wider {
		if by := at.table.match(method, path); by != nil {
			return by
		}
	}
	return nil
}

// walk calls visit with every route that covers a request, the most specific first, until visit
// returns false.
func (at *site) walk(method, path string, visit func(*cover) bool) {
	for ; at != nil; at = at.wider {
		if !at.table.walk(method, path, visit) {
			return
		}
	}
}

// catchAll returns the least specific route of the narrowest site that has one for the path.
func (s *sites) catchAll(authority, path string) *cover {
	for at := s.Get(authority); at != nil; at = at.wider {
		if by := at.table.catchAll(path); by != nil {
			return by
		}
	}
	return nil
}
