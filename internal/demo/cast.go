package demo

import "time"

// A role describes some visitors that behave alike.
type role struct {
	visitors int
	every    time.Duration // average interval between two requests of a visitor
	polite   bool          // whether it honors Retry-After
	address  int           // index of the first visitor's client
	spread   int           // added to the index for each further visitor
	session  bool          // whether it starts a session first
	token    int           // number of its API token, from 1; 0 if it has none
	acts     []act         // each request is one of them, at random
}

// An act is one request.
type act struct {
	often              int // weight in the random choice
	method, path, body string
}

const (
	widget = "/api/v1/widget/"
	wp     = "/v1/wp/"

	documents = `{"items":[{"id":"returns","title":"Returns and refunds","url":"https://shop.example.com/returns",` +
		`"text":"You can return anything within 30 days, for any reason. The refund is on your account within five working days."},` +
		`{"id":"care","title":"Caring for wool","url":"https://shop.example.com/care","text":"Wash wool by hand in lukewarm water, and dry it lying flat."}]}`
	coupons = `{"items":[{"code":"SPRING10","percent":10}]}`
)

// cast are all roles, with their rates and the contract's limits. Most requests read, so that a day
// of traffic stores few rows.
var cast = []role{
	// Shoppers who chat occasionally: 6 requests a second, over all addresses.
	{visitors: 24, every: 4 * time.Second, polite: true, spread: 1, session: true, acts: []act{
		{1, "POST", widget + "messages", `{"text":"Can I return a jumper?"}`},
		{8, "GET", widget + "conversations", ""},
		{8, "GET", widget + "events", ""},
		{8, "POST", widget + "typing", `{"typing":true}`},
		{1, "POST", widget + "satisfaction", `{"score":5}`},
		{1, "POST", widget + "coupon/apply", `{"code":"SPRING10","total":"49.90"}`},
	}},
	// A page that polls its conversation too fast: 420 a minute; the limit is 300.
	{visitors: 1, every: 140 * time.Millisecond, address: 1, session: true, acts: []act{{1, "GET", widget + "conversations", ""}}},
	// A form that sends every lead twice: 46 a minute; the limit is 30. Another stays below it: 28.
	{visitors: 1, every: 1300 * time.Millisecond, address: 2, session: true, acts: []act{{1, "POST", widget + "leads", `{"email":"ada@example.com"}`}}},
	{visitors: 1, every: 2150 * time.Millisecond, address: 3, polite: true, session: true, acts: []act{{1, "POST", widget + "leads", `{"email":"grace@example.com"}`}}},
	// An office behind one address: 540 a minute; the limit is 600. A script at another address:
	// 700.
	{visitors: 6, every: 670 * time.Millisecond, address: 4, polite: true, session: true, acts: []act{{1, "POST", widget + "typing", `{"typing":true}`}}},
	{visitors: 1, every: 85 * time.Millisecond, address: 5, session: true, acts: []act{{1, "POST", widget + "typing", `{"typing":true}`}}},
	// Ratings: 55 a minute; the limit is 60.
	{visitors: 1, every: 1090 * time.Millisecond, address: 6, polite: true, session: true, acts: []act{{1, "POST", widget + "satisfaction", `{"score":1}`}}},
	// A client that guesses coupons: 140 a minute; the limit is 120.
	{visitors: 1, every: 430 * time.Millisecond, address: 7, session: true, acts: []act{{1, "POST", widget + "coupon/apply", `{"code":"FREE100"}`}}},
	// New visitors, and a scanner.
	{visitors: 1, every: 1500 * time.Millisecond, address: 8, acts: []act{{1, "POST", widget + "init", `{"agent_id":"` + Workspace + `"}`}}},
	{visitors: 1, every: 2 * time.Second, address: 9, acts: []act{{1, "GET", widget + "admin", ""}, {1, "GET", widget + ".env", ""}, {1, "POST", widget + "leads", `{"email":"x@example.com"}`}}},
	// Two plugins that sync: 57 and 85 a minute; the limit is 60.
	{visitors: 1, every: 1050 * time.Millisecond, address: 10, polite: true, token: 1, acts: []act{
		{1, "PUT", wp + "documents", documents}, {1, "PUT", wp + "coupons", coupons}, {10, "GET", wp + "status", ""}, {8, "GET", wp + "documents", ""}}},
	{visitors: 1, every: 700 * time.Millisecond, address: 11, token: 2, acts: []act{{1, "GET", wp + "documents", ""}, {1, "GET", wp + "coupons", ""}}},
}
