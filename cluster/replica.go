package cluster

import (
	"slices"

	"objstore/internal/ident"
	"objstore/metadata/host"
)

// stepKind is one change of a group's membership. A group takes one at a time; the next is planned from what Raft then
// says, so nothing needs to be remembered across a crash.
type stepKind uint8

const (
	stepNone    stepKind = iota
	stepRecord           // group 0's record follows what Raft says
	stepAdd              // create an empty replica and add it as a learner
	stepPromote          // a learner that has caught up becomes a voter
	stepRemove           // a replica leaves
)

var stepNames = [...]string{"none", "record", "add learner", "promote", "remove"}

func (k stepKind) String() string { return stepNames[k] }

type step struct {
	kind    stepKind
	replica Replica   // for add, promote and remove
	members []Replica // for record
}

// caughtUpEntries is how many entries a learner may be behind the commit index and still be promoted.
const caughtUpEntries = 64

// planGroup returns the next step for one group. v is group 0's view, st the status of the group at its leader.
func planGroup(v *View, g *Group, st host.GroupStatus) step {
	actual := actualReplicas(v, g, st)
	if len(actual) == 0 {
		return step{} // the leader does not say: nothing may be concluded
	}
	if !slices.Equal(actual, g.Replicas) {
		return step{kind: stepRecord, members: actual}
	}
	if g.ID == 0 {
		return planGroup0(v, actual, st)
	}
	return planMetaGroup(v, g, actual, st)
}

// actualReplicas is what Raft says, in the order of the record with new ones behind it, so that it is compared stably.
func actualReplicas(v *View, g *Group, st host.GroupStatus) []Replica {
	byID := make(map[uint64]host.Member, len(st.Members))
	for _, m := range st.Members {
		byID[m.Replica] = m
	}
	out := make([]Replica, 0, len(byID))
	for _, r := range g.Replicas {
		if m, ok := byID[r.ID]; ok {
			r.Learner = m.Learner
			out = append(out, r)
			delete(byID, r.ID)
		}
	}
	for _, id := range sortedKeys(byID) {
		m := byID[id]
		out = append(out, Replica{ID: id, Node: m.Node, Drive: ident.Drive(id >> 32), Learner: m.Learner})
	}
	return out
}

// fit reports whether a replica may stay: its drive is active and still the incarnation it was made on.
func fit(v *View, r Replica) bool {
	d := v.Drives[r.Drive]
	n := v.Nodes[r.Node]
	return d != nil && n != nil && !n.Removed && d.State == DriveActive && host.ReplicaID(d.ID, d.Incarnation) == r.ID
}

func caughtUp(st host.GroupStatus, id uint64) bool {
	match, ok := st.Progress[id]
	return ok && match+caughtUpEntries >= st.Commit
}

// planMetaGroup keeps as many fit voters as the group was formed with: a replica on a drive that is fenced, removed or
// formatted again is replaced on another, its voter leaving only after the new one votes. A learner that is not needed
// any more stays as a spare: were it removed, its id could not come back.
func planMetaGroup(v *View, g *Group, actual []Replica, st host.GroupStatus) step {
	var good int
	var bad, learner *Replica
	for i := range actual {
		r := &actual[i]
		switch {
		case fit(v, *r) && !r.Learner:
			good++
		case fit(v, *r):
			learner = r
		case bad == nil || r.Learner: // a learner that is of no use goes first
			bad = r
		}
	}
	want := max(len(g.Founders), 1)
	switch {
	case bad != nil && (bad.Learner || good >= want):
		return step{kind: stepRemove, replica: *bad}
	case good >= want:
		return step{}
	case learner != nil && caughtUp(st, learner.ID):
		return step{kind: stepPromote, replica: *learner}
	case learner != nil:
		return step{}
	}
	if r, ok := replacement(v, actual); ok {
		return step{kind: stepAdd, replica: r}
	}
	return step{}
}

