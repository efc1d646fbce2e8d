package host

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"objstore/internal/oerr"
)

// ready collects what all changed replicas want done.
func (c *core) ready() output {
	// Handling one replica may mark it again (a read that starts); the bound only guards against a defect.
	for round := 0; len(c.dirty) > 0 && round < 64; round++ {
		batch := c.dirty
		c.dirty = nil
		for _, r := range batch {
			r.dirty = false
			if !r.stopped {
				c.guardReady(r)
			}
		}
	}
	out := c.out
	c.out = output{}
	return out
}

func (c *core) guardReady(r *replica) {
	defer func() {
		if p := recover(); p != nil {
			c.stop(r, recovered(p))
		}
	}()
	c.startRead(r)
	for r.rn.HasReady() && !r.stopped {
		c.handle(r, r.rn.Ready())
		c.startRead(r)
	}
	if st := r.staged; st != nil { // raft had no use for it: it has those entries already, or the term is over
		r.staged = nil
		st.finish(nil)
	}
	r.dirty = false
}

func (c *core) handle(r *replica, rd raft.Ready) {
	if rd.HardState != nil {
		r.hs = hardState{rd.HardState.GetTerm(), rd.HardState.GetVote(), rd.HardState.GetCommit()}
	}
	c.roleChanged(r, rd.SoftState)
	for _, m := range rd.Messages {
		switch m.GetType() {
		case pb.MsgStorageAppend:
			c.wantAppend(r, m, rd.MustSync)
		case pb.MsgStorageApply:
			c.out.applies = append(c.out.applies, &applyTask{r: r, entries: m.Entries, resp: m.Responses})
		case pb.MsgSnap:
			c.wantSnapshot(r, m)
		default:
			c.send(r, m)
		}
	}
	if len(rd.ReadStates) > 0 {
		c.readDone(r, rd.ReadStates)
	}
}

// roleChanged ends what only a leader, or only the leader of the old term, may do.
func (c *core) roleChanged(r *replica, s *raft.SoftState) {
	term := r.term
	r.term = r.hs.term
	if s == nil && r.term == term {
		return
	}
	was := r.leader
	if s != nil {
		r.lead, r.leader = s.Lead, s.RaftState == raft.StateLeader
	}
	if was && (!r.leader || r.term != term) {
		r.failReads(r.notLeader("host.read_index"))
		r.failWaiters(oerr.Errorf("host.propose", oerr.OutcomeUnknown, "group %d: leadership was lost before the outcome was known", r.group))
		r.confNonce = 0
		c.event(EventLeaderLost, r, 0, "")
	}
	if r.leader && (!was || r.term != term) {
		c.metrics.elections.Add(1)
		clear(r.reports)
		clear(r.sending)
		r.hashTicks = c.cfg.HashTicks
		c.event(EventLeader, r, 0, "")
	}
	r.publish()
}

// send queues a raft message for its node. A follower that asks for votes or answers is known by its messages.
func (c *core) send(r *replica, m *pb.Message) {
	node := r.nodes[m.GetTo()]
	if node == 0 || !wireType(m.GetType()) {
		return
	}
	o := outMsg{node: node, group: r.group, r: r, m: m}
	if m.GetType() == pb.MsgHeartbeat {
		o.trunc = r.minMatch
	}
	c.out.msgs = append(c.out.msgs, o)
}

// wantAppend turns raft's storage message into a write. Where nothing but the commit index changed, nothing is
// written: it is carried along with the next entries, and max(commit, applied) at start makes up for it.
func (c *core) wantAppend(r *replica, m *pb.Message, mustSync bool) {
	t := &appendTask{r: r, entries: m.Entries, responses: m.Responses, hs: r.hs, sync: mustSync}
	_, hasHS := appendHardState(m)
	t.writeHS = mustSync || m.Snapshot != nil || (hasHS && len(m.Entries) > 0)
	if s := m.Snapshot; s != nil {
		id := entryID{s.GetMetadata().GetIndex(), s.GetMetadata().GetTerm()}
		st := r.staged
		if st == nil || st.meta.entryID != id {
			panic(fmt.Sprintf("snapshot at %d, but none such is staged", id.index))
		}
		r.staged = nil
		t.install, t.reset, t.sync = st, &id, true
	}
	switch {
	case len(r.held) > 0:
		r.held = append(r.held, t)
	case t.install != nil:
		r.held = append(r.held, t)
		c.out.applies = append(c.out.applies, &applyTask{r: r, install: t.install})
	default:
		c.out.appends = append(c.out.appends, t)
	}
}

