package sample

import (
	"net/http"
	"slices"
	"strings"
)

// A route is one endpoint. The table below is the whole API: dispatch, 405 and Allow derive from
// it.
type route struct {
	method  string
	pattern string   // segments in braces are parameters
	access  access   // the credential that it requires
	query   []string // the query parameters that it accepts, besides agent_id
	body    int64    // max bytes of the body; 0 means that it reads none
	serve   func(*Backend, *request) error
}

// String returns the route as the API description names it.
func (r *route) String() string { return r.method + " " + r.pattern }

// An access is the kind of credential that a route requires.
type access uint8

const (
	anyone access = iota
	bySession
	byToken
)

const (
	widget = "/api/v1/widget/"
	wp     = "/v1/wp/"
)

var paging = []string{"after", "limit"}

// routes returns the table. It is a function because a variable would be an initialization cycle
// with the handlers.
func routes() []route {
	return []route{
		{"POST", widget + "init", anyone, nil, 16 << 10, (*Backend).startSession},
		{"POST", widget + "messages", bySession, nil, 64 << 10, (*Backend).postMessage},
		{"POST", widget + "messages/{id}/feedback", bySession, nil, 1 << 10, (*Backend).postFeedback},
		{"GET", widget + "conversations", bySession, paging, 0, (*Backend).listConversations},
		{"POST", widget + "conversations", bySession, nil, 1 << 10, (*Backend).startConversation},
		{"GET", widget + "conversations/{id}", bySession, paging, 0, (*Backend).readConversation},
		{"POST", widget + "conversations/{id}/close", bySession, nil, 1 << 10, (*Backend).closeConversation},
		{"GET", widget + "events", bySession, append([]string{"conversation_id", "wait"}, paging...), 0, (*Backend).readEvents},
		{"POST", widget + "events", bySession, nil, 32 << 10, (*Backend).reportEvent},
		{"POST", widget + "leads", bySession, nil, 32 << 10, (*Backend).postLead},
		{"POST", widget + "typing", bySession, nil, 4 << 10, (*Backend).postTyping},
		{"POST", widget + "satisfaction", bySession, nil, 16 << 10, (*Backend).postSatisfaction},
		{"POST", widget + "coupon/apply", bySession, nil, 4 << 10, (*Backend).applyCoupon},
		{"GET", wp + "status", byToken, nil, 0, (*Backend).status},
		{"GET", wp + "documents", byToken, paging, 0, (*Backend).listDocuments},
		{"PUT", wp + "documents", byToken, nil, 8 << 20, (*Backend).putDocuments},
		{"DELETE", wp + "documents", byToken, nil, 1 << 20, (*Backend).deleteDocuments},
		{"GET", wp + "coupons", byToken, paging, 0, (*Backend).listCoupons},
		{"PUT", wp + "coupons", byToken, nil, 1 << 20, (*Backend).putCoupons},
	}
}

// A resource is all routes of one pattern.
type resource struct {
	segments []string
	routes   []*route
	allow    string // the Allow field
}

// resources groups the table by pattern.
func resources(table []route) []*resource {
	var all []*resource
	byPattern := map[string]*resource{}
	for i := range table {
		r := &table[i]
		res := byPattern[r.pattern]
		if res == nil {
			res = &resource{segments: strings.Split(r.pattern, "/")}
			byPattern[r.pattern] = res
			all = append(all, res)
		}
		res.routes = append(res.routes, r)
	}
	for _, res := range all {
		methods := []string{http.MethodOptions}
		for _, r := range res.routes {
			methods = append(methods, r.method)
			if r.method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
		}
		slices.Sort(methods)
		res.allow = strings.Join(methods, ", ")
	}
	return all
}

// match reports whether path matches the pattern, and returns the values of the parameters in
// order.
func (res *resource) match(path []string) (parameters []string, ok bool) {
	if len(path) != len(res.segments) {
		return nil, false
	}
	for i, segment := range res.segments {
		switch {
		case strings.HasPrefix(segment, "{") && path[i] != "":
			parameters = append(parameters, path[i])
		case segment != path[i]:
			return nil, false
		}
	}
	return parameters, true
}

// route returns the route for a method, or nil for a method without one. HEAD is served as GET, and
// net/http drops the body.
func (res *resource) route(method string) *route {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, r := range res.routes {
		if r.method == method {
			return r
		}
	}
	return nil
}
