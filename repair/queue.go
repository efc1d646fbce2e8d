package repair

import (
	"context"
	"fmt"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
)

// job is a repair row to work on.
type job struct {
	group ident.Group
	row   metadata.RepairRow
	read  time.Time // when the row was read
}

// repairRound goes once over the repair rows of every group led here and hands those that are due to the workers. It
// waits for workers, never for a row: one large shard or stuck drive holds up only itself.
func (w *Worker) repairRound(ctx context.Context, jobs chan<- *job) time.Duration {
	interval, took := idleInterval, time.Duration(0)
	for _, g := range w.deps.Leads() {
		after := ""
		for ctx.Err() == nil {
			a, err := w.query(ctx, g, &metadata.Query{Op: metadata.QueryRepair, After: after, Max: pageRows}, &took)
			if err != nil {
				break // no leader now: the next round finds the new one
			}
			read := time.Now()
			for i := range a.Repairs {
				if row := &a.Repairs[i]; w.take(row) {
					interval = roundInterval
					select {
					case jobs <- &job{group: g, row: *row, read: read}:
					case <-ctx.Done():
						return interval
					}
				}
			}
			if !a.Truncated {
				break
			}
			after = a.Next
		}
	}
	w.prune()
	return pause(interval, took)
}

// work repairs rows, one at a time.
func (w *Worker) work(ctx context.Context, jobs <-chan *job) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-jobs:
			w.repairRow(ctx, j)
		}
	}
}

// take says whether a row is to be tried now, and if so keeps others from trying it: it is old enough, not backed off,
// and its drive is there and answers.
func (w *Worker) take(row *metadata.RepairRow) bool {
	if !row.Checked && time.Since(time.UnixMilli(row.Created)) < w.cfg.CommitAge {
		return false
	}
	d := w.drive(&row.Blob, row.Index)
	if d == nil || d.State == cluster.DriveRemoved || !w.deps.Alive(d.Node) {
		return false
	}
	id := rowID{row.Blob.ID, row.Index}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, busy := w.mu.flight[id]; busy {
		return false
	}
	if r, tried := w.mu.retry[id]; tried && time.Now().Before(r.at) {
		return false
	}
	if !w.targets.admit(d.ID) {
		return false
	}
	w.mu.flight[id] = struct{}{}
	return true
}

// repairRow brings one shard back: it asks the drive first (a late shard may have landed), then rebuilds.
func (w *Worker) repairRow(ctx context.Context, j *job) {
	row := &j.row
	id := rowID{row.Blob.ID, row.Index}
	o := outcome{group: j.group, bucket: row.Bucket, row: id}
	if time.Since(j.read) > rowLife {
		w.settle([]rowID{id}, false)
		return
	}
	err := w.tryRow(ctx, j, &o)
	if err != nil && (oerr.Is(err, oerr.StaleEpoch) || oerr.Is(err, oerr.WrongIncarnation)) {
		w.refresh(ctx)
	}
	if err != nil {
		w.mu.Lock()
		w.backOffLocked(id, row.Lost || o.ended != nil)
		w.mu.Unlock()
	}
	if o.landing != nil || o.ended != nil {
		w.send(ctx, o)
		return
	}
	w.settle([]rowID{id}, false)
	if err != nil && !row.Lost && !expected(err) {
		w.failed(ctx, fmt.Sprintf("shard %s.%d", row.Blob.ID, row.Index), err)
	}
}

// backOffLocked makes a row wait, a lost one for long.
func (w *Worker) backOffLocked(id rowID, lost bool) {
	r, known := w.mu.retry[id]
	if !known && len(w.mu.retry) >= maxRemembered {
		for other := range w.mu.retry {
			delete(w.mu.retry, other) // it is tried once more, early
			break
		}
	}
	r.delay = min(max(2*r.delay, backoffMin), backoffMax)
	if lost {
		r.delay = backoffMax
	}
	r.at = time.Now().Add(r.delay)
	w.mu.retry[id] = r
}

// settle ends the work on rows. Those that failed wait before they are tried again.
func (w *Worker) settle(rows []rowID, failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range rows {
		delete(w.mu.flight, id)
		if failed {
			w.backOffLocked(id, false)
		}
	}
}

// prune forgets back-offs that ended long ago: their rows are gone, or led elsewhere.
func (w *Worker) prune() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, r := range w.mu.retry {
		if time.Since(r.at) > 2*backoffMax {
			delete(w.mu.retry, id)
		}
	}
}
