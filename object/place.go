package object

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// target is where one shard of a blob is, as one view has it.
type target struct {
	node  ident.Node
	ref   shard.Ref
	stat  *driveStat
	alive bool // by the hint
}

// targets returns the places of all shards of a blob. A placement group or drive that the view does not know is
// Unavailable: the view may be old.
func (e *Engine) targets(v *cluster.View, pg ident.PG, blob ident.ID, n int) ([]target, error) {
	const op = "object.targets"
	if int(pg) >= len(v.PGs) {
		return nil, oerr.Errorf(op, oerr.Unavailable, "placement group %d: view %d has %d of them", pg, v.Index, len(v.PGs))
	}
	drives := v.PGs[pg].Drives
	if len(drives) != n {
		return nil, oerr.Errorf(op, oerr.Unavailable, "placement group %d has %d drives, expected %d", pg, len(drives), n)
	}
	ts := make([]target, n)
	for i, id := range drives {
		d := v.Drives[id]
		if d == nil {
			return nil, oerr.Errorf(op, oerr.Unavailable, "drive %d of placement group %d is not in view %d", id, pg, v.Index)
		}
		ts[i] = target{
			node:  d.Node,
			ref:   shard.Ref{Drive: id, Incarnation: d.Incarnation, Epoch: v.Epoch, Blob: blob, Index: uint8(i)},
			stat:  e.drives.get(id),
			alive: d.State != cluster.DriveRemoved && e.d.Alive(d.Node),
		}
	}
	return ts, nil
}

// pgTries is how many random placement groups are looked at for one blob.
const pgTries = 4

// choosePG picks a placement group for a new blob: the healthiest of a few, chosen by the random id of the blob.
func (e *Engine) choosePG(v *cluster.View, blob ident.ID) (*cluster.PG, error) {
	if !v.Formed || len(v.PGs) == 0 {
		return nil, oerr.Errorf("object.place", oerr.Unavailable, "the cluster is not formed yet: view %d has no placement groups", v.Index)
	}
	var best *cluster.PG
	bestSick := -1
	now := time.Now()
	seen := 0
	for try := range pgTries {
		pg := &v.PGs[binary.LittleEndian.Uint32(blob[4*try:])%uint32(len(v.PGs))]
		if pg.Profile != v.Profile {
			continue // of another layout; new blobs follow the default one
		}
		seen++
		sick := e.sick(v, pg, now)
		if best == nil || sick < bestSick {
			best, bestSick = pg, sick
		}
		if sick == 0 {
			return pg, nil
		}
	}
	if seen > 0 {
		return best, nil
	}
	for i := range v.PGs { // few groups of the default profile among many: take the first that fits
		if v.PGs[i].Profile == v.Profile {
			return &v.PGs[i], nil
		}
	}
	return nil, oerr.Errorf("object.place", oerr.Unavailable, "view %d has no placement group of profile %s", v.Index, v.Profile)
}

// sick counts members of pg that are likely to refuse or delay a write.
func (e *Engine) sick(v *cluster.View, pg *cluster.PG, now time.Time) int {
	n := 0
	for _, id := range pg.Drives {
		d := v.Drives[id]
		if d == nil || d.State != cluster.DriveActive || !e.d.Alive(d.Node) {
			n++
			continue
		}
		if s := e.drives.get(id); s.isSuspect(now) || s.isFull(now) {
			n++
		}
	}
	return n
}

// stale reports whether err says that the caller's map is older than the drive's.
func stale(err error) bool {
	return oerr.Is(err, oerr.StaleEpoch) || oerr.Is(err, oerr.WrongIncarnation)
}

var errNoAnswer = errors.New("no answer")

// shardErrors says on one line what became of shards; errs has nil for those that are well.
func shardErrors(ts []target, errs []error) error {
	var all error
	for i, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = fmt.Errorf("shard %d on drive %d: %w", i, ts[i].ref.Drive, err)
		default:
			all = fmt.Errorf("%w; shard %d on drive %d: %w", all, i, ts[i].ref.Drive, err)
		}
	}
	return all
}
