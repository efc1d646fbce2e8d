package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"objstore/erasure"
	"objstore/internal/ident"
)

func checkPlan(t *testing.T, v *View, p erasure.Profile, pgs []PG, groups []Group) {
	t.Helper()
	domains, unit := planDomains(v)
	domainOf := func(id ident.Drive) uint64 {
		if unit == unitNode {
			return uint64(v.Drives[id].Node)
		}
		return uint64(id)
	}
	all, data := map[ident.Drive]int{}, map[ident.Drive]int{}
	for i, pg := range pgs {
		if pg.ID != ident.PG(i) || pg.Profile != p || len(pg.Drives) != p.N() {
			t.Fatalf("placement group %d: %+v, expected %d drives of profile %s", i, pg, p.N(), p)
		}
		seen := map[uint64]bool{}
		for j, id := range pg.Drives {
			if seen[domainOf(id)] {
				t.Fatalf("placement group %d has two shards on %s %d", i, unit, domainOf(id))
			}
			seen[domainOf(id)] = true
			all[id]++
			if j < int(p.K) {
				data[id]++
			}
		}
	}
	checkShares(t, domains, pgs, p, all)
	for id, n := range all {
		want := float64(n) * float64(p.K) / float64(p.N())
		if slack := max(3, 0.2*want); math.Abs(float64(data[id])-want) > slack {
			t.Errorf("drive %d has %d data shards of %d shards, expected %.0f ± %.0f", id, data[id], n, want, slack)
		}
	}
	checkGroups(t, v, domains, p, groups, domainOf)
}

// checkShares: each drive's shards are its share by capacity, where no domain is at its limit.
func checkShares(t *testing.T, domains []domain, pgs []PG, p erasure.Profile, all map[ident.Drive]int) {
	t.Helper()
	var total float64
	for _, d := range domains {
		for _, dr := range d.drives {
			total += float64(dr.Capacity)
		}
	}
	capped := false
	for _, d := range domains {
		var c float64
		for _, dr := range d.drives {
			c += float64(dr.Capacity)
		}
		capped = capped || c*float64(p.N()) >= total
	}
	for _, d := range domains {
		for _, dr := range d.drives {
			want := float64(len(pgs)*p.N()) * float64(dr.Capacity) / total
			if !capped && math.Abs(float64(all[dr.ID])-want) > 2.01 {
				t.Errorf("drive %d has %d shards, expected %.1f by its capacity", dr.ID, all[dr.ID], want)
			}
		}
	}
}

func checkGroups(t *testing.T, v *View, domains []domain, p erasure.Profile, groups []Group, domainOf func(ident.Drive) uint64) {
	t.Helper()
	rf := ReplicationFactor(len(domains), p)
	per, leads := map[uint64]int{}, map[uint64]int{}
	for i, g := range groups {
		if g.ID != ident.Group(i+1) || len(g.Replicas) != rf || !reflect.DeepEqual(g.Replicas, g.Founders) {
			t.Fatalf("group %d: %+v, expected %d replicas", i+1, g, rf)
		}
		seen := map[uint64]bool{}
		for _, r := range g.Replicas {
			if seen[domainOf(r.Drive)] || v.Drives[r.Drive].Node != r.Node || r.Learner {
				t.Fatalf("group %d: replica %+v: domain used twice, wrong node or learner", g.ID, r)
			}
			seen[domainOf(r.Drive)] = true
			per[domainOf(r.Drive)]++
		}
		leads[domainOf(g.Replicas[0].Drive)]++
	}
	for _, d := range domains {
		id := domainOf(d.drives[0].ID)
		if want := float64(len(groups)*rf) / float64(len(domains)); math.Abs(float64(per[id])-want) >= 1 {
			t.Errorf("domain %d has %d replicas, expected %.1f", id, per[id], want)
		}
		if want := float64(len(groups)) / float64(len(domains)); float64(leads[id]) > want+2 {
			t.Errorf("domain %d leads %d groups first, expected about %.1f", id, leads[id], want)
		}
	}
}

