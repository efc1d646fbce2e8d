package host

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// changeMember proposes one membership change; w gets its outcome after apply. Changes go one at a time.
func (c *core) changeMember(g ident.Group, typ pb.ConfChangeType, m Member, w *waiter) {
	const op = "host.change_member"
	r := c.replicas[g]
	fail := func(kind oerr.Kind, format string, args ...any) {
		w.done(Applied{}, oerr.Errorf(op, kind, "group %d: %s", g, fmt.Sprintf(format, args...)))
	}
	switch {
	case r == nil:
		fail(oerr.NotLeader, "no replica here")
		return
	case r.stopped:
		w.done(Applied{}, r.stoppedError(op))
		return
	case !r.leader:
		w.done(Applied{}, r.notLeader(op))
		return
	case !r.isReady():
		fail(oerr.Unavailable, "the leader has not applied an entry of its term yet")
		return
	case r.confNonce != 0:
		fail(oerr.Busy, "another membership change is under way")
		return
	}
	if why := c.refuseChange(r, typ, m); why != "" {
		fail(oerr.InvalidArgument, "%s", why)
		return
	}
	if have := r.member(m.Replica); alreadySo(have, typ) {
		w.done(Applied{Index: r.applied.index}, nil)
		return
	}
	if have := r.member(m.Replica); have != nil {
		m.Node = have.Node
	}
	if typ == pb.ConfChangeAddNode {
		if lag := c.lag(r, m.Replica); lag > c.cfg.Limits.PromoteLag {
			fail(oerr.Unavailable, "replica %#x lags %d entries behind, at most %d are allowed", m.Replica, lag, c.cfg.Limits.PromoteLag)
			return
		}
	}
	nonce := c.nextNonce()
	cc := &pb.ConfChange{Type: typ.Enum(), NodeId: new(m.Replica), Context: confContext{nonce, m.Node}.encode()}
	data, err := proto.Marshal(cc)
	if err != nil || !r.addWaiter(nonce, w) {
		fail(oerr.Busy, "cannot propose: %v", err)
		return
	}
	c.guard(r, func() {
		err = r.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(r.id),
			Entries: []*pb.Entry{{Type: pb.EntryConfChange.Enum(), Data: data}}})
	})
	if err != nil {
		r.takeWaiter(nonce)
		fail(oerr.Busy, "%v", err)
		return
	}
	r.confNonce = nonce
}

func alreadySo(have *Member, typ pb.ConfChangeType) bool {
	switch typ {
	case pb.ConfChangeAddNode:
		return have != nil && !have.Learner
	case pb.ConfChangeAddLearnerNode:
		return have != nil
	}
	return have == nil
}

// refuseChange returns why a change would be wrong whenever it is asked for.
func (c *core) refuseChange(r *replica, typ pb.ConfChangeType, m Member) string {
	have := r.member(m.Replica)
	switch typ {
	case pb.ConfChangeAddLearnerNode:
		if m.Replica == 0 || m.Node == 0 {
			return "a learner needs a replica id and a node"
		}
		if have == nil && len(r.members) >= maxReplicas {
			return fmt.Sprintf("%d members, at most %d are allowed", len(r.members), maxReplicas)
		}
	case pb.ConfChangeAddNode:
		if have == nil {
			return fmt.Sprintf("replica %#x is no learner of the group: add it as one first", m.Replica)
		}
	case pb.ConfChangeRemoveNode:
		if have != nil && !have.Learner && r.voters() == 1 {
			return "the last voter cannot be removed"
		}
	}
	return ""
}

// lag is how many committed entries a replica does not have yet.
func (c *core) lag(r *replica, id uint64) uint64 {
	lag := ^uint64(0)
	r.rn.WithProgress(func(x uint64, _ raft.ProgressType, pr progress) {
		if x == id {
			lag = r.hs.commit - min(r.hs.commit, pr.Match)
		}
	})
	return lag
}

// confApplied switches raft to the members as of an applied change.
func (c *core) confApplied(r *replica, a confApplied) {
	if r.stopped {
		return
	}
	var cs *pb.ConfState
	c.guard(r, func() { cs = r.rn.ApplyConfChange(a.cc) })
	if r.stopped {
		return
	}
	r.setMembers(a.members)
	if err := cs.Equivalent(confState(a.members)); err != nil {
		c.stop(r, fmt.Sprintf("members after entry %d: %v", a.index, err))
		return
	}
	if r.confNonce == a.ctx.nonce {
		r.confNonce = 0
	}
	c.event(EventConfChange, r, a.index, fmt.Sprintf("%s %#x", a.cc.GetType(), a.cc.GetNodeId()))
	if r.member(r.id) == nil {
		c.stop(r, "removed from the group")
		return
	}
	r.publish()
}

// transfer hands leadership to another voter; the call only starts it.
func (c *core) transfer(g ident.Group, to uint64, w *waiter) {
	const op = "host.transfer"
	r := c.replicas[g]
	switch {
	case r == nil:
		w.done(Applied{}, oerr.Errorf(op, oerr.NotLeader, "group %d has no replica here", g))
	case r.stopped:
		w.done(Applied{}, r.stoppedError(op))
	case !r.leader:
		w.done(Applied{}, r.notLeader(op))
	case r.member(to) == nil || r.member(to).Learner:
		w.done(Applied{}, oerr.Errorf(op, oerr.InvalidArgument, "group %d: replica %#x is no voter", g, to))
	default:
		c.guard(r, func() { r.rn.TransferLeader(to) })
		w.done(Applied{Index: r.applied.index}, nil)
	}
}

// campaign makes a voter try to become leader now.
func (c *core) campaign(g ident.Group, w *waiter) {
	r := c.replicas[g]
	switch {
	case r == nil:
		w.done(Applied{}, oerr.Errorf("host.campaign", oerr.Unavailable, "group %d has no replica here", g))
		return
	case r.stopped:
		w.done(Applied{}, r.stoppedError("host.campaign"))
		return
	}
	if m := r.member(r.id); !r.leader && m != nil && !m.Learner {
		c.guard(r, func() { _ = r.rn.Campaign() })
	}
	w.done(Applied{}, nil)
}
