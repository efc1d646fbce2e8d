package repair

import (
	"context"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
)

const deleteTimeout = 30 * time.Second // for one batch on one drive

// garbageRound removes the shards of garbage blobs from all their drives, those listed missing included. A row goes when
// every drive has answered: unreachable is no answer, a newer incarnation means absent.
func (w *Worker) garbageRound(ctx context.Context) (worked bool) {
	for _, g := range w.deps.Leads() {
		after := ""
		for ctx.Err() == nil {
			a, err := w.deps.Router.GroupQuery(ctx, g, &metadata.Query{Op: metadata.QueryGarbage, After: after, Max: pageRows})
			if err != nil {
				break
			}
			if w.garbagePage(ctx, g, a.Garbage) {
				worked = true
			}
			if !a.Truncated {
				break
			}
			after = a.Next
		}
	}
	return worked
}

func (w *Worker) garbagePage(ctx context.Context, g ident.Group, rows []metadata.GarbageRow) bool {
	type target struct{ row, index int }
	refs := map[ident.Drive][]shard.Ref{}
	targets := map[ident.Drive][]target{}
	open := make([]int, len(rows)) // answers still needed
	for i := range rows {
		if !w.ripe(rows[i].Blob.ID) {
			open[i] = -1
			continue
		}
		b := &rows[i].Blob
		for index := range int(b.K) + int(b.M) {
			open[i]++
			d := w.drive(b, uint8(index))
			switch {
			case d == nil:
			case d.State == cluster.DriveRemoved:
				open[i]--
			case w.deps.Alive(d.Node):
				refs[d.ID] = append(refs[d.ID], w.ref(b, uint8(index), d))
				targets[d.ID] = append(targets[d.ID], target{i, index})
			}
		}
	}
	for id, list := range refs {
		ep, _ := w.deps.Dialer.Endpoint(w.deps.Source.View().Drives[id].Node, 0)
		dctx, cancel := context.WithTimeout(ctx, deleteTimeout)
		errs := ep.Delete(dctx, list)
		cancel()
		for j, err := range errs {
			if err == nil || oerr.Is(err, oerr.ShardMissing) || oerr.Is(err, oerr.WrongIncarnation) {
				open[targets[id][j].row]--
			}
		}
	}
	done := map[ident.ID][]ident.ID{}
	for i := range rows {
		if open[i] == 0 {
			done[rows[i].Bucket] = append(done[rows[i].Bucket], rows[i].Blob.ID)
		}
	}
	for bucket, blobs := range done {
		pctx, cancel := context.WithTimeout(ctx, proposeTimeout)
		_, err := w.deps.Router.GroupCommand(pctx, g, &metadata.Command{Op: metadata.OpGarbageDone, Bucket: bucket, Blobs: blobs})
		cancel()
		if w.failed("garbage_done", err); err != nil {
			continue
		}
		w.Metrics.GarbageBlobs.Add(int64(len(blobs)))
		w.mu.Lock()
		for _, b := range blobs {
			delete(w.mu.seen, b)
		}
		w.mu.Unlock()
	}
	return len(done) > 0
}

// ripe says whether the grace has passed since this leader first saw the row, in monotonic time: running GETs finish.
func (w *Worker) ripe(blob ident.ID) bool {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	first, ok := w.mu.seen[blob]
	if !ok {
		if len(w.mu.seen) >= maxRemembered {
			clear(w.mu.seen)
		}
		w.mu.seen[blob] = now
		first = now
	}
	return now.Sub(first) >= w.cfg.GarbageGrace
}
