package node

import (
	"context"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/object"
	"objstore/repair"
)

const repairPoolBytes = 48 << 20

// buckets runs the bucket protocol for the engine.
type buckets struct{ deps cluster.BucketDeps }

func (b buckets) Create(ctx context.Context, name, owner string) error {
	_, err := cluster.CreateBucket(ctx, b.deps, name, owner)
	return err
}

func (b buckets) Delete(ctx context.Context, name string) error {
	return cluster.DeleteBucket(ctx, b.deps, name)
}

func (n *node) bucketDeps() cluster.BucketDeps {
	return cluster.BucketDeps{Source: n.group0, Spans: n.router}
}

func (n *node) startEngine(context.Context) error {
	s := n.cfg.Settings
	inline := s.InlineBytes
	if inline == 0 {
		inline = -1
	}
	e, err := object.New(object.Config{Node: n.self, StartID: n.start, MaxInline: inline, GraceMin: s.PutGrace, HedgeMin: s.HedgeAfter, MetadataTimeout: s.RetryDeadline + 2*time.Second},
		object.Deps{Router: n.router, Cluster: n.group0, Dialer: n.dialer, Buckets: buckets{n.bucketDeps()},
			Pool: n.pool("object", s.PutBufferBytes+s.GetBufferBytes), Alive: n.alive, CountShard: n.metrics.CountShard, OnEvent: n.objectEvent})
	if err != nil {
		return err
	}
	n.engine = e
	n.engines.Store(e)
	n.closing(func() error { e.Close(); return nil })
	n.repair = repair.New(repair.Config{Self: n.self, Concurrency: s.RepairConcurrency, CommitAge: s.RepairAge, GarbageGrace: s.GarbageGrace,
		VerifyInterval: s.VerifyInterval, VerifyRate: s.VerifyRateBytes},
		repair.Deps{Router: n.router, Source: n.group0, Dialer: n.dialer, Pool: n.pool("repair", repairPoolBytes), Alive: n.alive,
			Leads: func() []ident.Group { return n.replicas.leads(n.self) }, Disowned: n.disowned, Count: n.metrics.CountShard,
			Event: func(kind, detail string) {
				n.metrics.Event(kind)
				n.cfg.Log.Warn(kind, "detail", detail)
			}})
	n.repairs.Store(n.repair)
	return nil
}

// objectEvent counts what the engine reports; what an operator should see once in a while is logged.
func (n *node) objectEvent(e object.Event) {
	n.metrics.Event(e.Kind.String())
	switch e.Kind {
	case object.EventShardBad, object.EventShardFailed, object.EventLeftOrphan:
		if oerr.Is(e.Err, oerr.Unavailable) || oerr.Is(e.Err, oerr.Canceled) {
			return
		}
		n.cfg.Log.Warn("object", "event", e.Kind.String(), "blob", e.Blob, "shard", e.Index, "drive", e.Drive, "error", e.Err)
	}
}

// credential looks an access key up. A miss costs one group-0 read before it becomes "no such key" (PROTOCOLS B).
func (n *node) credential(ctx context.Context, accessKey string) (string, bool, error) {
	c := n.group0.View().Keys[accessKey]
	if c == nil {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		v, err := n.group0.Sync(ctx)
		if err != nil {
			return "", false, err
		}
		c = v.Keys[accessKey]
	}
	if c == nil || c.Disabled {
		return "", false, nil
	}
	return string(c.Secret), true, nil
}
