package accesslog

// OpenFiles returns how many files the merge has open.
func (r *Reader) OpenFiles() int { return len(r.open) }