func TestPlanSpreadsOverDistinctDomainsInProportionToCapacity(t *testing.T) {
	for nodes := 1; nodes <= 40; nodes++ {
		for _, drives := range []int{1, 4} {
			t.Run(fmt.Sprintf("%d nodes of %d drives", nodes, drives), func(t *testing.T) {
				v := clusterOf(t, nodes, drives).s.View()
				domains, _ := planDomains(v)
				p := erasure.DefaultProfile(len(domains))
				pgs, groups, err := Plan(v, 0, 0, p)
				if err != nil {
					t.Fatal(err)
				}
				if want := DefaultPGCount(nodes*drives, p.N()); len(pgs) != want || len(groups) != DefaultGroupCount {
					t.Fatalf("%d placement groups and %d groups, expected %d and %d", len(pgs), len(groups), want, DefaultGroupCount)
				}
				checkPlan(t, v, p, pgs, groups)
			})
		}
	}
}

func TestPlanHoldsForRandomClusters(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 150 {
		d := newDriver(t)
		nodes := 1 + r.IntN(20)
		d.ok(initCommand(nodes))
		for i := 1; i <= nodes; i++ {
			var sizes []uint64
			for range 1 + r.IntN(6) {
				sizes = append(sizes, 1<<uint(27+r.IntN(3))+r.Uint64N(1<<27))
			}
			d.join(i, sizes...)
		}
		v := d.s.View()
		domains, _ := planDomains(v)
		p := erasure.DefaultProfile(1 + r.IntN(len(domains)))
		pgs, groups, err := Plan(v, 1+r.IntN(700), 1+r.IntN(64), p)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		checkPlan(t, v, p, pgs, groups)
		if t.Failed() {
			t.Fatalf("seed %d: %d nodes, profile %s", seed, nodes, p)
		}
	}
}

func TestPlanIsDeterministic(t *testing.T) {
	a, ag, err := Plan(clusterOf(t, 9, 3).s.View(), 0, 0, erasure.Profile{K: 4, M: 2})
	if err != nil {
		t.Fatal(err)
	}
	b, bg, _ := Plan(clusterOf(t, 9, 3).s.View(), 0, 0, erasure.Profile{K: 4, M: 2})
	if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(ag, bg) {
		t.Fatal("two plans of equal views differ")
	}
	// Pinned: replicas with different builds must compute the same table.
	const want = "[8 5 25 14 20 17] [27 4 1 24 18 13]"
	if got := fmt.Sprint(a[0].Drives, " ", a[161].Drives); got != want {
		t.Errorf("placement groups 0 and 161 are %s, expected %s: the plan must never change for a format version", got, want)
	}
}

func TestPlanPairsEveryDriveWithEveryOther(t *testing.T) {
	v := clusterOf(t, 8, 2).s.View()
	pgs, _, err := Plan(v, 0, 0, erasure.Profile{K: 2, M: 2})
	if err != nil {
		t.Fatal(err)
	}
	pairs := map[[2]ident.Drive]int{}
	for _, pg := range pgs {
		for _, a := range pg.Drives {
			for _, b := range pg.Drives {
				pairs[[2]ident.Drive{a, b}]++
			}
		}
	}
	for a := ident.Drive(1); a <= 16; a++ {
		for b := ident.Drive(1); b <= 16; b++ {
			if v.Drives[a].Node != v.Drives[b].Node && pairs[[2]ident.Drive{a, b}] < 5 {
				t.Errorf("drives %d and %d share %d placement groups of %d", a, b, pairs[[2]ident.Drive{a, b}], len(pgs))
			}
		}
	}
}

func TestPlanRefusesWhatDoesNotFit(t *testing.T) {
	v := clusterOf(t, 3, 2).s.View()
	for _, c := range []struct {
		name        string
		pgs, groups int
		p           erasure.Profile
	}{
		{"more shards than domains", 0, 0, erasure.Profile{K: 2, M: 2}},
		{"no data shard", 0, 0, erasure.Profile{M: 1}},
		{"too many placement groups", MaxPGs + 1, 0, erasure.Profile{K: 1, M: 2}},
		{"negative placement groups", -1, 0, erasure.Profile{K: 1, M: 2}},
		{"too many groups", 0, MaxGroups + 1, erasure.Profile{K: 1, M: 2}},
	} {
		if _, _, err := Plan(v, c.pgs, c.groups, c.p); err == nil {
			t.Errorf("%s: accepted", c.name)
		}
	}
}
