package object

import (
	"context"
	"slices"
	"strings"

	"objstore/cluster"
	"objstore/internal/oerr"
)

// bucket returns an existing bucket. A hit in this node's view is served from it; a miss costs one group-0 ReadIndex
// before it becomes NoSuchBucket (PROTOCOLS B).
func (e *Engine) bucket(ctx context.Context, name string) (*cluster.Bucket, error) {
	if b := e.d.Cluster.View().Buckets[name]; b != nil && b.State != cluster.BucketCreating {
		return b, nil
	}
	v, err := e.sync(ctx)
	if err != nil {
		return nil, err
	}
	if b := v.Buckets[name]; b != nil && b.State != cluster.BucketCreating {
		return b, nil
	}
	return nil, oerr.Errorf("object.bucket", oerr.NoSuchBucket, "no bucket %q", name)
}

func (e *Engine) sync(ctx context.Context) (*cluster.View, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.MetadataTimeout)
	defer cancel()
	v, err := e.d.Cluster.Sync(ctx)
	if err != nil {
		return nil, oerr.Wrap("object.sync", err)
	}
	return v, nil
}

// CreateBucket makes a bucket. BucketExists when there is one of this name.
func (e *Engine) CreateBucket(ctx context.Context, name, owner string) error {
	return oerr.Wrap("object.create_bucket", e.d.Buckets.Create(ctx, name, owner))
}

// DeleteBucket removes an empty bucket.
func (e *Engine) DeleteBucket(ctx context.Context, name string) error {
	return oerr.Wrap("object.delete_bucket", e.d.Buckets.Delete(ctx, name))
}

// HeadBucket says that a bucket exists.
func (e *Engine) HeadBucket(ctx context.Context, name string) (BucketInfo, error) {
	b, err := e.bucket(ctx, name)
	if err != nil {
		return BucketInfo{}, err
	}
	return BucketInfo{Name: b.Name, Created: b.Created}, nil
}

// ListBuckets returns all buckets by name. It costs a group-0 ReadIndex: a bucket that another node just made is in it.
func (e *Engine) ListBuckets(ctx context.Context) ([]BucketInfo, error) {
	v, err := e.sync(ctx)
	if err != nil {
		return nil, err
	}
	infos := make([]BucketInfo, 0, len(v.Buckets))
	for _, b := range v.Buckets {
		if b.State != cluster.BucketCreating {
			infos = append(infos, BucketInfo{Name: b.Name, Created: b.Created})
		}
	}
	slices.SortFunc(infos, func(a, b BucketInfo) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}
