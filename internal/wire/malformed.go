package wire

// Everything that is malformed, in one table: the status that a server answers with, and why. For a
// response the status is 502, see Response.Parse. Nothing may change a Refusal.
var (
	// The request line.
	badMethod      = &Refusal{400, "a request line that does not begin with a method and one space"}
	badTarget      = &Refusal{400, "a request target with a byte that it cannot have, or without one space after it"}
	targetFragment = &Refusal{400, "a request target with a fragment"}
	targetNoSlash  = &Refusal{400, "a request target that does not begin with a slash"}
	noVersion      = &Refusal{400, "a request line without a version of HTTP at its end"}
	afterVersion   = &Refusal{400, "a version of HTTP with something after it"}
	otherVersion   = &Refusal{505, "a version of HTTP other than 1.0 and 1.1"}

	// The status line of a response.
	badStatusLine = &Refusal{400, "a status line that does not begin with HTTP/1.0 or HTTP/1.1 and one space"}
	badStatus     = &Refusal{400, "a status that is not three digits"}
	badReason     = &Refusal{400, "a status line with a byte that it cannot have"}
	interimBody   = &Refusal{400, "an interim response with a body"}

	// Lines.
	headEnds      = &Refusal{400, "the head ends in the middle of a line"}
	bareLF        = &Refusal{400, "a line feed without a carriage return before it"}
	bareCR        = &Refusal{400, "a carriage return without a line feed after it"}
	obsFold       = &Refusal{400, "a line that continues the one before (obs-fold)"}
	afterHead     = &Refusal{400, "bytes after the end of the head"}
	noName        = &Refusal{400, "a field line without a name"}
	blankInName   = &Refusal{400, "a blank in a field's name, or between it and the colon"}
	noColon       = &Refusal{400, "a line without a colon"}
	badName       = &Refusal{400, "a byte in a field's name that is not part of a token"}
	badValue      = &Refusal{400, "a control byte in a field's value"}
	tooManyFields = &Refusal{431, "more field lines than allowed"}

	// Who is asked, and for what.
	manyHosts = &Refusal{400, "more than one Host"}
	noHost    = &Refusal{400, "no Host"}
	badExpect = &Refusal{417, "an expectation other than 100-continue"}

	// Framing.
	disguisedFraming  = &Refusal{400, "a field name that a backend may take for Content-Length or Transfer-Encoding"}
	manyLengths       = &Refusal{400, "more than one Content-Length line"}
	badLength         = &Refusal{400, "a Content-Length that is not a number of at most 19 digits"}
	lengthNotDigits   = &Refusal{400, "a Content-Length that is not digits alone"}
	hugeLength        = &Refusal{400, "a Content-Length beyond 63 bits"}
	manyCodings       = &Refusal{400, "more than one Transfer-Encoding line"}
	lengthAndCoding   = &Refusal{400, "both Content-Length and Transfer-Encoding"}
	codingInHTTP10    = &Refusal{400, "a Transfer-Encoding in HTTP/1.0"}
	badCodingList     = &Refusal{400, "a Transfer-Encoding that is not a list of codings"}
	afterChunked      = &Refusal{400, "a Transfer-Encoding with something after chunked"}
	chunkedParameters = &Refusal{400, "a Transfer-Encoding of chunked with parameters"}
	otherCoding       = &Refusal{501, "a Transfer-Encoding other than chunked"}
	badOption         = &Refusal{400, "a connection option that is not a token"}
	tooManyOptions    = &Refusal{431, "more connection options than allowed"}

	// Chunks, and trailers after them.
	badChunkEnd       = &Refusal{400, "a chunk with something other than the end of a line after it"}
	longChunkLine     = &Refusal{400, "a chunk's size line longer than allowed"}
	badChunkSize      = &Refusal{400, "a chunk's size that is not one to sixteen hexadecimal digits below 2^63"}
	bareChunkLF       = &Refusal{400, "a chunk's size line that ends with a bare line feed"}
	badExtension      = &Refusal{400, "a chunk's size with something other than an extension after it"}
	tooManyExtensions = &Refusal{400, "more chunk extensions than allowed"}
	longTrailers      = &Refusal{431, "more bytes of trailers than allowed"}
	headTrailer       = &Refusal{400, "a trailer that belongs in the head"}
)

// HeadTooLarge refuses a head that is longer than its Reader may buffer.
var HeadTooLarge = &Refusal{431, "the request's header is larger than is allowed here"}

// BadTarget refuses a request target that is not a URL.
var BadTarget = &Refusal{400, "an invalid request target"}

// BadHost refuses a Host that ValidHost does not accept.
var BadHost = &Refusal{400, "a Host that is not a host and port"}
