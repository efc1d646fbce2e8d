package repair

import (
	"context"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
)

// listPage is how many shards of a drive's inventory are looked at in one go.
const listPage = 256

// orphanLoop looks, once in each verify interval, at every shard on this node's drives: has it a reference?
func (w *Worker) orphanLoop(ctx context.Context) {
	for {
		timer := time.NewTimer(w.cfg.VerifyInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		for _, d := range w.deps.Source.View().Drives {
			if d.Node == w.cfg.Self {
				w.orphanPass(ctx, d.ID)
			}
		}
	}
}

func (w *Worker) orphanPass(ctx context.Context, drive ident.Drive) {
	ep, _ := w.deps.Dialer.Endpoint(w.cfg.Self, 0)
	var after ident.ID
	var index uint8
	for ctx.Err() == nil {
		lctx, cancel := context.WithTimeout(ctx, statTimeout)
		infos, err := ep.List(lctx, drive, after, index, listPage)
		cancel()
		if err != nil || len(infos) == 0 {
			return
		}
		for i := range infos {
			if infos[i].State == shard.StateWriting {
				continue
			}
			if err := w.orphan(ctx, ep, drive, infos[i].Blob, infos[i].Index); err != nil {
				w.failed("orphan", err)
			}
			if !w.pace(ctx, shard.BlockSize) {
				return
			}
		}
		last := infos[len(infos)-1]
		after, index = last.Blob, last.Index
	}
}

// orphan abandons the blob of a shard, and then removes the shard, that nothing references and whose writer disowns it. Abandon goes through the
// key's group, so a commit that is still on its way is either seen there or refused for ever (PROTOCOLS D).
func (w *Worker) orphan(ctx context.Context, ep shard.Endpoint, drive ident.Drive, blob ident.ID, index uint8) error {
	ctx, cancel := context.WithTimeout(ctx, statTimeout)
	defer cancel()
	v := w.deps.Source.View()
	d := v.Drives[drive]
	ref := shard.Ref{Drive: drive, Incarnation: d.Incarnation, Epoch: v.Epoch, Blob: blob, Index: index}
	info, err := ep.Stat(ctx, ref, false)
	if err != nil || info.Key == "" {
		return nil // gone meanwhile, or its header cannot be read: the verify pass of its reference sees to it
	}
	a, err := w.deps.Router.QueryByID(ctx, info.Bucket, &metadata.Query{Op: metadata.QueryReferenced, Key: info.Key, Blobs: []ident.ID{blob}})
	if oerr.Is(err, oerr.NoSuchBucket) {
		return nil // bucket ids are never reused; its g/ rows remove the shards
	}
	if err != nil {
		return err
	}
	if len(a.Referenced) == 1 && a.Referenced[0] {
		return nil
	}
	disowned, err := w.disowned(ctx, info.Writer, blob)
	if err != nil || !disowned {
		return nil // unreachable means wait
	}
	res, err := w.deps.Router.CommandByID(ctx, info.Bucket, &metadata.Command{Op: metadata.OpAbandon, Key: info.Key, Blobs: []ident.ID{blob}})
	if err != nil || len(res.Live) != 1 || res.Live[0] {
		return err
	}
	w.Metrics.Orphans.Add(1)
	return ep.Delete(ctx, []shard.Ref{ref})[0]
}

// disowned asks the process that wrote the shard. When it cannot be reached, a newer start id in group 0 says the same,
// provided group 0 was asked after the header was read: a process registers its start id before it writes anything.
func (w *Worker) disowned(ctx context.Context, writer shard.WriterID, blob ident.ID) (bool, error) {
	gone, err := w.deps.Disowned(ctx, writer.Node, writer, blob)
	if err == nil {
		return gone, nil
	}
	v, serr := w.deps.Source.Sync(ctx)
	if serr != nil {
		return false, serr
	}
	if n := v.Nodes[writer.Node]; n != nil && (n.Removed || n.StartID != writer.StartID) {
		return true, nil
	}
	return false, err
}
