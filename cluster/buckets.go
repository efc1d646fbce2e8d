package cluster

import (
	"context"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
)

// SpanCommander proposes a command in a metadata group, whatever span it names. A refusal by apply may come back as an
// error or as the Result's Code. metadata/router does it.
type SpanCommander interface {
	SpanCommand(ctx context.Context, g ident.Group, cmd *metadata.Command) (metadata.Result, error)
}

// BucketDeps is what the bucket protocol (PROTOCOLS B) needs.
type BucketDeps struct {
	Source Source
	Spans  SpanCommander
}

// deleteTries bounds how often DeleteBucket begins anew because another deletion or revival came between.
const deleteTries = 4

// spanTries bounds how often a span command that is answered Busy goes on at once; the controller goes on later.
const spanTries = 16

// CreateBucket makes a bucket: creating in group 0, its span in a metadata group, active in group 0. An error leaves at
// most a bucket in creating, which the controller finishes: the outcome is then unknown, and the error says so.
func CreateBucket(ctx context.Context, deps BucketDeps, name, owner string) (*Bucket, error) {
	const op = "cluster.create_bucket"
	if err := ValidateBucketName(name); err != nil {
		return nil, oerr.Wrap(op, err)
	}
	res, err := exec(ctx, deps.Source, &Command{Op: OpCreateBucket, Bucket: name, BucketID: ident.New(), Owner: owner})
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	b, err := finishCreate(ctx, deps, res.Bucket)
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	return b, nil
}

// finishCreate takes a bucket in creating to active. Every step may be repeated.
func finishCreate(ctx context.Context, deps BucketDeps, b *Bucket) (*Bucket, error) {
	if b == nil || len(b.Spans) == 0 {
		return nil, oerr.Errorf("cluster.create_bucket", oerr.Internal, "group 0 answered without a bucket")
	}
	for i := range b.Spans {
		sp := b.Spans[i]
		cmd := spanCommand(deps, metadata.OpCreateSpan, b, sp)
		cmd.Span = &metadata.Span{Bucket: b.ID, Start: sp.Start, End: sp.End, Generation: sp.Generation}
		if err := span(ctx, deps, sp.Group, cmd); err != nil && !oerr.Is(err, oerr.Exists) {
			return nil, err
		}
	}
	res, err := exec(ctx, deps.Source, bucketCommand(OpBucketState, b, BucketActive))
	if err != nil {
		return nil, err
	}
	return res.Bucket, nil
}

// DeleteBucket removes an empty bucket: deleting in group 0, its span sealed if it holds nothing, gone from group 0, the
// span dropped. A bucket that holds something is put back to active, and BucketNotEmpty is the answer.
func DeleteBucket(ctx context.Context, deps BucketDeps, name string) error {
	const op = "cluster.delete_bucket"
	for range deleteTries {
		b := deps.Source.View().Buckets[name]
		if b == nil || b.State == BucketCreating { // a miss becomes "absent" only after a read of group 0
			v, err := deps.Source.Sync(ctx)
			if err != nil {
				return oerr.Wrap(op, err)
			}
			if b = v.Buckets[name]; b == nil || b.State == BucketCreating {
				return oerr.Errorf(op, oerr.NoSuchBucket, "there is no bucket %s", quoteShort(name))
			}
		}
		res, err := exec(ctx, deps.Source, bucketCommand(OpBucketState, b, BucketDeleting))
		if oerr.Is(err, oerr.NoSuchBucket) { // this node's view was older than the bucket
			if _, err := deps.Source.Sync(ctx); err != nil {
				return oerr.Wrap(op, err)
			}
			continue
		}
		if err != nil {
			return oerr.Wrap(op, err)
		}
		err = finishDelete(ctx, deps, res.Bucket)
		if !oerr.Is(err, oerr.StaleEpoch) { // StaleEpoch: another attempt came between
			return oerr.Wrap(op, err)
		}
	}
	return oerr.Errorf(op, oerr.Unavailable, "bucket %s: other requests changed it %d times in between", name, deleteTries)
}

// finishDelete takes a bucket in deleting, whose attempt is the caller's, to gone or back to active.
func finishDelete(ctx context.Context, deps BucketDeps, b *Bucket) error {
	if b == nil {
		return oerr.Errorf("cluster.delete_bucket", oerr.Internal, "group 0 answered without a bucket")
	}
	for _, sp := range b.Spans {
		err := span(ctx, deps, sp.Group, spanCommand(deps, metadata.OpSealSpan, b, sp))
		switch {
		case oerr.Is(err, oerr.BucketNotEmpty):
			back := bucketCommand(OpBucketState, b, BucketActive)
			back.Attempt = b.Attempt
			if _, rerr := exec(ctx, deps.Source, back); rerr != nil {
				return rerr
			}
			return err
		case err != nil && !oerr.Is(err, oerr.NoSuchBucket): // NoSuchBucket: sealed or dropped already
			return err
		}
	}
	if _, err := exec(ctx, deps.Source, bucketCommand(OpRemoveBucket, b, 0)); err != nil {
		return err
	}
	for _, sp := range b.Spans {
		// The bucket is gone, whatever comes of this: the controller drops sealed spans that no bucket has.
		_ = span(ctx, deps, sp.Group, spanCommand(deps, metadata.OpDropSpan, b, sp))
	}
	return nil
}

func bucketCommand(op Op, b *Bucket, state BucketState) *Command {
	return &Command{Op: op, Bucket: b.Name, BucketID: b.ID, State: uint8(state)}
}

func spanCommand(deps BucketDeps, op metadata.Op, b *Bucket, sp SpanRef) *metadata.Command {
	return &metadata.Command{
		Op: op, RequestID: ident.New(), Bucket: b.ID, Generation: sp.Generation, Epoch: deps.Source.View().Epoch, Key: sp.Start,
	}
}

// span proposes cmd and turns a refusal into an error. Sealing and dropping a span with very many open parts goes on over
// several entries, each answered Busy but the last.
func span(ctx context.Context, deps BucketDeps, g ident.Group, cmd *metadata.Command) error {
	var err error
	for range spanTries {
		var res metadata.Result
		res, err = deps.Spans.SpanCommand(ctx, g, cmd)
		if err == nil && res.Code != 0 {
			err = oerr.Errorf("cluster.span", oerr.Kind(res.Code-1), "%s", res.Detail)
		}
		if !oerr.Is(err, oerr.Busy) || ctx.Err() != nil {
			return err
		}
		cmd.RequestID = ident.New() // the first id is answered Busy for ever
	}
	return err
}

// exec proposes a group-0 command under a fresh request id and turns a refusal into an error.
func exec(ctx context.Context, src Source, cmd *Command) (CommandResult, error) {
	if cmd.RequestID.IsZero() {
		cmd.RequestID = ident.New()
	}
	res, err := src.Exec(ctx, cmd)
	if err != nil {
		return CommandResult{}, err
	}
	return res, res.Err()
}
