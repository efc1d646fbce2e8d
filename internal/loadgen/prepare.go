package loadgen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"objstore/internal/sigv4"
)

const (
	prepareWorkers = 32
	prepareTimeout = time.Hour
	prepareTries   = 5 // for each object
)

// prepare makes the bucket and the objects that the run reads.
func (g *generator) prepare(ctx context.Context) error {
	c := newClient(g.targets[0], g.signer)
	defer c.shut()
	err := c.send(ctx, call{method: "PUT", path: "/" + g.cfg.Bucket, hash: sigv4.EmptyPayload})
	var se *statusError
	if errors.As(err, &se) && se.status == 409 {
		err = nil // it is there; whether it is ours shows in the first operation
	}
	if err != nil {
		return fmt.Errorf("make bucket %s: %w", g.cfg.Bucket, err)
	}
	if g.cfg.Op == "put" {
		return nil
	}
	if !g.cfg.NoPrepare {
		if err := g.each(ctx, "prepare", func(w *worker, ctx context.Context, i int64) (int64, error) { return w.putKey(ctx, w.key(i)) }); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	if g.cfg.Warm && g.cfg.Op == "get" {
		if err := g.each(ctx, "warm", func(w *worker, ctx context.Context, i int64) (int64, error) { return w.getKey(ctx, w.key(i)) }); err != nil {
			return fmt.Errorf("warm: %w", err)
		}
	}
	return nil
}

// each calls f for every object number, over a few workers; each object is tried a few times. One that fails all tries
// is an error: a run over missing objects would measure refusals.
func (g *generator) each(ctx context.Context, phase string, f func(*worker, context.Context, int64) (int64, error)) error {
	r := g.over(ctx, phase, int64(g.cfg.Objects), f)
	if r.first != nil {
		return r.first
	}
	return ctx.Err()
}

func (g *generator) over(ctx context.Context, phase string, n int64, f func(*worker, context.Context, int64) (int64, error)) *run {
	r := g.newRun()
	workers := int(max(1, min(prepareWorkers, n)))
	if g.cfg.Size >= 8<<20 {
		workers = min(workers, 8)
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	g.workers(ctx, r, workers, time.Now().Add(prepareTimeout), phase, func(w *worker) func(context.Context) (int64, error) {
		return func(ctx context.Context) (int64, error) {
			i := r.next.Add(1) - 1
			if i >= n {
				return 0, errDone
			}
			var size int64
			var err error
			for range prepareTries {
				if size, err = f(w, ctx, i); err == nil || ctx.Err() != nil {
					break
				}
			}
			return size, err
		}
	})
	return r
}

// clean removes what the run left and returns how many objects it could not remove.
func (g *generator) clean(ctx context.Context) int64 {
	n := int64(g.cfg.Objects)
	switch g.cfg.Op {
	case "put":
		if n == 0 || g.puts < n {
			n = g.puts
		}
	case "delete":
		if g.puts >= n { // all of them are gone
			return 0
		}
	}
	return g.over(ctx, "clean", n, func(w *worker, ctx context.Context, i int64) (int64, error) {
		return 0, w.removeKey(ctx, w.key(i))
	}).errors.Load()
}

// cleanMixed removes what a worker of a mixed run still has.
func (g *generator) cleanMixed(ctx context.Context, w *worker) {
	if g.cfg.Keep {
		return
	}
	for _, key := range w.mine {
		if w.removeKey(ctx, key) != nil {
			break
		}
	}
	w.c.shut()
}
