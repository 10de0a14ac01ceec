package pace

// Records follow what is read of TLS records, so that each read but the first takes one record at
// most. Without that, what a client sends right after its handshake would be buffered by TLS, and
// the time for a request's head could not start. The zero value is ready for use.
type Records struct {
	begun  bool
	header [5]byte
	known  int // of header
	left   int // of the record behind it
}

// Room returns the part of p that the next read may fill.
func (r *Records) Room(p []byte) []byte {
	switch {
	case !r.begun: // a hello, or not TLS at all
		return p
	case r.left > 0:
		return p[:min(len(p), r.left)]
	}
	return p[:min(len(p), len(r.header)-r.known)]
}

// Read records what was read into Room.
func (r *Records) Read(p []byte) {
	for r.begun = r.begun || len(p) > 0; len(p) > 0; {
		if r.left > 0 {
			n := min(r.left, len(p))
			r.left -= n
			p = p[n:]
			continue
		}
		n := copy(r.header[r.known:], p)
		p = p[n:]
		if r.known += n; r.known == len(r.header) {
			r.known, r.left = 0, int(r.header[3])<<8|int(r.header[4])
		}
	}
}
