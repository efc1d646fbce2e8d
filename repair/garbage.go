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
	refs := map[ident.Drive][]shard.Ref{}
	targets := map[ident.Drive][]int{} // the row of each ref
	open := make([]int, len(rows))     // answers still needed
	for i := range rows {
		if !w.ripe(rows[i].Blob.ID) {
			open[i] = -1
			continue
		}
		b := &rows[i].Blob
		for _, p := range w.places(b) {
			open[i]++
			switch d := p.drive; {
			case d == nil:
			case d.State == cluster.DriveRemoved:
				open[i]--
			case w.deps.Alive(d.Node):
				refs[d.ID] = append(refs[d.ID], w.ref(b, p.index, d))
				targets[d.ID] = append(targets[d.ID], i)
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
				open[targets[id][j]]--
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

// place is where a shard of a garbage blob may be.
type place struct {
	drive *cluster.Drive
	index uint8
}

// places lists them. Of an abandoned blob only the id may be known (K is 0): then any drive may have any of its shards.
func (w *Worker) places(b *metadata.Blob) []place {
	var out []place
	if b.K > 0 {
		for index := range b.K + b.M {
			out = append(out, place{w.drive(b, index), index})
		}
		return out
	}
	v := w.deps.Source.View()
	for _, d := range v.Drives {
		for index := range uint8(v.Profile.N()) {
			out = append(out, place{d, index})
		}
	}
	return out
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
