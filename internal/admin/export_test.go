package admin

// TokensAge is for tests: after it, a new token is known.
const TokensAge = tokensAge