// replacement picks the drive with the fewest replicas among those whose failure domain holds no fit replica.
func replacement(v *View, actual []Replica) (Replica, bool) {
	load := map[ident.Drive]int{}
	for _, g := range v.Groups {
		for _, r := range g.Replicas {
			load[r.Drive]++
		}
	}
	unit := domainUnit(v)
	var best *Drive
	for _, id := range sortedKeys(v.Drives) {
		d := v.Drives[id]
		if d.NoMeta || !fit(v, replicaOn(d)) || best != nil && load[id] >= load[best.ID] {
			continue
		}
		taken := slices.ContainsFunc(actual, func(r Replica) bool {
			same := r.Drive == d.ID
			if unit == unitNode {
				same = r.Node == d.Node
			}
			return same && (fit(v, r) || r.ID == replicaOn(d).ID)
		})
		if !taken {
			best = d
		}
	}
	if best == nil {
		return Replica{}, false
	}
	r := replicaOn(best)
	r.Learner = true
	return r, true
}

// planGroup0 gives every node a replica of group 0, on its first active drive, and makes the first of them voters. A node
// whose drives are all fenced keeps the replica it has: it would be blind without.
func planGroup0(v *View, actual []Replica, st host.GroupStatus) step {
	want := Group0Voters(memberNodes(v), v.Profile)
	good := 0
	var bad, promote *Replica
	for i := range actual {
		r := &actual[i]
		switch {
		case !fitGroup0(v, *r):
			if bad == nil || r.Learner {
				bad = r
			}
		case !r.Learner:
			good++
		case caughtUp(st, r.ID) && (promote == nil || r.Node < promote.Node):
			promote = r
		}
	}
	switch {
	case bad != nil && (bad.Learner || good >= want):
		return step{kind: stepRemove, replica: *bad}
	case good < want && promote != nil:
		return step{kind: stepPromote, replica: *promote}
	}
	for _, n := range sortedKeys(v.Nodes) {
		r, ok := Group0Replica(v, n)
		if ok && !slices.ContainsFunc(actual, func(a Replica) bool { return a.Node == n && fitGroup0(v, a) }) {
			r.Learner = true
			return step{kind: stepAdd, replica: r}
		}
	}
	return step{}
}

// fitGroup0 is fit, but a replica on a fenced drive may stay as long as its node has no drive to move it to.
func fitGroup0(v *View, r Replica) bool {
	if fit(v, r) {
		return true
	}
	d, n := v.Drives[r.Drive], v.Nodes[r.Node]
	if d == nil || n == nil || n.Removed || d.State != DriveFenced || host.ReplicaID(d.ID, d.Incarnation) != r.ID {
		return false
	}
	_, other := Group0Replica(v, r.Node)
	return !other
}

// Group0Replica returns the replica of group 0 that a node is to get: on its first drive that may have one.
func Group0Replica(v *View, n ident.Node) (Replica, bool) {
	if node := v.Nodes[n]; node == nil || node.Removed {
		return Replica{}, false
	}
	for _, id := range sortedKeys(v.Drives) {
		if d := v.Drives[id]; d.Node == n && d.State == DriveActive && !d.NoMeta {
			return replicaOn(d), true
		}
	}
	return Replica{}, false
}

// memberNodes counts the members that have a drive, fenced ones included.
func memberNodes(v *View) int {
	with := map[ident.Node]bool{}
	for _, d := range v.Drives {
		if n := v.Nodes[d.Node]; d.State != DriveRemoved && n != nil && !n.Removed {
			with[d.Node] = true
		}
	}
	return len(with)
}

// readyToForm reports whether the expected nodes have drives and follow group 0: a node that joined and never started
// is not waited for silently, it keeps the cluster unformed.
func readyToForm(v *View, st host.GroupStatus) bool {
	if v.Formed || v.Expect == 0 {
		return false
	}
	following := 0
	for _, id := range sortedKeys(v.Nodes) {
		r, ok := Group0Replica(v, id)
		if ok && (r.ID == st.Leader || caughtUp(st, r.ID)) {
			following++
		}
	}
	return following >= v.Expect
}
