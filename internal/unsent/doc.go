// Package unsent bounds and measures what the kernel holds of a socket's writes: bytes that a
// program has written and the other side has not received. With a bound a slow reader shows in
// writes that do not return; the measure shows how much it has really read.
package unsent
