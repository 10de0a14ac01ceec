package demo

import "time"

// A role is what some visitors do.
type role struct {
	visitors int
	every    time.Duration // between two requests of one of them, on average
	heeds    bool          // whether a 429 makes it wait as long as it is told
	address  int           // which client's address the first has
	spread   int           // how far the next is from it
	session  bool          // whether it begins a session first
	token    int           // which API token it has, from 1; 0: none
	acts     []act         // one of them at a time, at random
}

// An act is one request.
type act struct {
	often              int // beside the others
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

// cast is who comes, with what it amounts to under the contract. Most of it reads, so that a day of it leaves few rows.
var cast = []role{
	// Shoppers who chat now and then: 6 a second, over all addresses.
	{visitors: 24, every: 4 * time.Second, heeds: true, spread: 1, session: true, acts: []act{
		{1, "POST", widget + "messages", `{"text":"Can I return a jumper?"}`},
		{8, "GET", widget + "conversations", ""},
		{8, "GET", widget + "events", ""},
		{8, "POST", widget + "typing", `{"typing":true}`},
		{1, "POST", widget + "satisfaction", `{"score":5}`},
		{1, "POST", widget + "coupon/apply", `{"code":"SPRING10","total":"49.90"}`},
	}},
	// A page that polls its conversation too fast: 420 a minute of 300.
	{visitors: 1, every: 140 * time.Millisecond, address: 1, session: true, acts: []act{{1, "GET", widget + "conversations", ""}}},
	// A form that sends a lead twice, again and again: 46 a minute of 30; and one that comes near: 28.
	{visitors: 1, every: 1300 * time.Millisecond, address: 2, session: true, acts: []act{{1, "POST", widget + "leads", `{"email":"ada@example.com"}`}}},
	{visitors: 1, every: 2150 * time.Millisecond, address: 3, heeds: true, session: true, acts: []act{{1, "POST", widget + "leads", `{"email":"grace@example.com"}`}}},
	// An office behind one address: 540 a minute of 600. A script at another: 700.
	{visitors: 6, every: 670 * time.Millisecond, address: 4, heeds: true, session: true, acts: []act{{1, "POST", widget + "typing", `{"typing":true}`}}},
	{visitors: 1, every: 85 * time.Millisecond, address: 5, session: true, acts: []act{{1, "POST", widget + "typing", `{"typing":true}`}}},
	// Ratings: 55 a minute of 60.
	{visitors: 1, every: 1090 * time.Millisecond, address: 6, heeds: true, session: true, acts: []act{{1, "POST", widget + "satisfaction", `{"score":1}`}}},
	// Somebody who guesses coupons: 140 a minute of 120.
	{visitors: 1, every: 430 * time.Millisecond, address: 7, session: true, acts: []act{{1, "POST", widget + "coupon/apply", `{"code":"FREE100"}`}}},
	// New visitors, and a scanner.
	{visitors: 1, every: 1500 * time.Millisecond, address: 8, acts: []act{{1, "POST", widget + "init", `{"agent_id":"` + Workspace + `"}`}}},
	{visitors: 1, every: 2 * time.Second, address: 9, acts: []act{{1, "GET", widget + "admin", ""}, {1, "GET", widget + ".env", ""}, {1, "POST", widget + "leads", `{"email":"x@example.com"}`}}},
	// Two plugins that sync: 57 a minute of 60, and 85.
	{visitors: 1, every: 1050 * time.Millisecond, address: 10, heeds: true, token: 1, acts: []act{
		{1, "PUT", wp + "documents", documents}, {1, "PUT", wp + "coupons", coupons}, {10, "GET", wp + "status", ""}, {8, "GET", wp + "documents", ""}}},
	{visitors: 1, every: 700 * time.Millisecond, address: 11, token: 2, acts: []act{{1, "GET", wp + "documents", ""}, {1, "GET", wp + "coupons", ""}}},
}
