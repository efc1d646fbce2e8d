package host

import (
	"context"
	"fmt"
	"io"

	pb "go.etcd.io/raft/v3/raftpb"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// nodeBuffer is the batch being built for a node.
type nodeBuffer struct {
	b    []byte
	used bool
	apps []outMsg // appends in it, to be told when it is dropped
}

// sendAll encodes messages into one batch for each node and hands the batches to the sender.
func (h *Host) sendAll(msgs []outMsg) {
	if len(msgs) == 0 {
		return
	}
	nodes := make([]ident.Node, 0, 8)
	for i := range msgs {
		m := &msgs[i]
		b := h.encode[m.node]
		if b == nil {
			b = &nodeBuffer{}
			h.encode[m.node] = b
		}
		size := 64
		if m.m != nil {
			size = messageSize(m.m)
		}
		if len(b.b) > batchHeader && len(b.b)+size > maxBatchBytes {
			h.flushNode(m.node, b)
		}
		if b.b == nil {
			b.b = appendBatchHeader(make([]byte, 0, max(512, batchHeader+size)), h.cfg.Node, h.core.nowMS)
		}
		if !b.used {
			b.used = true
			nodes = append(nodes, m.node)
		}
		if m.m == nil {
			b.b = appendHashReport(b.b, m.group, m.hash)
			continue
		}
		b.b = appendMessage(b.b, m.group, m.m, m.trunc)
		if m.m.GetType() == pb.MsgApp {
			b.apps = append(b.apps, *m)
		}
	}
	for _, n := range nodes {
		b := h.encode[n]
		b.used = false
		h.flushNode(n, b)
	}
}

func (h *Host) flushNode(n ident.Node, b *nodeBuffer) {
	h.metrics.batchesOut.Add(1)
	h.metrics.bytesOut.Add(uint64(len(b.b)))
	if !h.cfg.Sender.SendRaft(n, b.b) {
		h.metrics.sendDropped.Add(1)
		for _, m := range b.apps {
			if !m.r.stopped {
				h.core.guard(m.r, func() { m.r.rn.ReportUnreachable(m.m.GetTo()) })
			}
		}
	}
	clear(b.apps)
	b.b, b.apps = nil, b.apps[:0] // the batch was handed over
}

// startSnapshot streams a group's state to a replica. When enough are under way raft is told that it failed; it asks
// again after the receiver's next answer to a heartbeat.
func (h *Host) startSnapshot(o snapshotOrder) {
	if o.node == 0 || h.snapshotsOut >= h.cfg.Limits.SnapshotsOut {
		h.core.snapshotSent(o.r, o.to, oerr.Errorf("host.snapshot", oerr.Busy, "%d snapshots are under way", h.snapshotsOut))
		return
	}
	h.snapshotsOut++
	info := chunkInfo{stream: ident.New(), group: o.r.group, to: o.to, from: o.r.id, node: h.cfg.Node, term: o.term}
	h.wg.Go(func() {
		err := h.stream(o.node, info)
		_ = h.in.control(func() { // refused only when the loop has ended
			h.snapshotsOut--
			h.core.snapshotSent(o.r, o.to, err)
		})
		signal(h.wake)
	})
}

func (h *Host) stream(node ident.Node, info chunkInfo) (err error) {
	src, err := newSnapshotSource(h.stores.state, info, h.cfg.Limits.SnapshotChunk)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := src.close(); err == nil {
			err = cerr
		}
	}()
	done := false
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	err = h.cfg.Sender.SendSnapshot(ctx, node, func() ([]byte, error) {
		b, err := src.next()
		done = done || err == io.EOF
		return b, err
	})
	if err == nil && !done {
		err = fmt.Errorf("host.snapshot: the sender stopped before the end")
	}
	return err
}
