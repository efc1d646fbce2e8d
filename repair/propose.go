package repair

import (
	"context"
	"slices"
	"sync"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
)

// Limits of proposals. A batch of batchRows with keys of 1 KiB is a third of what one command may be.
const (
	batchRows       = 256
	batchDelay      = 10 * time.Millisecond // from the first of a batch
	proposeParallel = 8                     // commands in flight at a time
)

// outcome is one thing to write into a group; exactly one of landing, report and ended is set.
type outcome struct {
	group   ident.Group
	bucket  ident.ID
	row     rowID // not taken up again before the outcome is written
	landing *metadata.Landing
	report  *metadata.Report
	ended   *metadata.RepairOutcome
}

// send hands an outcome to the proposer; what is dropped when ctx ends is found again by the next leader.
func (w *Worker) send(ctx context.Context, o outcome) {
	select {
	case w.outcomes <- o:
	case <-ctx.Done():
	}
}

// proposeLoop writes outcomes into their groups, those of one bucket and kind in one command.
func (w *Worker) proposeLoop(ctx context.Context) {
	timer := time.NewTimer(batchDelay)
	defer timer.Stop()
	for {
		var batch []outcome
		select {
		case <-ctx.Done():
			return
		case o := <-w.outcomes:
			batch = append(batch, o)
		}
		timer.Reset(batchDelay)
		for full := false; !full && len(batch) < batchRows; {
			select {
			case <-ctx.Done():
				return
			case o := <-w.outcomes:
				batch = append(batch, o)
			case <-timer.C:
				full = true
			}
		}
		w.proposeBatch(ctx, batch)
	}
}

// proposal is the part of a batch that makes one command.
type proposal struct {
	group  ident.Group
	bucket ident.ID
	op     metadata.Op
	cmd    metadata.Command
	rows   []rowID
}

func (w *Worker) proposeBatch(ctx context.Context, batch []outcome) {
	var all []*proposal
	of := func(o *outcome, op metadata.Op) *proposal {
		for _, p := range all {
			if p.group == o.group && p.bucket == o.bucket && p.op == op {
				return p
			}
		}
		p := &proposal{group: o.group, bucket: o.bucket, op: op, cmd: metadata.Command{Op: op}}
		all = append(all, p)
		return p
	}
	for i := range batch {
		var p *proposal
		switch o := &batch[i]; {
		case o.landing != nil:
			p = of(o, metadata.OpLanded)
			p.cmd.Landings = append(p.cmd.Landings, *o.landing)
		case o.report != nil:
			p = of(o, metadata.OpReportBad)
			if !slices.Contains(p.cmd.Reports, *o.report) {
				p.cmd.Reports = append(p.cmd.Reports, *o.report)
			}
		default:
			p = of(o, metadata.OpRepairDone)
			p.cmd.Repairs = append(p.cmd.Repairs, *o.ended)
		}
		if o := &batch[i]; o.report == nil {
			p.rows = append(p.rows, o.row)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, proposeParallel)
	for _, p := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			w.propose(ctx, p)
		})
	}
	wg.Wait()
}

// propose writes one command. Rows whose outcome could not be written wait before they are tried again: the shard is
// there, so the next try only acknowledges it.
func (w *Worker) propose(ctx context.Context, p *proposal) {
	pctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	var err error
	what := "landed"
	switch p.op {
	case metadata.OpLanded:
		p.cmd.Key = p.cmd.Landings[0].Key
		_, err = w.deps.Router.CommandByID(pctx, p.bucket, &p.cmd)
	case metadata.OpReportBad:
		what, p.cmd.Key = "report", p.cmd.Reports[0].Key
		_, err = w.deps.Router.CommandByID(pctx, p.bucket, &p.cmd)
	default:
		what, p.cmd.Bucket = "repair_done", p.bucket
		_, err = w.deps.Router.GroupCommand(pctx, p.group, &p.cmd)
	}
	w.failed(ctx, what, err)
	w.settle(p.rows, err != nil)
}

// failed tells of an error, unless it is a bucket that went meanwhile, or this worker that ends.
func (w *Worker) failed(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil || oerr.Is(err, oerr.NoSuchBucket) {
		return
	}
	w.Metrics.Failed.Add(1)
	w.deps.Event("repair_failed", what+": "+err.Error())
}
