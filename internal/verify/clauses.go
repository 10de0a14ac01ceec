package verify

// A Clause is one thing that callers rely on.
type Clause struct {
	ID     string // as reports and the command line name it
	Says   string // what holds where it is kept
	Source string // the contract's section, or our decision where the contract is silent
}

// Clauses are all that is verified, in the order in which reports list them.
var Clauses = []Clause{
	{"fields-served", "every response to a request that was admitted carries X-RateLimit-Limit, -Remaining and -Reset, each once, as integers", "contract, sections 1 and 5"},
	{"fields-error", "so do errors: 400, 401, 404, 405 and what validation refuses", "contract, sections 1 and 5"},
	{"fields-5xx", "so do server errors, 500 to 599, whoever on the way answers them", "contract, sections 1 and 5"},
	{"fields-preflight", "so do answers to CORS preflights", "contract, sections 1 and 5; D9"},
	{"fields-refused", "a 429 carries the three and Retry-After, each once, as integers", "contract, section 7.3"},
	{"retry-after-only-refused", "Retry-After comes only with a 429", "contract, section 5"},
	{"limit", "X-RateLimit-Limit is the limit of a window of the limiter that applies", "contract, sections 5, 7.5 and 8"},
	{"window", "Limit, Remaining and Reset describe one window: Reset is in the future, and no further away than that window is long", "contract, section 5; D4"},
	{"remaining", "Remaining counts down by one a request, without a gap or a repeat, however many come at once", "contract, section 5"},
	{"admitted", "exactly as many requests are admitted in a window as its limit says", "contract, section 8"},
	{"refused-free", "a refused request consumes nothing, in no window", "D2, D3"},
	{"reset-constant", "Reset is the same on every response of a window", "contract, sections 3 and 5"},
	{"restored", "the whole budget is restored at Reset: not before it, not after it", "contract, sections 3 and 8"},
	{"fixed-window", "the window stands still: whatever is spent late in it, Reset stays, Remaining does not rise, and at that Reset all of the budget is back", "contract, sections 3 and 8"},
	{"retry-after", "Retry-After is how long it takes until Reset: waiting it is enough, and not a second too long", "contract, sections 5 and 8"},
	{"refused-status", "what is over the limit is refused with 429, and with no other status", "contract, section 7.1"},
	{"refused-type", "a 429 is application/json", "contract, section 7.2"},
	{"refused-remaining", "Remaining is 0 on a 429, and only a 429 follows it", "contract, section 7.4"},
	{"refused-body", "a 429's body is an error object with the code rate_limited and a message", "contract, section 7.8"},
	{"language", "a 429 in another language has the same shape, and says which language it is in", "contract, section 7.8; D20"},
	{"separate", "one credential's requests leave another's budget alone", "contract, section 5"},
	{"shared", "one credential has one budget, whichever connection and endpoint of the limiter it uses", "contract, sections 4 and 8"},
	{"unverified", "a credential that does not verify is answered 401, spends nobody's budget but its address's, and does not escape that", "D16"},
	{"forwarded", "what a client writes into X-Forwarded-For and its like buys it no other budget", "D12"},
	{"spelling", "no spelling of an endpoint buys another budget", "D10"},
	{"preflight-free", "a preflight spends nothing of the endpoint's budget", "D9"},
	{"exposed", "browsers may read the four fields: Access-Control-Expose-Headers names them", "D22"},
}
