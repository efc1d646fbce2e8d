package cluster

import (
	"objstore/erasure"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

// applyForm fixes the default profile, the placement groups and the metadata groups, once. It computes them by Plan,
// which depends on the state alone.
func (s *State) applyForm(cmd *Command) CommandResult {
	if s.head.Formed {
		return refuse(oerr.Exists, "form: the cluster is formed already")
	}
	domains, unit := planDomains(&s.view)
	if nodes := activeNodes(&s.view); nodes < s.head.Expect {
		return refuse(oerr.Unavailable, "form: %d nodes with drives have joined, expected %d", nodes, s.head.Expect)
	}
	profile := cmd.Profile
	if profile == (erasure.Profile{}) {
		profile = erasure.DefaultProfile(len(domains))
	}
	pgs, groups, err := Plan(&s.view, cmd.PGCount, cmd.GroupCount, profile)
	if err != nil {
		return refuse(oerr.KindOf(err), "form: %d %ss: %v", len(domains), unit, err)
	}
	h := s.head
	h.Formed, h.Profile = true, profile
	h.Epoch++
	h.SpanEpoch++
	s.setHead(h)
	for _, p := range pgs {
		p.Epoch = h.Epoch
		s.putPG(p)
	}
	for i := range groups {
		s.putGroup(&groups[i])
	}
	return CommandResult{}
}

// applySetReplicas records what a group's members have become. Raft decided it; the record follows.
func (s *State) applySetReplicas(cmd *Command) CommandResult {
	old := s.view.Groups[cmd.Group]
	if old == nil {
		return refuse(oerr.InvalidArgument, "set replicas: group %d is not known", cmd.Group)
	}
	if len(cmd.Replicas) == 0 || len(cmd.Replicas) > MaxReplicas {
		return refuse(oerr.InvalidArgument, "set replicas: group %d: %d replicas, need 1 to %d", cmd.Group, len(cmd.Replicas), MaxReplicas)
	}
	voters := 0
	seen := make(map[uint64]bool, len(cmd.Replicas))
	for _, r := range cmd.Replicas {
		d := s.view.Drives[r.Drive]
		if d == nil || d.Node != r.Node {
			return refuse(oerr.InvalidArgument, "set replicas: group %d: node %d has no drive %d", cmd.Group, r.Node, r.Drive)
		}
		lowest, newest := host.ReplicaID(d.ID, 1), host.ReplicaID(d.ID, d.Incarnation)
		if r.ID < lowest || r.ID > newest {
			return refuse(oerr.InvalidArgument, "set replicas: group %d: replica %#x is none of drive %d at incarnation %d", cmd.Group, r.ID, d.ID, d.Incarnation)
		}
		if seen[r.ID] {
			return refuse(oerr.InvalidArgument, "set replicas: group %d: replica %#x is listed twice", cmd.Group, r.ID)
		}
		seen[r.ID] = true
		if !r.Learner {
			voters++
		}
	}
	if voters == 0 {
		return refuse(oerr.InvalidArgument, "set replicas: group %d: no voter", cmd.Group)
	}
	next := *old
	next.Replicas = cmd.Replicas
	s.putGroup(&next)
	return CommandResult{}
}
