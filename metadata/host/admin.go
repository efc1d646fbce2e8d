package host

import (
	"context"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// bootstrapIndex and bootstrapTerm are where a group begins. The log starts after it, so that a replica that was not
// there at the beginning always gets a snapshot.
const (
	bootstrapIndex = 1
	bootstrapTerm  = 1
)

// Bootstrap makes this drive's replica of a new group whose first members are given. Every member's host must be
// called with the same members. Again with the same replica is success; another replica id is refused.
func (h *Host) Bootstrap(ctx context.Context, g ident.Group, replica uint64, members []Member) error {
	const op = "host.bootstrap"
	ms := slices.Clone(members)
	slices.SortFunc(ms, func(a, b Member) int {
		if a.Replica < b.Replica {
			return -1
		}
		return 1
	})
	self := false
	for i, m := range ms {
		self = self || (m.Replica == replica && m.Node == h.cfg.Node && !m.Learner)
		if m.Replica == 0 || m.Node == 0 || (i > 0 && ms[i-1].Replica == m.Replica) {
			return oerr.Errorf(op, oerr.InvalidArgument, "group %d: member %#x on node %d: expected distinct replicas and nodes", g, m.Replica, m.Node)
		}
	}
	if !self || len(ms) > maxReplicas {
		return oerr.Errorf(op, oerr.InvalidArgument, "group %d: %d members, expected at most %d with replica %#x on node %d as a voter among them",
			g, len(ms), maxReplicas, replica, h.cfg.Node)
	}
	return h.create(ctx, op, g, replica, &appliedMeta{entryID: entryID{bootstrapIndex, bootstrapTerm}, members: ms})
}

// CreateReplica makes an empty replica that gets its state from the leader once it was added there. Again with the
// same replica is success; another replica id is refused.
func (h *Host) CreateReplica(ctx context.Context, g ident.Group, replica uint64) error {
	const op = "host.create_replica"
	if replica == 0 {
		return oerr.Errorf(op, oerr.InvalidArgument, "group %d: replica id 0", g)
	}
	return h.create(ctx, op, g, replica, nil)
}

func (h *Host) create(ctx context.Context, op string, g ident.Group, replica uint64, meta *appliedMeta) error {
	h.admin.Lock()
	defer h.admin.Unlock()
	if r := h.replica(g); r != nil {
		if r.id == replica {
			return nil
		}
		return oerr.Errorf(op, oerr.InvalidArgument, "group %d: the drive holds replica %#x, asked for %#x", g, r.id, replica)
	}
	if g == formatGroup || len(*h.replicas.Load()) >= maxGroupsPerHost {
		return oerr.Errorf(op, oerr.InvalidArgument, "group %d: at most %d groups on a drive", g, maxGroupsPerHost)
	}
	if h.ctx.Err() != nil {
		return oerr.Errorf(op, oerr.Closed, "the host was closed")
	}
	known, err := h.stores.groups()
	if err != nil {
		return oerr.Wrap(op, err)
	}
	if id := known[g]; id.replica >= replica {
		return oerr.Errorf(op, oerr.InvalidArgument, "group %d: replica %#x was destroyed on this drive, %#x is not newer", g, id.replica, replica)
	}
	if err := h.stores.create(g, replica, meta); err != nil {
		return oerr.Wrap(op, err)
	}
	log, err := h.stores.log.load(g)
	if err != nil {
		return oerr.Wrap(op, err)
	}
	var m appliedMeta
	if meta != nil {
		m = *meta
	}
	return h.call(ctx, func(w *waiter) {
		r, err := h.core.start(g, replica, log, m)
		if err == nil {
			r.ap.meta = m
			h.publish(g, r)
		}
		w.done(Applied{}, err)
	})
}

// DestroyReplica removes a replica and its data for ever; its id never comes back on this drive. Remove it from the
// group first: what a voter has acknowledged is gone with it. An unknown group is success.
func (h *Host) DestroyReplica(ctx context.Context, g ident.Group, replica uint64) error {
	const op = "host.destroy_replica"
	h.admin.Lock()
	defer h.admin.Unlock()
	r := h.replica(g)
	if r == nil {
		return nil
	}
	if r.id != replica {
		return oerr.Errorf(op, oerr.InvalidArgument, "group %d: the drive holds replica %#x, asked for %#x", g, r.id, replica)
	}
	idle := make(chan struct{})
	if err := h.call(ctx, func(w *waiter) {
		h.core.stop(r, "destroyed")
		h.core.remove(r)
		for _, t := range r.held {
			t.finishInstall(r.stoppedError(op))
		}
		r.held = nil
		h.barriers = append(h.barriers, barrier{r, idle})
		w.done(Applied{}, nil)
	}); err != nil {
		return err
	}
	select {
	case <-idle:
	case <-ctx.Done():
		return oerr.Wrap(op, ctx.Err())
	}
	if h.ctx.Err() != nil {
		return oerr.Errorf(op, oerr.Closed, "the host was closed")
	}
	h.publish(g, nil)
	r.shared.view.Lock()
	defer r.shared.view.Unlock()
	return oerr.Wrap(op, h.stores.destroy(g, replica))
}

// AddLearner adds a replica without a vote. Leader only.
func (h *Host) AddLearner(ctx context.Context, g ident.Group, m Member) error {
	return h.call(ctx, func(w *waiter) { h.core.changeMember(g, pb.ConfChangeAddLearnerNode, m, w) })
}

// Promote makes a learner a voter. It is oerr.Unavailable while the learner lags. Leader only.
func (h *Host) Promote(ctx context.Context, g ident.Group, replica uint64) error {
	return h.call(ctx, func(w *waiter) {
		h.core.changeMember(g, pb.ConfChangeAddNode, Member{Replica: replica}, w)
	})
}

// Remove takes a replica out of the group. Leader only; the leader may remove itself, and stops then.
func (h *Host) Remove(ctx context.Context, g ident.Group, replica uint64) error {
	return h.call(ctx, func(w *waiter) {
		h.core.changeMember(g, pb.ConfChangeRemoveNode, Member{Replica: replica}, w)
	})
}

// TransferLeadership starts to hand leadership to another voter; Status tells when it has happened. Leader only.
func (h *Host) TransferLeadership(ctx context.Context, g ident.Group, to uint64) error {
	return h.call(ctx, func(w *waiter) { h.core.transfer(g, to, w) })
}

// Campaign makes this voter try to become leader now: for the first balance of leaders, and where it is known that
// the old leader is gone. It is not needed for a group to get a leader.
func (h *Host) Campaign(ctx context.Context, g ident.Group) error {
	return h.call(ctx, func(w *waiter) { h.core.campaign(g, w) })
}

// CheckHashes has the replicas' hashes compared now. Leader only.
func (h *Host) CheckHashes(ctx context.Context, g ident.Group) error {
	return h.call(ctx, func(w *waiter) {
		r := h.core.replicas[g]
		if r == nil || r.stopped || !r.isReady() {
			w.done(Applied{}, oerr.Errorf("host.check_hashes", oerr.NotLeader, "group %d is not led here", g))
			return
		}
		h.core.checkHashes(r)
		w.done(Applied{}, nil)
	})
}

// call runs f on the loop and waits for the outcome.
func (h *Host) call(ctx context.Context, f func(w *waiter)) error {
	w := newWaiter()
	if err := h.in.control(func() { f(w) }); err != nil {
		return err
	}
	signal(h.wake)
	select {
	case o := <-w.ch:
		return o.err
	case <-ctx.Done():
		return oerr.E("host", oerr.OutcomeUnknown, ctx.Err())
	case <-h.ctx.Done():
		return oerr.Errorf("host", oerr.Closed, "the host was closed")
	}
}
