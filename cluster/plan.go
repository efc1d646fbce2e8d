package cluster

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Placement-group counts (start).
const (
	pgsPerDrive = 100 // shards of placement groups that each drive holds, about
	minPGs      = 128 // so that few drives still spread evenly
	pgRound     = 64  // counts are multiples of it
	maxShards   = 32  // of a profile
	weightBits  = 20  // drive weights are capacities scaled to this many bits
)

// Failure-domain units.
const (
	unitNode  = "node"
	unitDrive = "drive"
)

// domain is a failure domain: a node with its drives, or one drive when there is one node.
type domain struct {
	node   ident.Node
	drives []*Drive // active, in number order
}

// planDomains returns the failure domains in number order, and what one is called.
func planDomains(v *View) ([]domain, string) {
	var nodes []domain
	for _, id := range sortedKeys(v.Nodes) {
		if v.Nodes[id].Removed {
			continue
		}
		d := domain{node: id}
		for _, did := range sortedKeys(v.Drives) {
			if dr := v.Drives[did]; dr.Node == id && dr.State == DriveActive {
				d.drives = append(d.drives, dr)
			}
		}
		if len(d.drives) > 0 {
			nodes = append(nodes, d)
		}
	}
	if len(nodes) != 1 {
		return nodes, unitNode
	}
	drives := make([]domain, 0, len(nodes[0].drives))
	for _, dr := range nodes[0].drives {
		drives = append(drives, domain{node: dr.Node, drives: []*Drive{dr}})
	}
	return drives, unitDrive
}

// activeNodes counts the members that have an active drive.
func activeNodes(v *View) int {
	with := map[ident.Node]bool{}
	for _, d := range v.Drives {
		if n := v.Nodes[d.Node]; d.State == DriveActive && n != nil && !n.Removed {
			with[d.Node] = true
		}
	}
	return len(with)
}

// domainUnit says what the failure domains of the placement-group table are: drives when all stand on one node.
func (s *State) domainUnit() string { return domainUnit(&s.view) }

func domainUnit(v *View) string {
	var first ident.Node
	for i := range v.PGs {
		for _, id := range v.PGs[i].Drives {
			d := v.Drives[id]
			switch {
			case d == nil:
			case first == 0:
				first = d.Node
			case first != d.Node:
				return unitNode
			}
		}
	}
	if first == 0 {
		_, unit := planDomains(v)
		return unit
	}
	return unitDrive
}

// DefaultPGCount returns how many placement groups of n shards this many drives get: about 100 shards on each drive.
func DefaultPGCount(drives, n int) int {
	count := (drives*pgsPerDrive + n - 1) / n
	count = (count + pgRound - 1) / pgRound * pgRound
	return min(max(count, minPGs), MaxPGs)
}

// Plan computes the placement groups and the metadata groups for a view that is not formed yet. Counts of 0 mean the
// defaults. It is a pure function: equal views give equal tables on every machine, so it uses no floating point (the
// logarithms of straw2 differ between processors) but draws in proportion to integer quotas.
//
// Every placement group has its shards on n distinct failure domains. Domains, and the drives in them, get a share of
// the shards in proportion to their capacity (at most one in each placement group), exact to one shard. Which domains
// meet in a placement group is drawn anew for each, so that a lost drive is rebuilt from and to all others.
func Plan(v *View, pgCount, groupCount int, p erasure.Profile) ([]PG, []Group, error) {
	domains, unit := planDomains(v)
	n := p.N()
	if p.K == 0 || n > maxShards {
		return nil, nil, oerr.Errorf("cluster.plan", oerr.InvalidArgument, "profile %s: need 1 to %d shards with at least one data shard", p, maxShards)
	}
	if n > len(domains) {
		return nil, nil, oerr.Errorf("cluster.plan", oerr.InvalidArgument, "profile %s needs %d %ss with active drives, there are %d", p, n, unit, len(domains))
	}
	drives := 0
	for _, d := range domains {
		drives += len(d.drives)
	}
	if pgCount == 0 {
		pgCount = DefaultPGCount(drives, n)
	}
	if groupCount == 0 {
		groupCount = DefaultGroupCount
	}
	if pgCount < 1 || pgCount > MaxPGs || groupCount < 1 || groupCount > MaxGroups {
		return nil, nil, oerr.Errorf("cluster.plan", oerr.InvalidArgument, "%d placement groups and %d metadata groups, need 1 to %d and 1 to %d", pgCount, groupCount, MaxPGs, MaxGroups)
	}
	seed := binary.BigEndian.Uint64(v.ClusterID[:8])
	return planPGs(domains, pgCount, p, rng{seed ^ 'P'}), planGroups(domains, groupCount, p, rng{seed ^ 'G'}), nil
}

func planPGs(domains []domain, count int, p erasure.Profile, r rng) []PG {
	n := p.N()
	shift := weightShift(domains)
	weights := make([]uint64, len(domains))
	for i, d := range domains {
		for _, dr := range d.drives {
			weights[i] += driveWeight(dr, shift)
		}
	}
	quota := quotas(weights, count*n, count)
	inner := make([][]int, len(domains))
	for i, d := range domains {
		w := make([]uint64, len(d.drives))
		for j, dr := range d.drives {
			w[j] = driveWeight(dr, shift)
		}
		inner[i] = quotas(w, quota[i], quota[i])
	}
	pgs := make([]PG, count)
	tallies := map[ident.Drive]tally{}
	for i := range pgs {
		drives := make([]ident.Drive, 0, n)
		for _, di := range draw(quota, count-i, n, &r) {
			j := draw1(inner[di], &r)
			drives = append(drives, domains[di].drives[j].ID)
		}
		orderShards(drives, int(p.K), tallies, &r)
		pgs[i] = PG{ID: ident.PG(i), Profile: p, Drives: drives}
	}
	return pgs
}

// tally counts the shards a drive has, and how many of them are data shards.
type tally struct{ all, data int }

// orderShards decides which drive holds which shard: healthy reads go to data shards only, so the drives furthest below
// their share k/n of data shards come first; the order among equals is drawn.
func orderShards(drives []ident.Drive, k int, tallies map[ident.Drive]tally, r *rng) {
	r.shuffle(len(drives), func(i, j int) { drives[i], drives[j] = drives[j], drives[i] })
	n := len(drives)
	due := func(d ident.Drive) int { t := tallies[d]; return (t.all+1)*k - t.data*n }
	slices.SortStableFunc(drives, func(a, b ident.Drive) int { return cmp.Compare(due(b), due(a)) })
	r.shuffle(k, func(i, j int) { drives[i], drives[j] = drives[j], drives[i] })
	for i, d := range drives {
		t := tallies[d]
		t.all++
		if i < k {
			t.data++
		}
		tallies[d] = t
	}
}

// weightShift scales capacities so that sums and products of weights fit 64 bits with room.
func weightShift(domains []domain) uint {
	var largest uint64
	for _, d := range domains {
		for _, dr := range d.drives {
			largest = max(largest, dr.Capacity)
		}
	}
	shift := uint(0)
	for largest>>shift >= 1<<weightBits {
		shift++
	}
	return shift
}

func driveWeight(d *Drive, shift uint) uint64 { return max(1, d.Capacity>>shift) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
