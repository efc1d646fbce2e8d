package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/metadata"
	"objstore/metadata/host"
)

const (
	snapshotChunkTimeout = 30 * time.Second // one chunk to be taken, the last one to be installed
	replicaTimeout       = 10 * time.Second // one replica to be made
)

// replicas are the Raft hosts of this node, one for each drive.
type replicas struct {
	// opened are the hosts in the order of the drives. A host works while the next one is still being opened, and
	// delivers to those there are.
	opened atomic.Pointer[[]*host.Host]
	byID   map[ident.Drive]*host.Host
	apis   []host.API
	dirs   map[ident.Drive]string
	mu     sync.Mutex                        // making replicas
	made   map[ident.Drive]map[string]uint64 // replicas.json of each drive
}

func newReplicas() *replicas {
	return &replicas{byID: map[ident.Drive]*host.Host{}, dirs: map[ident.Drive]string{}, made: map[ident.Drive]map[string]uint64{}}
}

// hosts returns the hosts that are open.
func (r *replicas) hosts() []*host.Host {
	if p := r.opened.Load(); p != nil {
		return *p
	}
	return nil
}

// open opens the hosts.
func (r *replicas) open(n *node) error {
	meta := metadata.NewMachine()
	s := n.cfg.Settings
	cache := s.MetaCacheBytes / int64(len(n.folders.drives))
	tick := 100 * time.Millisecond
	hash := int(s.MetaHashInterval / tick)
	if hash == 0 {
		hash = -1
	}
	for _, d := range n.folders.drives {
		made := map[string]uint64{}
		if err := readState(d.dir, replicasFile, &made); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		h, err := host.Open(host.Config{
			Dir: filepath.Join(d.dir, metaDir), Node: n.self, TickInterval: tick, HashTicks: hash,
			ElectionTicks: max(int(s.MetaElectionTimeout/tick), 6),
			StateMachines: func(g ident.Group) host.StateMachine {
				if g == 0 {
					return group0Machine{n}
				}
				return meta
			},
			Sender:  n,
			OnEvent: func(e host.Event) { n.raftEvent(d.Drive, e) },
			Fatal:   func(err error) { n.metadataFailed(d, err) },
			Limits:  host.Limits{LogKeepEntries: uint64(s.MetaLogEntries), BlockCache: max(cache/4, 8<<20), EntryCache: max(cache/8, 4<<20)},
		})
		if err != nil {
			return fmt.Errorf("drive %d at %s: %w", d.Drive, d.dir, err)
		}
		all := append(slices.Clone(r.hosts()), h)
		r.opened.Store(&all)
		r.apis = append(r.apis, h)
		r.byID[d.Drive], r.dirs[d.Drive], r.made[d.Drive] = h, d.dir, made
	}
	return nil
}

func (r *replicas) close() error {
	var errs []error
	for _, h := range r.hosts() {
		errs = append(errs, h.Close())
	}
	return errors.Join(errs...)
}

// of implements router.Replicas: every host is asked, who has no replica says so at once.
func (r *replicas) of(ident.Group) []host.API { return r.apis }

func (r *replicas) status() []host.GroupStatus {
	var out []host.GroupStatus
	for _, h := range r.hosts() {
		out = append(out, h.Status()...)
	}
	return out
}

// leads lists the metadata groups led by a replica here.
func (r *replicas) leads(self ident.Node) []ident.Group {
	var out []ident.Group
	for _, s := range r.status() {
		if s.Group != 0 && s.LeaderOn == self && s.Leader == s.Replica && s.Stopped == "" {
			out = append(out, s.Group)
		}
	}
	return out
}

