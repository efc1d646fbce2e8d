package shard

import (
	"context"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"objstore/internal/oerr"
)

func get(t *testing.T, p *Pool, n int) *Buf {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	b, err := p.Get(ctx, n)
	if err != nil {
		t.Fatalf("Get(%d): %v", n, err)
	}
	return b
}

func address(b []byte) uintptr { return reflect.ValueOf(b).Pointer() }

// waiting polls until n Gets wait.
func waiting(t *testing.T, p *Pool, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; <-time.After(100 * time.Microsecond) {
		p.mu.Lock()
		have := len(p.mu.waiters)
		p.mu.Unlock()
		if have == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d Gets wait, expected %d", have, n)
		}
	}
}

func TestBuffersHaveTheLengthAskedForAndAreAligned(t *testing.T) {
	p := NewPool(64 << 20)
	defer p.Close()
	for _, n := range []int{0, 1, 4096, 16 << 10, 16<<10 + 1, 64 << 10, 1 << 20, 16 << 20} {
		b := get(t, p, n)
		if len(b.B) != n || cap(b.B) < n {
			t.Errorf("Get(%d): length %d, capacity %d", n, len(b.B), cap(b.B))
		}
		if len(b.mem)%Align != 0 || address(b.mem)%Align != 0 {
			t.Errorf("Get(%d): %d bytes at %x are not aligned", n, len(b.mem), address(b.mem))
		}
		b.Release()
	}
	for _, n := range []int{16<<20 + 1, 1 << 40} {
		if _, err := p.Get(context.Background(), n); !oerr.Is(err, oerr.InvalidArgument) {
			t.Errorf("Get(%d): %v", n, err)
		}
	}
	if _, err := NewPool(1<<20).Get(context.Background(), 2<<20); !oerr.Is(err, oerr.InvalidArgument) {
		t.Errorf("more than the whole budget: %v", err)
	}
}

func TestTheBudgetIsNeverExceeded(t *testing.T) {
	const budget = 4 << 20
	p := NewPool(budget)
	defer p.Close()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var out atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			for range 300 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(2000))*time.Microsecond)
				b, err := p.Get(ctx, 1+rng.IntN(2<<20))
				cancel()
				if err != nil {
					if !oerr.Is(err, oerr.Busy) {
						t.Errorf("Get: %v", err)
					}
					continue
				}
				size := int64(len(b.mem))
				if now := out.Add(size); now > budget {
					t.Errorf("%d bytes are out, the budget is %d", now, budget)
				}
				b.B[0], b.B[len(b.B)-1] = 1, 1
				if rng.IntN(2) == 0 {
					b.Retain()
					b.Release()
				}
				p.mu.Lock()
				if sum := p.mu.out + p.mu.cached; sum > budget {
					t.Errorf("%d bytes are out or cached, the budget is %d", sum, budget)
				}
				p.mu.Unlock()
				out.Add(-size)
				b.Release()
			}
		})
	}
	wg.Wait()
	if p.InUse() != 0 {
		t.Errorf("%d bytes are in use at the end", p.InUse())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.cached > budget || len(p.mu.waiters) != 0 {
		t.Errorf("%d bytes cached, %d waiters", p.mu.cached, len(p.mu.waiters))
	}
}

func TestWaitersAreServedInOrderEvenWhenALaterOneWouldFit(t *testing.T) {
	p := NewPool(2 << 20)
	defer p.Close()
	first, second := get(t, p, 1<<20), get(t, p, 1<<20)
	order := make(chan string, 2)
	var wg sync.WaitGroup
	wg.Go(func() {
		b := get(t, p, 2<<20)
		order <- "large"
		b.Release()
	})
	waiting(t, p, 1)
	wg.Go(func() {
		b := get(t, p, 16<<10)
		order <- "small"
		b.Release()
	})
	waiting(t, p, 2)
	first.Release() // 1 MiB is free: enough for the small one, which has to wait all the same
	waiting(t, p, 2)
	second.Release()
	wg.Wait()
	if a, b := <-order, <-order; a != "large" || b != "small" {
		t.Errorf("served %s before %s", a, b)
	}
}

func TestACancelledWaiterIsBusyAndLetsTheNextPass(t *testing.T) {
	p := NewPool(2 << 20)
	defer p.Close()
	held := get(t, p, 1<<20)
	ctx, cancel := context.WithCancel(context.Background())
	large, small := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := p.Get(ctx, 2<<20)
		large <- err
	}()
	waiting(t, p, 1)
	go func() {
		b, err := p.Get(context.Background(), 1<<20)
		if err == nil {
			b.Release()
		}
		small <- err
	}()
	waiting(t, p, 2)
	cancel()
	if err := <-large; !oerr.Is(err, oerr.Busy) {
		t.Errorf("cancelled Get: %v, expected busy", err)
	}
	select {
	case err := <-small:
		if err != nil {
			t.Errorf("the one behind: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the one behind a cancelled waiter was not served")
	}
	held.Release()
	if p.InUse() != 0 {
		t.Errorf("%d bytes are in use", p.InUse())
	}
}

func TestReleasingOrRetainingTooOftenPanics(t *testing.T) {
	p := NewPool(1 << 20)
	defer p.Close()
	panics := func(what string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s did not panic", what)
			}
		}()
		f()
	}
	b := get(t, p, 4096)
	b.Retain()
	b.Release()
	b.Release()
	panics("release after the last reference", b.Release)
	c := get(t, p, 80<<10)
	c.Release()
	panics("retain after the last reference", c.Retain)
}

func TestAReferenceKeepsTheBufferOut(t *testing.T) {
	p := NewPool(1 << 20)
	defer p.Close()
	b := get(t, p, 1<<20)
	b.Retain()
	b.Release()
	if p.InUse() != 1<<20 {
		t.Errorf("%d bytes are in use with one reference left", p.InUse())
	}
	b.B = b.B[100:] // the pool does not depend on what became of B
	b.Release()
	again := get(t, p, 1<<20)
	if len(again.B) != 1<<20 {
		t.Errorf("a reused buffer has %d bytes", len(again.B))
	}
	again.Release()
}

func TestCloseEndsWaitersAndLaterGets(t *testing.T) {
	p := NewPool(1 << 20)
	held := get(t, p, 1<<20)
	result := make(chan error, 1)
	go func() {
		_, err := p.Get(context.Background(), 4096)
		result <- err
	}()
	waiting(t, p, 1)
	p.Close()
	select {
	case err := <-result:
		if !oerr.Is(err, oerr.Closed) {
			t.Errorf("waiting Get: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Close did not wake the waiter")
	}
	if _, err := p.Get(context.Background(), 4096); !oerr.Is(err, oerr.Closed) {
		t.Errorf("Get after Close: %v", err)
	}
	held.B[0] = 1 // still mapped
	held.Release()
	p.Close()
}

func BenchmarkGetRelease(b *testing.B) {
	p := NewPool(64 << 20)
	defer p.Close()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		x, err := p.Get(ctx, 64<<10)
		if err != nil {
			b.Fatal(err)
		}
		x.Release()
	}
}
