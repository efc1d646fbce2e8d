package router

import (
	"context"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
)

var _ API = (*Router)(nil)

// lookup finds an active bucket. A hit in this node's copy of group 0 is served from it; a miss costs one group-0
// ReadIndex before it becomes NoSuchBucket, and is Unavailable without quorum (PROTOCOLS B).
func (r *Router) lookup(ctx context.Context, find func(*cluster.View) *cluster.Bucket) (*cluster.Bucket, error) {
	if b := find(r.deps.Source.View()); b != nil && b.State != cluster.BucketCreating {
		return b, nil
	}
	v, err := r.deps.Source.Sync(ctx)
	if err != nil {
		return nil, err
	}
	if b := find(v); b != nil && b.State != cluster.BucketCreating {
		return b, nil
	}
	return nil, oerr.Errorf("router.lookup", oerr.NoSuchBucket, "the bucket does not exist")
}

func byName(name string) func(*cluster.View) *cluster.Bucket {
	return func(v *cluster.View) *cluster.Bucket { return v.Buckets[name] }
}

func byID(id ident.ID) func(*cluster.View) *cluster.Bucket {
	return func(v *cluster.View) *cluster.Bucket { return v.ByID[id] }
}

// withSpan calls f with the span of key, and once more after a refresh when f's refusal may be due to an old view.
func (r *Router) withSpan(ctx context.Context, find func(*cluster.View) *cluster.Bucket, key string,
	f func(b *cluster.Bucket, s *cluster.SpanRef) error) error {
	for try := 0; ; try++ {
		b, err := r.lookup(ctx, find)
		if err != nil {
			return err
		}
		s := b.SpanOf(key)
		if s == nil {
			return oerr.Errorf("router.span", oerr.Internal, "bucket %s: no span holds the key", b.ID)
		}
		err = f(b, s)
		stale := oerr.Is(err, oerr.StaleEpoch) || oerr.Is(err, oerr.NoSuchBucket)
		if !stale || try >= staleRetries {
			return err
		}
		v, serr := r.deps.Source.Sync(ctx)
		if serr != nil {
			return serr
		}
		nb := find(v)
		if nb == nil || nb.State == cluster.BucketCreating {
			return oerr.Errorf("router.span", oerr.NoSuchBucket, "the bucket does not exist")
		}
		if ns := nb.SpanOf(key); nb.ID == b.ID && ns != nil && *ns == *s {
			return err // the view was not the reason
		}
	}
}

func (r *Router) commandIn(ctx context.Context, find func(*cluster.View) *cluster.Bucket, cmd *metadata.Command) (metadata.Result, error) {
	var res metadata.Result
	err := r.withSpan(ctx, find, cmd.Key, func(b *cluster.Bucket, s *cluster.SpanRef) error {
		// A refused try has its own request id: its refusal is final, the next try is another request.
		cmd.RequestID, cmd.Bucket, cmd.Generation = ident.New(), b.ID, s.Generation
		var err error
		res, err = r.command(ctx, s.Group, cmd)
		return err
	})
	return res, err
}

func (r *Router) queryIn(ctx context.Context, find func(*cluster.View) *cluster.Bucket, q *metadata.Query) (*metadata.Answer, error) {
	var a *metadata.Answer
	at := q.Key
	if at == "" {
		at = max(q.Prefix, q.After)
	}
	err := r.withSpan(ctx, find, at, func(b *cluster.Bucket, s *cluster.SpanRef) error {
		q.Bucket, q.Generation = b.ID, s.Generation
		var err error
		a, err = r.query(ctx, s.Group, q)
		return err
	})
	return a, err
}

// Command implements API.
func (r *Router) Command(ctx context.Context, bucket string, cmd *metadata.Command) (metadata.Result, error) {
	return r.commandIn(ctx, byName(bucket), cmd)
}

// Query implements API.
func (r *Router) Query(ctx context.Context, bucket string, q *metadata.Query) (*metadata.Answer, error) {
	return r.queryIn(ctx, byName(bucket), q)
}

// CommandByID implements API.
func (r *Router) CommandByID(ctx context.Context, bucket ident.ID, cmd *metadata.Command) (metadata.Result, error) {
	return r.commandIn(ctx, byID(bucket), cmd)
}

// QueryByID implements API.
func (r *Router) QueryByID(ctx context.Context, bucket ident.ID, q *metadata.Query) (*metadata.Answer, error) {
	return r.queryIn(ctx, byID(bucket), q)
}

// GroupQuery implements API.
func (r *Router) GroupQuery(ctx context.Context, g ident.Group, q *metadata.Query) (*metadata.Answer, error) {
	return r.query(ctx, g, q)
}

// GroupCommand implements API.
func (r *Router) GroupCommand(ctx context.Context, g ident.Group, cmd *metadata.Command) (metadata.Result, error) {
	cmd.RequestID = ident.New()
	return r.command(ctx, g, cmd)
}

// SpanCommand proposes a command whose bucket and generation the caller has set (bucket life cycle).
func (r *Router) SpanCommand(ctx context.Context, g ident.Group, cmd *metadata.Command) (metadata.Result, error) {
	if cmd.RequestID.IsZero() {
		cmd.RequestID = ident.New()
	}
	return r.command(ctx, g, cmd)
}
