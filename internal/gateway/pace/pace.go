// Package pace ends connections whose other side is too slow, quiet or gone. It knows sockets and
// time, and no HTTP engine: both engines of the gateway serve clients through it, and reach
// upstreams through it.
//
//	rate.go       how slow a client may be: Limits, Allowance
//	conn.go       a deadline for every write, and the minimum rate of a client that takes an answer
//	sender.go     the same for a client that sends the body of an HTTP/1 request
//	direction.go  the same for all streams of an HTTP/2 connection together
//	tunnel.go     a websocket that is silent, or of which one side has ended
//	hangup_*.go   whether the other side has hung up
//	vanish_*.go   a peer that has vanished
//	unsent_*.go   what a client has not acknowledged
//	records.go    where a TLS record starts
//	layers.go     connections over connections; sets of them
package pace
