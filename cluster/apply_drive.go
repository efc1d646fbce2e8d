package cluster

import (
	"path"
	"slices"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

// applyAddDrive hands out a drive number. Adding a drive again, by its UUID, answers with the number it has.
func (s *State) applyAddDrive(cmd *Command) CommandResult {
	d := cmd.Drive
	if d == nil {
		return refuse(oerr.InvalidArgument, "add drive: no drive")
	}
	if n := s.view.Nodes[d.Node]; n == nil || n.Removed {
		return refuse(oerr.InvalidArgument, "add drive: node %d is no member", d.Node)
	}
	if d.UUID.IsZero() || !drivePath(d.Path) {
		return refuse(oerr.InvalidArgument, "add drive: uuid %s, path %s: expected a random uuid and a clean absolute path", d.UUID, quoteShort(d.Path))
	}
	if d.ID != 0 || d.State != DriveActive || d.Incarnation > 1 || d.NoMeta {
		return refuse(oerr.InvalidArgument, "add drive %s: number, state and incarnation are handed out, not asked for", d.Path)
	}
	if id, ok := s.uuids[d.UUID]; ok {
		have := s.view.Drives[id]
		if have.Node != d.Node || have.State == DriveRemoved {
			return refuse(oerr.Exists, "add drive %s: uuid %s belongs to drive %d of node %d (%s)", d.Path, d.UUID, id, have.Node, have.State)
		}
		return CommandResult{Drive: id}
	}
	count := 0
	for _, o := range s.view.Drives {
		if o.Node == d.Node && o.State != DriveRemoved {
			count++
			if o.Path == d.Path {
				return refuse(oerr.Exists, "add drive: path %s of node %d belongs to another drive", d.Path, d.Node)
			}
		}
	}
	if count >= MaxDrivesPerNode {
		return refuse(oerr.InvalidArgument, "add drive %s: node %d has %d drives, no more are allowed", d.Path, d.Node, count)
	}
	h := s.head
	h.LastDrive = nextID(h.LastDrive)
	s.setHead(h)
	added := *d
	added.ID, added.Incarnation = h.LastDrive, 1
	s.putDrive(&added)
	if added.ID == 1 {
		s.foundGroup0(&added)
	}
	return CommandResult{Drive: added.ID}
}

// foundGroup0 records the replica that this log began on: by convention it is the first drive's first incarnation.
func (s *State) foundGroup0(d *Drive) {
	r := []Replica{{ID: host.ReplicaID(d.ID, d.Incarnation), Node: d.Node, Drive: d.ID}}
	s.putGroup(&Group{ID: 0, Replicas: r, Founders: r})
}

// applyDriveState fences, activates or removes a drive, or gives it a new incarnation after it was formatted again.
func (s *State) applyDriveState(cmd *Command) CommandResult {
	d := cmd.Drive
	if d == nil {
		return refuse(oerr.InvalidArgument, "drive state: no drive")
	}
	old := s.view.Drives[d.ID]
	switch {
	case old == nil:
		return refuse(oerr.InvalidArgument, "drive state: drive %d is not known", d.ID)
	case int(d.State) >= len(driveStates):
		return refuse(oerr.InvalidArgument, "drive state: drive %d: unknown state %d", d.ID, uint8(d.State))
	case old.State == DriveRemoved:
		if d.State == DriveRemoved && d.Incarnation == old.Incarnation {
			return CommandResult{Drive: d.ID}
		}
		return refuse(oerr.InvalidArgument, "drive state: drive %d was removed for ever", d.ID)
	case d.Incarnation == old.Incarnation+1:
		return s.newIncarnation(old, d)
	case d.Incarnation != old.Incarnation:
		return refuse(oerr.WrongIncarnation, "drive state: drive %d: incarnation %d, it is at %d", d.ID, d.Incarnation, old.Incarnation)
	case !d.UUID.IsZero() && d.UUID != old.UUID:
		return refuse(oerr.InvalidArgument, "drive state: drive %d: another uuid needs a new incarnation", d.ID)
	case d.State == DriveRemoved && s.holdsPG(d.ID):
		return refuse(oerr.InvalidArgument, "drive state: drive %d holds placement groups: replace it by a new incarnation instead of removing it", d.ID)
	}
	if old.State != d.State {
		next := *old
		next.State = d.State
		next.NoMeta = next.NoMeta || d.State == DriveFenced
		s.putDrive(&next)
	}
	return CommandResult{Drive: d.ID}
}

// newIncarnation is a drive formatted again under its number: what the old incarnation held is gone. The placement
// groups on it change with it, under a new map epoch, so that nobody takes an answer of the new one for the old's.
func (s *State) newIncarnation(old, d *Drive) CommandResult {
	if d.State != DriveActive {
		return refuse(oerr.InvalidArgument, "drive state: drive %d: a new incarnation begins active, not %s", d.ID, d.State)
	}
	if _, used := s.uuids[d.UUID]; used || d.UUID.IsZero() {
		return refuse(oerr.InvalidArgument, "drive state: drive %d: a new incarnation needs a new uuid, read %s", d.ID, d.UUID)
	}
	if d.Path != "" && !drivePath(d.Path) {
		return refuse(oerr.InvalidArgument, "drive state: drive %d: path %s is not clean and absolute", d.ID, quoteShort(d.Path))
	}
	next := *old
	next.Incarnation, next.UUID, next.State, next.NoMeta = d.Incarnation, d.UUID, DriveActive, false
	if d.Path != "" {
		next.Path = d.Path
	}
	if d.Capacity != 0 {
		next.Capacity = d.Capacity
	}
	s.putDrive(&next)
	if s.holdsPG(d.ID) {
		h := s.head
		h.Epoch++
		s.setHead(h)
		for i := range s.view.PGs {
			if p := s.view.PGs[i]; slices.Contains(p.Drives, d.ID) {
				p.Epoch = h.Epoch
				s.putPG(p)
			}
		}
	}
	return CommandResult{Drive: d.ID}
}

func (s *State) holdsPG(id ident.Drive) bool {
	for i := range s.view.PGs {
		if slices.Contains(s.view.PGs[i].Drives, id) {
			return true
		}
	}
	return false
}

func drivePath(p string) bool {
	if len(p) < 2 || len(p) > MaxPathLen || p[0] != '/' || path.Clean(p) != p {
		return false
	}
	for i := 0; i < len(p); i++ {
		if p[i] < ' ' || p[i] == 0x7f {
			return false
		}
	}
	return true
}