// ensure makes the replica that the map gives this drive, unless it is there. A founder begins the group's log with its
// first members, any other replica starts empty. What was made once is never made again: a replica whose state is gone
// must not come back under the id it has voted with.
func (r *replicas) ensure(ctx context.Context, g ident.Group, id uint64, d ident.Drive, founders []cluster.Replica) error {
	h := r.byID[d]
	if h == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range h.Status() {
		if s.Group == g && s.Replica == id {
			return r.remember(d, g, id)
		}
	}
	if r.made[d][fmt.Sprint(g)] >= id {
		return oerr.Errorf("node.replica", oerr.DriveFenced, "drive %d at %s has lost its replica %#x of group %d: give the drive a new incarnation", d, r.dirs[d], id, g)
	}
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	var members []host.Member
	founder := false
	for _, f := range founders {
		members = append(members, host.Member{Replica: f.ID, Node: f.Node, Learner: f.Learner})
		founder = founder || f.ID == id
	}
	var err error
	if founder {
		err = h.Bootstrap(ctx, g, id, members)
	} else {
		err = h.CreateReplica(ctx, g, id)
	}
	if err != nil {
		return err
	}
	if founder && founders[0].ID == id {
		_ = h.Campaign(ctx, g) // only spreads the first leaders
	}
	return r.remember(d, g, id)
}

func (r *replicas) remember(d ident.Drive, g ident.Group, id uint64) error {
	if r.made[d][fmt.Sprint(g)] == id {
		return nil
	}
	r.made[d][fmt.Sprint(g)] = id
	return writeState(r.dirs[d], replicasFile, r.made[d])
}

// has says whether any host of this node has a replica of g.
func (r *replicas) has(g ident.Group) bool {
	for _, s := range r.status() {
		if s.Group == g {
			return true
		}
	}
	return false
}

// group0Machine passes group 0 on to the cluster's machine and tells the node how far it is applied.
type group0Machine struct{ n *node }

func (m group0Machine) Apply(rw host.ReadWriter, g ident.Group, index uint64, data []byte) ([]byte, error) {
	return m.n.machine.Apply(rw, g, index, data)
}
func (m group0Machine) Stamp(data []byte, nowMS int64) []byte { return m.n.machine.Stamp(data, nowMS) }
func (m group0Machine) Applied(g ident.Group, index uint64) {
	m.n.machine.Applied(g, index)
	m.n.group0.Applied(index)
}

// SendRaft implements host.Sender.
func (n *node) SendRaft(to ident.Node, batch []byte) bool {
	if to == n.self {
		n.deliver(batch)
		return true
	}
	return lateCaller{n}.Send(to, wire.MethodRaft, batch)
}

// deliver gives a batch to every host; each keeps what is for its replicas.
func (n *node) deliver(batch []byte) {
	for _, h := range n.replicas.hosts() {
		_ = h.HandleRaft(batch) // a full queue is lost messages, which Raft lives with; bad batches are counted there
	}
}

func (n *node) handleRaft(_ context.Context, _ wire.Peer, req []byte) ([]byte, error) {
	n.deliver(req)
	return nil, nil
}

// SendSnapshot implements host.Sender.
func (n *node) SendSnapshot(ctx context.Context, to ident.Node, chunks func() ([]byte, error)) error {
	for {
		chunk, err := chunks()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		cctx, cancel := context.WithTimeout(ctx, snapshotChunkTimeout)
		if to == n.self {
			_, err = n.handleSnapshot(cctx, wire.Peer{Node: n.self, Role: wire.RoleNode}, chunk)
		} else {
			_, err = lateCaller{n}.Call(cctx, to, wire.MethodSnapshot, chunk)
		}
		cancel()
		if err != nil {
			return err
		}
	}
}

func (n *node) handleSnapshot(ctx context.Context, _ wire.Peer, chunk []byte) ([]byte, error) {
	g, to, err := host.SnapshotTarget(chunk)
	if err != nil {
		return nil, err
	}
	for _, h := range n.replicas.hosts() {
		for _, s := range h.Status() {
			if s.Group == g && s.Replica == to {
				return nil, h.HandleSnapshot(ctx, chunk)
			}
		}
	}
	return nil, oerr.Errorf("node.snapshot", oerr.Unavailable, "no replica %#x of group %d here", to, g)
}
