package cluster

import (
	"cmp"
	"math/bits"
	"slices"
)

// quotas splits total into shares in proportion to weights, none above limit: exact but for rounding, the largest
// remainders (the first among equals) being rounded up. total is at most limit*len(weights).
func quotas(weights []uint64, total, limit int) []int {
	out := make([]int, len(weights))
	open := make([]int, len(weights)) // indexes still below the limit
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		var sum uint64
		for _, i := range open {
			sum += weights[i]
		}
		left := total
		next := open[:0:0]
		for _, i := range open {
			if uint64(left)*weights[i] >= uint64(limit)*sum && limit > 0 {
				out[i] = limit
				total -= limit
			} else {
				next = append(next, i)
			}
		}
		if len(next) == len(open) {
			split(out, weights, open, total, sum, limit)
			break
		}
		open = next
	}
	return out
}

// split shares total among open, whose weights sum to sum; every share is below limit.
func split(out []int, weights []uint64, open []int, total int, sum uint64, limit int) {
	rest := total
	remainder := make(map[int]uint64, len(open))
	for _, i := range open {
		product := uint64(total) * weights[i]
		out[i] = int(product / sum)
		remainder[i] = product % sum
		rest -= out[i]
	}
	order := slices.Clone(open)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(remainder[b], remainder[a]) })
	for _, i := range order {
		if rest > 0 && out[i] < limit {
			out[i]++
			rest--
		}
	}
}

// draw picks n distinct indexes and takes one from the quota of each. The quotas sum to left*n, none exceeds left: who
// has left must be picked now, the others are drawn in proportion to what they have. So every later draw succeeds too.
func draw(quota []int, left, n int, r *rng) []int {
	picked := make([]int, 0, n)
	weight := slices.Clone(quota)
	sum := 0
	for i, q := range quota {
		if q == left {
			picked = append(picked, i)
			weight[i] = 0
		}
		sum += weight[i]
	}
	for len(picked) < n {
		at := r.intn(sum)
		for i, w := range weight {
			if at < w {
				picked = append(picked, i)
				sum -= w
				weight[i] = 0
				break
			}
			at -= w
		}
	}
	for _, i := range picked {
		quota[i]--
	}
	return picked
}

// draw1 picks one index in proportion to its quota and takes one from it.
func draw1(quota []int, r *rng) int {
	sum := 0
	for _, q := range quota {
		sum += q
	}
	at := r.intn(sum)
	for i, q := range quota {
		if at < q {
			quota[i]--
			return i
		}
		at -= q
	}
	panic("cluster: drew from an empty quota") // the caller's quotas sum to the number of its draws
}

// rng is SplitMix64 (Steele, Lea, Flood 2014): a fixed sequence for a seed, the same on every machine and in every
// release, which math/rand does not promise.
type rng struct{ state uint64 }

func (r *rng) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// intn returns a number in [0, n). Its bias, n/2^64, does not matter here.
func (r *rng) intn(n int) int {
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int(hi)
}

func (r *rng) shuffle(n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		swap(i, r.intn(i+1))
	}
}
