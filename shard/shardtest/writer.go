package shardtest

import (
	"context"
	"fmt"

	"objstore/internal/oerr"
	"objstore/shard"
)

// memWriter is open while it stands in its drive's writers. All fields but the first four are guarded by m.mu.
type memWriter struct {
	m    *Mem
	d    *memDrive
	key  memKey
	spec shard.Spec
	data []byte
	crcs []uint32
	err  error // why it ended; nil while open
	stop func() bool
}

func (d *memDrive) killWriters(kind oerr.Kind) {
	for _, w := range d.writers {
		w.endLocked(kind, fmt.Errorf("the drive went away"))
	}
}

// endLocked ends an open writer; later calls get the error. Ending twice changes nothing.
func (w *memWriter) endLocked(kind oerr.Kind, cause error) {
	if w.err != nil {
		return
	}
	w.err = oerr.E("shardtest.writer", kind, cause)
	w.data, w.crcs = nil, nil
	delete(w.d.writers, w.key)
	if w.stop != nil {
		w.stop()
	}
}

func (w *memWriter) end(kind oerr.Kind, cause error) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.endLocked(kind, cause)
}

// Append implements shard.Writer. Wrong checksums end the writer.
func (w *memWriter) Append(ctx context.Context, _ *shard.Buf, data []byte, crcs []uint32) error {
	const op = "shardtest.append"
	if err := w.m.enter(ctx, Call{Op: OpAppend, Ref: w.spec.Ref, Length: uint64(len(data))}); err != nil {
		return err
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	have, add := uint64(len(w.data)), uint64(len(data))
	if add == 0 || add > w.spec.Length-have || (add%shard.BlockSize != 0 && have+add != w.spec.Length) {
		err := oerr.Errorf(op, oerr.InvalidArgument, "append of %d bytes at %d to a shard of %d", add, have, w.spec.Length)
		w.endLocked(oerr.InvalidArgument, err)
		return err
	}
	if err := shard.CheckBlocks(w.spec.Blob, w.spec.Index, have/shard.BlockSize, data, crcs); err != nil {
		w.endLocked(oerr.Corrupt, err)
		return oerr.Wrap(op, err)
	}
	if w.data == nil {
		w.data = make([]byte, 0, w.spec.Length)
	}
	w.data = append(w.data, data...)
	w.crcs = append(w.crcs, crcs...)
	return nil
}

// Commit implements shard.Writer.
func (w *memWriter) Commit(ctx context.Context) (shard.Ack, error) {
	const op = "shardtest.commit"
	if err := w.m.enter(ctx, Call{Op: OpCommit, Ref: w.spec.Ref}); err != nil {
		w.end(oerr.KindOf(err), err)
		return shard.Ack{}, err
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.err != nil {
		return shard.Ack{}, w.err
	}
	if got := uint64(len(w.data)); got != w.spec.Length {
		err := oerr.Errorf(op, oerr.InvalidArgument, "commit after %d bytes, expected %d", got, w.spec.Length)
		w.endLocked(oerr.InvalidArgument, err)
		return shard.Ack{}, err
	}
	if w.d.fenced {
		err := oerr.Errorf(op, oerr.DriveFenced, "drive %d is fenced", w.spec.Drive)
		w.endLocked(oerr.DriveFenced, err)
		return shard.Ack{}, err
	}
	w.d.shards[w.key] = &memShard{spec: w.spec, data: w.data, crcs: w.crcs}
	ack := shard.Ack{Drive: w.spec.Drive, Incarnation: w.d.incarnation, Digest: shard.Digest(w.crcs)}
	w.endLocked(oerr.InvalidArgument, fmt.Errorf("shard %s.%d was committed", w.spec.Blob, w.spec.Index))
	return ack, nil
}

// Abort implements shard.Writer.
func (w *memWriter) Abort(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	w.end(oerr.Canceled, cause)
}
