package loadgen

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"time"

	"objstore/internal/sigv4"
)

// Run prepares, measures and cleans up. An error means that nothing could be measured; failed operations are counted
// in the result.
func Run(ctx context.Context, cfg Config) (Result, error) {
	if err := cfg.Validate(); err != nil {
		return Result{}, err
	}
	if cfg.Objects == 0 {
		cfg.Objects = cfg.defaultObjects()
	}
	g := &generator{cfg: &cfg, signer: sigv4.New(cfg.AccessKey, cfg.SecretKey, cfg.Region, "s3")}
	for _, e := range cfg.Endpoints {
		to, err := parseTarget(e)
		if err != nil {
			return Result{}, err
		}
		g.targets = append(g.targets, to)
	}
	g.body = make([]byte, cfg.Size)
	rand.Read(g.body)
	sum := sha256.Sum256(g.body)
	g.hash = hex.EncodeToString(sum[:])
	if cfg.Unsigned {
		g.hash = sigv4.UnsignedPayload
	}
	began := time.Now()
	if err := g.prepare(ctx); err != nil {
		return Result{}, err
	}
	prepared := time.Since(began)
	res, err := g.measure(ctx)
	if err != nil {
		return res, err
	}
	res.PrepareS = prepared.Seconds()
	if !cfg.Keep {
		res.CleanErrors = g.clean(ctx)
	}
	return res, nil
}

// generator is one Run.
type generator struct {
	cfg     *Config
	signer  *sigv4.Signer
	targets []target
	body    []byte
	hash    string
	puts    int64 // keys that the measured puts made
}

func (g *generator) newRun() *run {
	r := &run{cfg: g.cfg, objects: g.cfg.Objects, body: g.body, hash: g.hash, firstMu: make(chan struct{}, 1)}
	r.firstMu <- struct{}{}
	return r
}

// workers starts n workers and waits for them. op picks the operation of one.
func (g *generator) workers(ctx context.Context, r *run, n int, deadline time.Time, phase string, op func(*worker) func(context.Context) (int64, error)) []*worker {
	ws := make([]*worker, n)
	stop := g.progress(r, phase)
	var wg sync.WaitGroup
	for i := range ws {
		w := &worker{run: r, id: i, c: newClient(g.targets[i%len(g.targets)], g.signer), rng: mrand.New(mrand.NewPCG(uint64(i), uint64(time.Now().UnixNano())))}
		ws[i] = w
		wg.Go(func() { w.loop(ctx, deadline, op(w)) })
	}
	wg.Wait()
	stop()
	return ws
}

// progress reports once a second until the returned function is called, and once more then.
func (g *generator) progress(r *run, phase string) (stop func()) {
	if g.cfg.Progress == nil {
		return func() {}
	}
	start, done, gone := time.Now(), make(chan struct{}), make(chan struct{})
	report := func() {
		g.cfg.Progress(Progress{Phase: phase, Elapsed: time.Since(start), Ops: r.ops.Load(), Bytes: r.bytes.Load(), Errors: r.errors.Load()})
	}
	go func() {
		defer close(gone)
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				report()
			case <-done:
				report()
				return
			}
		}
	}()
	return func() { close(done); <-gone }
}

func (g *generator) measure(ctx context.Context) (Result, error) {
	r := g.newRun()
	if g.cfg.Measuring != nil {
		g.cfg.Measuring(true)
	}
	start := time.Now()
	ws := g.workers(ctx, r, g.cfg.Concurrency, start.Add(g.cfg.Duration), "run", (*worker).operation)
	if g.cfg.Measuring != nil {
		g.cfg.Measuring(false)
	}
	res := Result{Op: g.cfg.Op, Size: g.cfg.Size, Concurrency: g.cfg.Concurrency, DurationS: time.Since(start).Seconds(), EndpointsRun: len(g.targets), Errors: r.errors.Load()}
	var all hist
	for _, w := range ws {
		res.Ops += w.ops
		res.Bytes += w.bytes
		res.Keys += w.keys
		if s := w.spent.Seconds(); s > 0 {
			res.OpsPerS += float64(w.ops) / s
			res.MiBPerS += float64(w.bytes) / s / (1 << 20)
			res.KeysPerS += float64(w.keys) / s
		}
		all.merge(&w.hist)
		g.cleanMixed(ctx, w)
	}
	res.P50MS, res.P99MS = ms(all.quantile(0.5)), ms(all.quantile(0.99))
	if r.first != nil {
		res.FirstError = r.first.Error()
	}
	g.puts = r.next.Load()
	if res.Ops == 0 && r.first != nil {
		return res, fmt.Errorf("no operation succeeded: %w", r.first)
	}
	return res, ctx.Err()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
