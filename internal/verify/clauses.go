package verify

// A Clause is one thing that callers rely on. To add a clause, add a row to Clauses and write its
// function.
type Clause struct {
	ID     string // as reports and the command line name it
	Says   string // what holds if the clause is kept
	Source string // the contract's section, or our decision on what the contract leaves open

	check func(*check) hooks // what the clause observes and how it judges; called once per limiter
}

// Clauses are all clauses, in the order in which they are checked and reported.
var Clauses = []Clause{
	{"fields-served", "every response to an admitted request carries X-RateLimit-Limit, -Remaining and -Reset, each once, as integers", "contract, sections 1 and 5", checkFieldsServed},
	{"fields-error", "so do errors: 400, 401, 404, 405 and validation errors", "contract, sections 1 and 5", checkFieldsError},
	{"fields-5xx", "so do server errors, 500 to 599, including those of a proxy on the way", "contract, sections 1 and 5", checkFields5xx},
	{"fields-preflight", "so do answers to CORS preflights", "contract, sections 1 and 5; D9", checkFieldsPreflight},
	{"fields-refused", "a 429 carries the three fields and Retry-After, each once, as integers", "contract, section 7.3", checkFieldsRefused},
	{"retry-after-only-refused", "only a 429 carries Retry-After", "contract, section 5", checkRetryAfterOnlyRefused},
	{"limit", "X-RateLimit-Limit is the limit of one of the limiter's windows", "contract, sections 5, 7.5 and 8", checkLimit},
	{"window", "Limit, Remaining and Reset describe one window: Reset is in the future, and no further away than the window is long", "contract, section 5; D4", checkWindow},
	{"remaining", "Remaining counts down by one per request, without gaps or repeats, however many requests are concurrent", "contract, section 5", checkRemaining},
	{"admitted", "a window admits exactly as many requests as its limit allows", "contract, section 8", checkAdmitted},
	{"refused-free", "a refused request consumes nothing in any window", "D2, D3", checkRefusedFree},
	{"reset-constant", "Reset is the same on every response of a window", "contract, sections 3 and 5", checkResetConstant},
	{"restored", "the whole budget is restored at Reset, neither before nor after", "contract, sections 3 and 8", checkRestored},
	{"fixed-window", "the window is fixed: however much is spent late in it, Reset does not move, Remaining does not rise, and the whole budget is back at Reset", "contract, sections 3 and 8", checkFixedWindow},
	{"retry-after", "Retry-After is the time until Reset: waiting that long is enough, and not a second too long", "contract, sections 5 and 8", checkRetryAfter},
	{"refused-status", "a request over the limit is refused with 429 and no other status", "contract, section 7.1", checkRefusedStatus},
	{"refused-type", "a 429 is application/json", "contract, section 7.2", checkRefusedType},
	{"refused-remaining", "Remaining is 0 on a 429, and after Remaining 0 the window answers only 429", "contract, section 7.4", checkRefusedRemaining},
	{"refused-body", "a 429's body is an error object with the code rate_limited and a message", "contract, section 7.8", checkRefusedBody},
	{"language", "a 429 in another language has the same shape and names its language", "contract, section 7.8; D20", checkLanguage},
	{"separate", "one credential's requests do not change another's budget", "contract, section 5", checkSeparate},
	{"shared", "one credential has one budget across all connections and all endpoints of the limiter", "contract, sections 4 and 8", checkShared},
	{"value", "a value that the limiter counts by has one budget, in whatever spelling or beside whatever other value it is sent", "D10, D32", checkValue},
	{"unverified", "a credential that does not verify is answered 401 if the limiter requires one, spends only its address's budget, and does not bypass that budget", "D16, D27", checkUnverified},
	{"forwarded", "a client gains no second budget by writing X-Forwarded-For or a similar field", "D12", checkForwarded},
	{"spelling", "no spelling of an endpoint gains another budget", "D10", checkSpelling},
	{"penalty", "the declared number of refusals begins the penalty: everything is refused until the announced end, and free again then", "policy, penalty", checkPenalty},
	{inFlightClause, "as many requests are under way as the policy allows, and no more: the next one is refused with Retry-After 1, and spends nothing", "D29", checkInFlight},
	{"outcome", "a request is charged before it is served; what it did not cost comes back to its window, and what it did cost does not", "D28", checkOutcome},
	{"preflight-free", "a preflight spends nothing of the endpoint's budget", "D9", checkPreflightFree},
	{"exposed", "browsers may read the four fields: Access-Control-Expose-Headers names them", "D22", checkExposed},
}
