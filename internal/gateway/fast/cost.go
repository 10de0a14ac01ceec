package fast

// What a request has cost may follow from its answer, and it may hold a slot until it has ended
// (weir.Limiter.Settles). The exchange reports its answer to the limiter in four steps: the head
// before it is written, the body while it passes, that it is complete, before the last bytes are
// written, and the end.

// reportHead reports the head of the answer, whose fields are in x.fields: the upstream's, without
// those of the connection, or the gateway's own. It changes the limiter's fields.
func (x *exchange) reportHead(status int) {
	if x.answer.Status == 0 && x.answer.Settles() {
		x.c.detachForStore()
		x.c.engine.Limit.Judge().Head(&x.c.ctx, &x.answer, status, x.told)
	}
}

// told returns the lines of a field of the answer. Trailer is not passed on as it came, and
// announces which fields the body brings.
func (x *exchange) told(name string) []string {
	if name == "Trailer" {
		return x.res.Values(name)
	}
	return x.fields.Values(name)
}

// reportBody reports the next bytes of the upstream's body, before they are sent.
func (x *exchange) reportBody(p []byte) {
	if !x.answer.Settles() {
		return
	}
	x.c.engine.Limit.Judge().Read(&x.answer, p)
	if x.answerBody.Done() {
		x.reportServed()
	}
}

// reportServed reports that the answer is complete, before its last bytes are written: a client
// that has the whole answer finds its budget settled, and its slot free. Nothing more is sent to
// the upstream then.
func (x *exchange) reportServed() {
	if !x.answer.Settles() {
		return
	}
	if x.upload != nil {
		_, _ = x.quiet()
	}
	x.c.detachForStore()
	x.c.engine.Limit.Judge().Served(&x.c.ctx, &x.answer)
}

// reportEnd reports that the request has ended: nothing of it is sent to either side any more. It
// may be called again.
func (x *exchange) reportEnd() {
	if x.answer.Settles() {
		x.c.detachForStore()
		x.c.engine.Limit.Judge().End(&x.c.ctx, &x.answer)
	}
}
