package weir

// A Compared is one request under the policy in force and under the candidate.
type Compared struct {
	Live, Candidate       *Decision // where a policy does not cover the request its Outcome is Unlimited
	LiveWho, CandidateWho []byte    // who the binding windows count (see Scratch.Who); nil where Unlimited
}

// SetCandidate evaluates p on the same requests as the policy in force, counting in s, and reports to Options.OnCandidate; it is
// never enforced. nil ends that. s must be InProcess, and no other Decider's. After an error what was evaluated before still is.
func (d *Decider) SetCandidate(p *Policy, s Store) error {
	panic("not written yet")
}
