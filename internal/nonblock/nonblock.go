// Package nonblock reads and writes connected sockets without waiting.
//
// On Linux its calls neither wait, whatever the mode of the socket is, nor announce themselves to
// Go's scheduler as calls that may wait: that costs a tenth of a microsecond each. Where the race
// detector is on, and elsewhere, they are those of package syscall, and the socket must be in
// non-blocking mode.
package nonblock
