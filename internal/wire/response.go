package wire

// A Response is the head of a response, read from an upstream. As with Request its strings may be kept.
type Response struct {
	Minor  int
	Status int    // 100–999
	Reason string // as it came; may be empty
	Fields []Field
	Length int64 // of the body: a number, Chunked, or UntilClose; 0 where the status or the method has none, whatever the fields say
	// Declared is what Content-Length says, also where the answer has no body (to HEAD, 304); -1: nothing.
	Declared int64
	Close    bool // the connection cannot be used again
}

// Parse reads a whole head of a response to a request of that method. It is as strict about what ends lines and frames bodies
// as Request.Parse is: an upstream that can be made to send two lengths must not be believed either.
func (r *Response) Parse(head, method string) error { panic("not yet") }

// Values is Request.Values.
func (r *Response) Values(name string) []string { return valuesOf(r.Fields, name) }

// Names is Request.Names.
func (r *Response) Names(field string) bool { panic("not yet") }
