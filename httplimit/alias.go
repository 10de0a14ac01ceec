package httplimit

import "github.com/weirlimit/weir/answer"

// The names that moved to package answer.
type (
	Observation = answer.Observation
	Outcome     = answer.Outcome
	Field       = answer.Field
	Answer      = answer.Answer
	Speaker     = answer.Negotiator
)

const (
	Unlimited       = answer.Unlimited
	Admitted        = answer.Admitted
	Refused         = answer.Refused
	Unauthenticated = answer.Unauthenticated
	Unavailable     = answer.Unavailable
)

// NewSpeaker is answer.NewNegotiator.
func NewSpeaker() Speaker { return answer.NewNegotiator() }

// Messages is answer.Messages.
func Messages() []string { return answer.Messages() }

// MessageOf is answer.MessageOf.
var MessageOf = answer.MessageOf
