package loadgen

import (
	"math/bits"
	"time"
)

const (
	histSub     = 5 // bits: 32 buckets for each power of two, so a value is right within 3.2 %
	histBuckets = (64 - histSub + 1) << histSub
)

// hist counts durations in buckets of fixed relative width, in 15 KiB whatever happens.
type hist struct {
	n      int64
	counts [histBuckets]uint64
}

func (h *hist) add(d time.Duration) {
	h.n++
	h.counts[histIndex(uint64(max(d, 0)))]++
}

func histIndex(v uint64) int {
	if v < 1<<histSub {
		return int(v)
	}
	exp := bits.Len64(v) - histSub - 1
	return (exp+1)<<histSub + int(v>>exp)&(1<<histSub-1)
}

// histUpper is the largest value of bucket i.
func histUpper(i int) uint64 {
	if i < 1<<histSub {
		return uint64(i)
	}
	exp := i>>histSub - 1
	return (uint64(i&(1<<histSub-1)|1<<histSub)+1)<<exp - 1
}

func (h *hist) merge(o *hist) {
	h.n += o.n
	for i, c := range o.counts {
		h.counts[i] += c
	}
}

// quantile returns the value below which the share q of the durations lies, 0 when there are none.
func (h *hist) quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(q * float64(h.n-1))
	var seen uint64
	for i, c := range h.counts {
		seen += c
		if seen > rank {
			return time.Duration(histUpper(i))
		}
	}
	return 0
}