// wantSnapshot asks the driver to stream the state to a replica that the log no longer reaches.
func (c *core) wantSnapshot(r *replica, m *pb.Message) {
	to := m.GetTo()
	if r.sending[to] {
		return // its end is reported to raft, which then goes on
	}
	r.sending[to] = true
	c.out.snapshots = append(c.out.snapshots, snapshotOrder{r: r, to: to, node: r.nodes[to], term: r.term})
}

// snapshotSent is told how a snapshotOrder ended.
func (c *core) snapshotSent(r *replica, to uint64, err error) {
	if r.stopped {
		return
	}
	delete(r.sending, to)
	status := raft.SnapshotFinish
	if err != nil {
		status = raft.SnapshotFailure
		c.metrics.snapshotsFailed.Add(1)
		c.event(EventSnapshotFailed, r, 0, fmt.Sprintf("to %#x: %v", to, err))
	} else {
		c.metrics.snapshotsOut.Add(1)
		c.event(EventSnapshotSent, r, 0, fmt.Sprintf("to %#x", to))
	}
	c.guard(r, func() { r.rn.ReportSnapshot(to, status) })
}

// snapshotStaged takes a received snapshot whose rows are staged; st.finish is called in every case.
func (c *core) snapshotStaged(st *stagedSnapshot) {
	r := c.replicas[st.group]
	switch {
	case r == nil || r.id != st.to:
		st.finish(oerr.Errorf("host.snapshot", oerr.Unavailable, "group %d: replica %#x is not here", st.group, st.to))
		return
	case r.stopped:
		st.finish(r.stoppedError("host.snapshot"))
		return
	case r.staged != nil || len(r.held) > 0:
		st.finish(oerr.Errorf("host.snapshot", oerr.Busy, "group %d: another snapshot is being installed", st.group))
		return
	}
	r.staged = st
	c.step(r, st.node, &pb.Message{
		Type: pb.MsgSnap.Enum(), To: new(st.to), From: new(st.from), Term: new(st.term),
		Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{
			Index: new(st.meta.index), Term: new(st.meta.term), ConfState: confState(st.meta.members)}},
	}, 0)
}

// appendDone is told that the tasks are on stable storage, as far as each asked for it.
func (c *core) appendDone(tasks []*appendTask) {
	for _, t := range tasks {
		r := t.r
		if t.reset != nil {
			r.log.reset(*t.reset)
		}
		r.log.appended(t.entries)
		if r.stopped {
			if t.install != nil {
				t.install.finish(r.stoppedError("host.snapshot"))
			}
			continue
		}
		c.respond(r, t.responses)
		if t.install != nil {
			t.install.finish(nil)
			c.metrics.snapshotsIn.Add(1)
			c.event(EventSnapshotReceived, r, t.reset.index, "")
			r.publish()
		}
	}
}

// respond delivers messages that waited for storage: to this replica or to others.
func (c *core) respond(r *replica, ms []*pb.Message) {
	for _, m := range ms {
		if r.stopped {
			return
		}
		if m.GetTo() == r.id {
			c.guard(r, func() { _ = r.rn.Step(m) })
		} else {
			c.send(r, m)
		}
	}
	c.mark(r)
}

// applyDone is told that the tasks are applied and visible.
func (c *core) applyDone(tasks []*applyTask) {
	for _, t := range tasks {
		r := t.r
		if t.err != nil {
			c.stop(r, t.err.Error())
		}
		if r.stopped {
			if t.install != nil {
				t.install.finish(r.stoppedError("host.snapshot"))
			}
			continue
		}
		if t.install != nil {
			c.installed(r, t.install)
			continue
		}
		r.applied = t.applied
		for _, cc := range t.confs {
			c.confApplied(r, cc)
		}
		c.respond(r, t.resp)
		for _, v := range t.verifies {
			c.hashVerify(r, v)
		}
		if r.stopped {
			continue
		}
		r.answerReads()
		c.mark(r)
	}
}

// installed goes on with the writes that waited for a snapshot's rows.
func (c *core) installed(r *replica, st *stagedSnapshot) {
	r.applied = st.meta.entryID
	r.setMembers(st.meta.members)
	r.hashes, r.verify = nil, nil
	c.out.appends = append(c.out.appends, r.held...)
	r.held = nil
	c.mark(r)
}
