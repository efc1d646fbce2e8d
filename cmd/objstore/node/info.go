package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"objstore/admin"
	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/metadata"
	"objstore/metadata/host"
)

const (
	statusTimeout = 2 * time.Second // for one node's part of `admin info`
	objectTimeout = 25 * time.Second
)

// nodeStatus is what a node says of itself to another that answers `admin info`.
type nodeStatus struct {
	Drives []admin.DriveInfo `json:"drives"`
	Groups []admin.GroupInfo `json:"groups"` // those it leads, and those whose replica was stopped
}

func (n *node) ownStatus() nodeStatus {
	st := nodeStatus{Drives: n.ownDrives()}
	for _, s := range n.replicas.status() {
		if s.LeaderOn != n.self && s.Stopped == "" {
			continue
		}
		st.Groups = append(st.Groups, groupInfo(s, s.LeaderOn == n.self))
	}
	return st
}

func (n *node) handleStatus(context.Context, wire.Peer, []byte) ([]byte, error) {
	return json.Marshal(n.ownStatus())
}

func (n *node) statusOf(ctx context.Context, id ident.Node) (nodeStatus, error) {
	if id == n.self {
		return n.ownStatus(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var st nodeStatus
	reply, err := n.client.Call(ctx, id, wire.MethodAdmin, nil)
	if err == nil {
		err = json.Unmarshal(reply, &st)
	}
	return st, err
}

// Info implements admin.Node. Every node is asked at the same time; who does not answer is reported as it is known.
func (n *node) Info(ctx context.Context) (admin.Info, error) {
	v := n.group0.View()
	info := admin.Info{ClusterID: v.ClusterID.String(), Format: v.Format, Formed: v.Formed, Expect: v.Expect,
		Profile: v.Profile.String(), MapEpoch: v.Epoch, PGs: len(v.PGs), Version: n.cfg.Version, AnsweredBy: uint32(n.self),
		Buckets: len(v.Buckets), Transport: n.shardBytes()}
	if v.Formed {
		info.Survives = cluster.Describe(cluster.ArithmeticOf(v))
	}
	states, errs := n.allStatus(ctx, v)
	groups := map[uint32]admin.GroupInfo{}
	drives := map[uint32]admin.DriveInfo{}
	leaders := map[uint32]int{}
	for id, st := range states {
		for _, d := range st.Drives {
			drives[d.ID] = d
		}
		for _, g := range st.Groups {
			if g.Leader == uint32(id) && g.Term >= groups[g.ID].Term {
				groups[g.ID] = g
			}
			if g.Stopped != "" {
				info.Warnings = append(info.Warnings, fmt.Sprintf("node %d stopped its replica of group %d: %s", id, g.ID, g.Stopped))
			}
		}
	}
	for _, g := range groups {
		leaders[g.Leader]++
	}
	for _, id := range sortedKeys(v.Nodes) {
		nd := v.Nodes[id]
		if nd.Removed {
			continue
		}
		state := admin.StateAlive
		if err := errs[id]; err != nil {
			state = admin.StateUnknown
			if alive, known := n.liveness(id); known && !alive {
				state = admin.StateDead
			}
			info.Warnings = append(info.Warnings, fmt.Sprintf("node %s did not answer: %v", nd.Name, err))
		}
		info.Nodes = append(info.Nodes, admin.NodeInfo{ID: uint32(id), Name: nd.Name, State: state, S3: nd.S3, Admin: nd.Admin,
			Internode: nd.Internode, Leaders: leaders[uint32(id)]})
	}
	for _, id := range sortedKeys(v.Drives) {
		d := v.Drives[id]
		di, ok := drives[uint32(id)]
		if !ok {
			di = admin.DriveInfo{State: "unknown", CapacityBytes: d.Capacity}
		} else if d.State != cluster.DriveActive {
			di.State = d.State.String()
		}
		di.ID, di.Node, di.Incarnation, di.Path = uint32(id), uint32(d.Node), uint32(d.Incarnation), d.Path
		info.Drives = append(info.Drives, di)
	}
	for _, id := range sortedKeys(v.Groups) {
		gi, ok := groups[uint32(id)]
		if !ok {
			gi = admin.GroupInfo{ID: uint32(id)}
			for _, r := range v.Groups[id].Replicas {
				gi.Members = append(gi.Members, admin.MemberInfo{Node: uint32(r.Node), Drive: uint32(r.Drive), Learner: r.Learner})
			}
		}
		info.Groups = append(info.Groups, gi)
	}
	info.Repair = n.countRepairs(ctx, v)
	return info, nil
}

func sortedKeys[K interface{ ~uint32 }, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (n *node) allStatus(ctx context.Context, v *cluster.View) (map[ident.Node]nodeStatus, map[ident.Node]error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	states, errs := map[ident.Node]nodeStatus{}, map[ident.Node]error{}
	for id, nd := range v.Nodes {
		if nd.Removed {
			continue
		}
		wg.Go(func() {
			st, err := n.statusOf(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs[id] = err
				return
			}
			states[id] = st
		})
	}
	wg.Wait()
	return states, errs
}

// countRepairs adds up the rows of all metadata groups; Known is false when one did not answer.
func (n *node) countRepairs(ctx context.Context, v *cluster.View) admin.RepairInfo {
	ctx, cancel := context.WithTimeout(ctx, 2*statusTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	sum := admin.RepairInfo{Known: v.Formed}
	for id := range v.Groups {
		if id == 0 {
			continue
		}
		wg.Go(func() {
			a, err := n.router.GroupQuery(ctx, id, &metadata.Query{Op: metadata.QueryRepairCount})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				sum.Known = false
				return
			}
			sum.Pending += a.Pending
			sum.Lost += a.Lost
		})
	}
	wg.Wait()
	return sum
}

// Object implements admin.Node: every shard of the current version is read on its drive, and repair of what is found
// missing or corrupt is queued.
func (n *node) Object(ctx context.Context, bucket, key string) (admin.ObjectReport, error) {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	a, err := n.router.Query(ctx, bucket, &metadata.Query{Op: metadata.QueryGet, Key: key})
	if err != nil {
		return admin.ObjectReport{}, err
	}
	if a.Version == nil {
		return admin.ObjectReport{}, oerr.Errorf("admin.object", oerr.NoSuchKey, "no object %s in bucket %s", key, bucket)
	}
	b := n.group0.View().Buckets[bucket]
	if b == nil {
		return admin.ObjectReport{}, oerr.Errorf("admin.object", oerr.NoSuchBucket, "no bucket %s", bucket)
	}
	ver := a.Version
	rep := admin.ObjectReport{Bucket: bucket, Key: key, Version: ver.ID.String(), Size: ver.Size, ETag: ver.ETag, Inline: ver.Inline,
		Profile: n.group0.View().Profile.String(), Shards: []admin.ShardReport{}}
	var reports []metadata.Report
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, p := range ver.Parts {
		if p.Blob == nil {
			continue
		}
		rep.Profile = fmt.Sprintf("%d+%d", p.Blob.K, p.Blob.M)
		for i := range int(p.Blob.K) + int(p.Blob.M) {
			at := len(rep.Shards)
			rep.Shards = append(rep.Shards, admin.ShardReport{})
			ref := &metadata.BlobRef{Blob: *p.Blob, Bucket: b.ID, Key: key, Version: ver.ID, Part: p.Number}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				s, bad := n.checkShard(ctx, ref, i)
				mu.Lock()
				defer mu.Unlock()
				rep.Shards[at] = s
				if bad {
					reports = append(reports, metadata.Report{Key: key, Version: ver.ID, Blob: p.Blob.ID, Index: uint8(i)})
				}
			})
		}
	}
	wg.Wait()
	return rep, n.repair.Report(ctx, b.ID, reports)
}

// checkShard reads one shard; bad says that a repair row is to be made.
func (n *node) checkShard(ctx context.Context, ref *metadata.BlobRef, index int) (s admin.ShardReport, bad bool) {
	s = admin.ShardReport{Part: int(ref.Part), Blob: ref.Blob.ID.String(), Index: index, State: admin.ShardUnknown}
	d := n.repair.Drive(&ref.Blob, uint8(index))
	if d == nil {
		s.Detail = "the placement group has no such drive"
		return s, false
	}
	s.Drive = uint32(d.ID)
	if nd := n.group0.View().Nodes[d.Node]; nd != nil {
		s.Node = nd.Name
	}
	info, err := n.repair.CheckInfo(ctx, ref, uint8(index))
	s.Path, s.Offset, s.Length = info.Path, int64(info.Offset), int64(info.Size)
	s.State = n.repair.Judge(ref, uint8(index), info, err).String()
	switch {
	case err != nil:
		s.Detail = err.Error()
	case info.Detail != "":
		s.Detail = info.Detail
	}
	switch s.State {
	case admin.ShardOK, admin.ShardUnknown:
	case admin.ShardMissing, admin.ShardCorrupt:
		s.Queued = true
	default: // a writer is active: it is on its way, not there yet
		s.State, s.Detail = admin.ShardMissing, "being written"
	}
	return s, s.Queued
}

// groupInfo describes a group from one replica's status; only its leader knows how far the others are.
func groupInfo(s host.GroupStatus, leading bool) admin.GroupInfo {
	gi := admin.GroupInfo{ID: uint32(s.Group), Leader: uint32(s.LeaderOn), Term: s.Term, Applied: s.Applied, Stopped: s.Stopped}
	for _, m := range s.Members {
		mi := admin.MemberInfo{Node: uint32(m.Node), Drive: uint32(m.Replica >> 32), Learner: m.Learner}
		if leading {
			mi.Match = s.Progress[m.Replica]
		}
		gi.Members = append(gi.Members, mi)
	}
	return gi
}
