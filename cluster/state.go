package cluster

import (
	"maps"
	"slices"

	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// State is the model of group 0: the newest view and what only apply needs (tokens, counters, the dedup window). It is
// a pure state machine: what Apply does depends on the state and the command alone. It belongs to one goroutine.
type State struct {
	view   View // maps marked in shared belong to published views and are cloned before the next change
	shared parts
	head   header
	secret secretRow
	tokens map[string]tokenRow // by hex SHA-256
	uuids  map[ident.ID]ident.Drive
	load   map[ident.Group]int // buckets in each metadata group

	retired retiredWindow
	dedup   dedupWindow

	changes []change // rows that differ since the last takeChanges
}

// header is what group 0 counts. Numbers only go up.
type header struct {
	Format    uint32          `json:"format"`
	ClusterID ident.ID        `json:"cluster_id"`
	Expect    int             `json:"expect"`
	Formed    bool            `json:"formed"`
	Profile   erasure.Profile `json:"profile"`
	Epoch     uint64          `json:"epoch"`
	SpanEpoch uint64          `json:"span_epoch"`
	LastNode  ident.Node      `json:"last_node"`
	LastDrive ident.Drive     `json:"last_drive"`
}

type tokenRow struct {
	Hash    string `json:"hash"`
	Expires int64  `json:"expires"` // Unix milliseconds
}

// parts is a set of the view's maps.
type parts uint8

const (
	partNodes parts = 1 << iota
	partDrives
	partPGs
	partGroups
	partBuckets
	partKeys
	partSettings
	partAll = 1<<iota - 1
)

// NewState returns the state before the first command.
func NewState() *State {
	return &State{
		view: View{
			Nodes: map[ident.Node]*Node{}, Drives: map[ident.Drive]*Drive{}, Groups: map[ident.Group]*Group{},
			Buckets: map[string]*Bucket{}, ByID: map[ident.ID]*Bucket{}, Keys: map[string]*Credential{}, Setting: map[string]string{},
		},
		tokens:  map[string]tokenRow{},
		uuids:   map[ident.ID]ident.Drive{},
		load:    map[ident.Group]int{},
		retired: newRetiredWindow(),
		dedup:   newDedupWindow(),
	}
}

// View publishes the state as an immutable snapshot.
func (s *State) View() *View {
	v := s.view
	secrets := Secrets{CACert: s.secret.CACert, CAKey: s.secret.CAKey, GossipKey: s.secret.GossipKey}
	v.secrets = func() Secrets { return secrets }
	s.shared = partAll
	return &v
}

// Apply applies one command and returns what its proposer is told. A refused command changes nothing but the dedup
// window.
func (s *State) Apply(cmd *Command) CommandResult { return s.applyAt(s.view.Index+1, cmd) }

func (s *State) applyAt(index uint64, cmd *Command) CommandResult {
	s.view.Index = index
	if cmd.RequestID.IsZero() {
		return refuse(oerr.InvalidArgument, "%s: no request id", cmd.Op)
	}
	if first, ok := s.dedup.get(cmd.RequestID); ok {
		return first
	}
	if cmd.FirstIndex != 0 && cmd.FirstIndex < s.dedup.oldest() {
		return refuse(oerr.OutcomeUnknown, "%s: first tried at index %d, results are remembered from index %d on", cmd.Op, cmd.FirstIndex, s.dedup.oldest())
	}
	res := s.dispatch(cmd)
	res.Index = index
	s.remember(cmd.RequestID, res)
	return res
}

func (s *State) dispatch(cmd *Command) CommandResult {
	if cmd.Op == OpInit {
		return s.applyInit(cmd)
	}
	if s.head.ClusterID.IsZero() {
		return refuse(oerr.Unavailable, "%s: the cluster is not initialised", cmd.Op)
	}
	switch cmd.Op {
	case OpAddNode:
		return s.applyAddNode(cmd)
	case OpUpdateNode:
		return s.applyUpdateNode(cmd)
	case OpAddDrive:
		return s.applyAddDrive(cmd)
	case OpDriveState:
		return s.applyDriveState(cmd)
	case OpForm:
		return s.applyForm(cmd)
	case OpSetReplicas:
		return s.applySetReplicas(cmd)
	case OpCreateBucket:
		return s.applyCreateBucket(cmd)
	case OpBucketState:
		return s.applyBucketState(cmd)
	case OpRemoveBucket:
		return s.applyRemoveBucket(cmd)
	case OpAddToken:
		return s.applyAddToken(cmd)
	case OpSetSetting:
		return s.applySetSetting(cmd)
	}
	return refuse(oerr.InvalidArgument, "unknown group-0 command %s", quoteShort(string(cmd.Op)))
}

// own clones the maps in want that a published view shares, so that they may be changed.
func (s *State) own(want parts) {
	todo := s.shared & want
	s.shared &^= todo
	v := &s.view
	if todo&partNodes != 0 {
		v.Nodes = maps.Clone(v.Nodes)
	}
	if todo&partDrives != 0 {
		v.Drives = maps.Clone(v.Drives)
	}
	if todo&partPGs != 0 {
		v.PGs = slices.Clone(v.PGs)
	}
	if todo&partGroups != 0 {
		v.Groups = maps.Clone(v.Groups)
	}
	if todo&partBuckets != 0 {
		v.Buckets, v.ByID = maps.Clone(v.Buckets), maps.Clone(v.ByID)
	}
	if todo&partKeys != 0 {
		v.Keys = maps.Clone(v.Keys)
	}
	if todo&partSettings != 0 {
		v.Setting = maps.Clone(v.Setting)
	}
}

// setHead stores the counters and copies them into the view.
func (s *State) setHead(h header) {
	s.head = h
	v := &s.view
	v.ClusterID, v.Format, v.Expect, v.Formed = h.ClusterID, h.Format, h.Expect, h.Formed
	v.Profile, v.Epoch, v.SpanEpoch = h.Profile, h.Epoch, h.SpanEpoch
	s.put(keyHeader, h)
}

// The put functions take over their argument: nobody changes it afterwards, views share it.

func (s *State) putNode(n *Node) {
	s.own(partNodes)
	s.view.Nodes[n.ID] = n
	s.put(numKey(rowNode, uint32(n.ID)), n)
}

func (s *State) putDrive(d *Drive) {
	s.own(partDrives)
	if old := s.view.Drives[d.ID]; old != nil && old.UUID != d.UUID {
		delete(s.uuids, old.UUID)
	}
	s.view.Drives[d.ID] = d
	s.uuids[d.UUID] = d.ID
	s.put(numKey(rowDrive, uint32(d.ID)), d)
}

func (s *State) putPG(p PG) {
	s.own(partPGs)
	for len(s.view.PGs) <= int(p.ID) {
		s.view.PGs = append(s.view.PGs, PG{})
	}
	s.view.PGs[p.ID] = p
	s.put(numKey(rowPG, uint32(p.ID)), p)
}

func (s *State) putGroup(g *Group) {
	s.own(partGroups)
	s.view.Groups[g.ID] = g
	s.put(numKey(rowGroup, uint32(g.ID)), g)
}

func (s *State) putBucket(b *Bucket) {
	s.own(partBuckets)
	if s.view.Buckets[b.Name] == nil {
		s.countSpans(b, +1)
	}
	s.view.Buckets[b.Name] = b
	s.view.ByID[b.ID] = b
	s.put(textKey(rowBucket, b.Name), b)
}

func (s *State) dropBucket(b *Bucket) {
	s.own(partBuckets)
	s.countSpans(b, -1)
	delete(s.view.Buckets, b.Name)
	delete(s.view.ByID, b.ID)
	s.del(textKey(rowBucket, b.Name))
}

func (s *State) countSpans(b *Bucket, by int) {
	for _, sp := range b.Spans {
		s.load[sp.Group] += by
	}
}
