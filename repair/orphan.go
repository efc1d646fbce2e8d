package repair

import (
	"context"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
)

const (
	listPage      = 256              // shards of a drive's inventory looked at in one go
	firstOrphans  = 10 * time.Minute // from the start to the first pass, at most
	disownTimeout = 5 * time.Second  // for asking a writer
	maxGone       = 10000            // buckets remembered as gone
)

// orphanLoop looks, once in each verify interval, at every shard on this node's drives: has it a reference?
func (w *Worker) orphanLoop(ctx context.Context) {
	gone := map[ident.ID]time.Time{}
	timer := time.NewTimer(min(w.cfg.VerifyInterval, firstOrphans))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		p := &orphanPass{w: w, gone: gone, verdicts: map[writer]bool{}}
		for _, d := range w.deps.Source.View().Drives {
			if d.Node == w.cfg.Self {
				p.drive(ctx, d.ID)
			}
		}
		timer.Reset(w.cfg.VerifyInterval)
	}
}

// writer is a process that put blobs.
type writer struct {
	node  ident.Node
	start ident.ID
}

// orphanPass is one pass over this node's drives.
type orphanPass struct {
	w  *Worker
	ep shard.Endpoint
	// verdicts has the processes that can no longer be asked: true when they are known to be gone.
	verdicts map[writer]bool
	gone     map[ident.ID]time.Time // buckets that are gone: monotonic first sight. It outlives the pass
}

func (p *orphanPass) drive(ctx context.Context, drive ident.Drive) {
	p.ep, _ = p.w.deps.Dialer.Endpoint(p.w.cfg.Self, 0)
	var after ident.ID
	var index uint8
	for ctx.Err() == nil {
		lctx, cancel := context.WithTimeout(ctx, callTimeout)
		infos, err := p.ep.List(lctx, drive, after, index, listPage)
		cancel()
		if err != nil && !expected(err) {
			p.w.failed(ctx, "orphans", err)
		}
		if err != nil || len(infos) == 0 {
			return
		}
		if err := p.page(ctx, drive, infos); err != nil && !expected(err) {
			p.w.failed(ctx, "orphans", err)
		}
		last := infos[len(infos)-1]
		after, index = last.Blob, last.Index
	}
}

// span is where a blob's reference would be.
type span struct {
	bucket ident.ID
	start  string
}

// page reads the headers of listed shards and asks each span once which of them are referenced. The first error is
// returned after all were looked at.
func (p *orphanPass) page(ctx context.Context, drive ident.Drive, infos []shard.Info) (first error) {
	bySpan := map[span][]shard.Info{}
	for i := range infos {
		if infos[i].State == shard.StateWriting {
			continue
		}
		if !p.w.pace(ctx, shard.BlockSize) {
			return nil
		}
		info, err := p.header(ctx, drive, &infos[i])
		if err != nil && first == nil {
			first = err
		}
		if err != nil || info.Key == "" {
			continue // gone meanwhile, or its header cannot be read: the verify pass of its reference sees to it
		}
		s := span{bucket: info.Bucket}
		if b := p.w.deps.Source.View().ByID[info.Bucket]; b != nil {
			if r := b.SpanOf(info.Key); r != nil {
				s.start = r.Start
			}
		}
		bySpan[s] = append(bySpan[s], info)
	}
	for s, list := range bySpan {
		if err := p.span(ctx, s, list); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (p *orphanPass) header(ctx context.Context, drive ident.Drive, listed *shard.Info) (shard.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v := p.w.deps.Source.View()
	d := v.Drives[drive]
	if d == nil {
		return shard.Info{}, nil
	}
	ref := shard.Ref{Drive: drive, Incarnation: d.Incarnation, Epoch: v.Epoch, Blob: listed.Blob, Index: listed.Index}
	info, err := p.ep.Stat(ctx, ref, false)
	if err != nil || info.State == shard.StateWriting || info.State == shard.StateMissing {
		return shard.Info{}, err
	}
	info.Ref = ref
	return info, nil
}

func (p *orphanPass) span(ctx context.Context, s span, list []shard.Info) (first error) {
	blobs := make([]ident.ID, len(list))
	for i := range list {
		blobs[i] = list[i].Blob
	}
	qctx, cancel := context.WithTimeout(ctx, queryTimeout)
	a, err := p.w.deps.Router.QueryByID(qctx, s.bucket, &metadata.Query{Op: metadata.QueryReferenced, Key: list[0].Key, Blobs: blobs})
	cancel()
	if oerr.Is(err, oerr.NoSuchBucket) {
		return p.bucketless(ctx, s.bucket, list)
	}
	if err != nil {
		return err
	}
	if len(a.Referenced) != len(blobs) {
		return oerr.Errorf("repair.orphan", oerr.Internal, "asked for %d blobs, got answers for %d", len(blobs), len(a.Referenced))
	}
	for i := range list {
		if a.Referenced[i] {
			continue
		}
		if err := p.unreferenced(ctx, &list[i]); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// bucketless removes shards of a bucket that is gone. Its id is never used again, so no commit can come; what its g/
// rows are there for is removed by them, after their grace, and so is this.
func (p *orphanPass) bucketless(ctx context.Context, bucket ident.ID, list []shard.Info) error {
	since, known := p.gone[bucket]
	if !known {
		if len(p.gone) >= maxGone {
			clear(p.gone)
		}
		since = time.Now()
		p.gone[bucket] = since
	}
	if time.Since(since) < p.w.cfg.GarbageGrace {
		return nil
	}
	return p.remove(ctx, list)
}

// unreferenced abandons the blob of a shard that nothing references and whose writer disowns it, and then removes the
// shard. Abandon goes through the key's group, so a commit that is still on its way is either seen there or refused for
// ever (PROTOCOLS D).
func (p *orphanPass) unreferenced(ctx context.Context, info *shard.Info) error {
	if !p.disowned(ctx, info.Writer, info.Blob) {
		return nil
	}
	actx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	res, err := p.w.deps.Router.CommandByID(actx, info.Bucket, &metadata.Command{Op: metadata.OpAbandon, Key: info.Key, Blobs: []ident.ID{info.Blob}})
	if err != nil || len(res.Live) != 1 || res.Live[0] {
		return err
	}
	return p.remove(ctx, []shard.Info{*info})
}

func (p *orphanPass) remove(ctx context.Context, list []shard.Info) (first error) {
	refs := make([]shard.Ref, len(list))
	for i := range list {
		refs[i] = list[i].Ref
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	for _, err := range p.ep.Delete(ctx, refs) {
		if err == nil {
			p.w.Metrics.Orphans.Add(1)
		} else if first == nil {
			first = err
		}
	}
	return first
}

// disowned asks the process that wrote the shard. When it cannot be reached, a newer start id in group 0 says the same,
// provided group 0 was asked after the header was read: a process registers its start id before it writes anything.
// Otherwise unreachable means wait, until the next pass.
func (p *orphanPass) disowned(ctx context.Context, by shard.WriterID, blob ident.ID) bool {
	key := writer{by.Node, by.StartID}
	if gone, known := p.verdicts[key]; known {
		return gone
	}
	dctx, cancel := context.WithTimeout(ctx, disownTimeout)
	disowned, err := p.w.deps.Disowned(dctx, by.Node, by, blob)
	cancel()
	if err == nil {
		return disowned
	}
	sctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	v, serr := p.w.deps.Source.Sync(sctx)
	if ctx.Err() != nil || serr != nil {
		return false
	}
	n := v.Nodes[by.Node]
	gone := n != nil && (n.Removed || n.StartID != by.StartID)
	p.verdicts[key] = gone
	return gone
}
