package report

import (
	"errors"
	"fmt"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/replay"
)

// Judge judges conditions on a report of a whole log. unseen are the fields that key sources were
// to be read from and that no line had, as SOURCE=FIELD. A condition about figures that cannot be
// trusted holds, whatever was measured.
func Judge(r *replay.Report, conditions []*Condition, unseen []string) []Verdict {
	verdicts := []Verdict{} // never nil, which JSON would write as null
	for _, c := range conditions {
		verdicts = append(verdicts, c.Judge(r))
	}
	for i := range verdicts {
		v := &verdicts[i]
		if len(unseen) > 0 {
			v.Holds, v.Measured = true, v.Measured+"; but no line has a field that --key names"
		}
		if r.Log.Dropped > 0 {
			v.Holds, v.Measured = true, v.Measured+"; but the log itself reports that requests are missing"
		}
		if Disordered(r) {
			v.Holds, v.Measured = true, v.Measured+"; but more than 0.1 % of the requests came out of order, and were counted at a wrong time"
		}
	}
	return verdicts
}

// Last returns the outcome that conditions are about: that of the second policy, if there is one.
func Last(r *replay.Report) *replay.Outcome { return last(r) }

// GateFailure returns the failure to end with if one of the verdicts holds, or the figures cannot
// be trusted; nil if there are no verdicts.
func GateFailure(r *replay.Report, verdicts []Verdict, unseen []string) error {
	failed := 0
	for _, v := range verdicts {
		if v.Holds {
			failed++
		}
	}
	switch {
	case len(verdicts) == 0:
		return nil
	case !Covers(last(r)):
		return cli.Fail(errors.New("no gate passes if no limiter covers any request"),
			"are its routes those of the log's paths? 'weir policy explain METHOD PATH' shows which limiter covers a path")
	case Crowded(r):
		return cli.Fail(errors.New("no gate passes if there was too little memory for exact figures"), "give more --memory")
	case Disordered(r):
		return cli.Fail(fmt.Errorf("no gate passes if more than 0.1 %% of the requests came out of order: %d of %s did, by %d s at most",
			r.Log.OutOfOrder, cli.Count(int(r.Log.Requests), "request"), r.Log.Disorder), "give more --reorder, and the logs of several servers as a file each")
	case r.Log.Dropped > 0:
		return cli.Fail(fmt.Errorf("no gate passes if requests are missing in the log: it reports %d itself", r.Log.Dropped),
			"replay a log that is complete: one that was written to a faster disk, or at another time")
	case len(unseen) > 0:
		return cli.Fail(fmt.Errorf("no gate passes if no line has the field of --key %s", unseen[0]), "name a field that the log has, or leave it out")
	case failed > 0:
		return cli.Fail(fmt.Errorf("%d of %s failed", failed, cli.Count(len(verdicts), "gate")), "")
	}
	return nil
}
