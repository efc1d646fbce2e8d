package cluster

import (
	"slices"

	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/metadata/host"
)

// ReplicationFactor returns how many replicas a metadata group has: 3, or 5 where data would survive more than metadata
// (m ≥ 3) and there are 5 failure domains; never more than there are domains.
func ReplicationFactor(domains int, p erasure.Profile) int {
	if p.M >= 3 && domains >= 5 {
		return 5
	}
	return min(3, domains)
}

// planGroups lays out metadata groups 1..count: replicas on distinct domains, spread evenly over domains and, within
// one, over drives; first leaders (Replicas[0]) spread evenly, too.
func planGroups(domains []domain, count int, p erasure.Profile, r rng) []Group {
	rf := ReplicationFactor(len(domains), p)
	quota := quotas(ones(len(domains)), count*rf, count)
	inner := make([][]int, len(domains))
	for i, d := range domains {
		inner[i] = quotas(ones(len(d.drives)), quota[i], quota[i])
	}
	leads := make([]int, len(domains))
	groups := make([]Group, count)
	for g := range groups {
		picked := draw(quota, count-g, rf, &r)
		r.shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
		slices.SortStableFunc(picked, func(a, b int) int { return leads[a] - leads[b] })
		leads[picked[0]]++
		replicas := make([]Replica, 0, rf)
		for _, di := range picked {
			replicas = append(replicas, replicaOn(domains[di].drives[draw1(inner[di], &r)]))
		}
		groups[g] = Group{ID: ident.Group(g + 1), Replicas: replicas, Founders: replicas}
	}
	return groups
}

// replicaOn is a voter on the drive's present incarnation.
func replicaOn(d *Drive) Replica {
	return Replica{ID: host.ReplicaID(d.ID, d.Incarnation), Node: d.Node, Drive: d.ID}
}

// Group0Voters returns how many voters group 0 has with this many nodes; all further nodes are learners.
func Group0Voters(nodes int, p erasure.Profile) int {
	if p.M >= 3 && nodes >= 5 {
		return 5
	}
	return min(3, nodes)
}

func ones(n int) []uint64 {
	w := make([]uint64, n)
	for i := range w {
		w[i] = 1
	}
	return w
}
