// Package envoyratelimit compares the answers of --rls with those of envoyproxy/ratelimit, which
// answers the same requests by the same configuration on the same Redis. It has only tests, and is
// a module of its own, so that no user of Weir downloads what that service is made of.
package envoyratelimit
