package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"objstore/internal/ident"
	"objstore/metadata"
	"objstore/object"
	"objstore/s3/auth"
)

// Limits of the edge. Sizes in bytes.
const (
	MaxPutSize     = 5 << 30 // one PUT, one part, one copy: S3's limit
	MinPartSize    = 5 << 20 // every part but the last: S3's limit
	MaxHeaderBytes = 32 << 10
	MaxDeleteKeys  = 1000
	MaxDeleteXML   = 2 << 20
	MaxCompleteXML = 4 << 20 // 10,000 parts with SHA-256 checksums and white space
	MaxConfigXML   = 64 << 10
	MaxEmptyBody   = 64 << 10 // what a request that needs no body may send; it is read, verified and dropped

	DefaultMaxRequests = 1024
	DefaultIdleTimeout = 60 * time.Second
	DefaultRegion      = "us-east-1"

	deleteWorkers = 16      // keys of one DeleteObjects in flight
	writePiece    = 1 << 20 // a body is written in pieces of this size, each under its own deadline
	minRate       = 4 << 10 // bytes per second that a request's body has to arrive at on average, after the idle time
)

// Config is what an operator may set.
type Config struct {
	Region      string        // "" is us-east-1
	Domain      string        // with it, HOST = bucket.Domain is virtual-host style; "" is path style only
	OwnerID     string        // canonical user id shown as the owner of everything; "" has a fixed one
	HostID      string        // shown as x-amz-id-2: which node answered
	MaxRequests int           // concurrent requests; more are answered 503 SlowDown at once. 0 is DefaultMaxRequests
	IdleTimeout time.Duration // a client that moves no byte for this long is dropped. 0 is DefaultIdleTimeout
}

// Validate names every problem at once.
func (c *Config) Validate() error {
	var errs []error
	if c.MaxRequests < 0 {
		errs = append(errs, fmt.Errorf("s3: MaxRequests is %d, expected 0 or more", c.MaxRequests))
	}
	if c.IdleTimeout < 0 {
		errs = append(errs, fmt.Errorf("s3: IdleTimeout is %v, expected 0 or more", c.IdleTimeout))
	}
	return errors.Join(errs...)
}

func (c *Config) fill() {
	if c.Region == "" {
		c.Region = DefaultRegion
	}
	if c.OwnerID == "" {
		c.OwnerID = "02d6176db174dc93cb1b899f7c6078f08654445fe8cf1b6ce98d8855f66bdbf4"
	}
	if c.HostID == "" {
		c.HostID = "objstore"
	}
	if c.MaxRequests == 0 {
		c.MaxRequests = DefaultMaxRequests
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
}

// Buckets is the part of the engine that knows buckets.
type Buckets interface {
	CreateBucket(ctx context.Context, name, owner string) error
	HeadBucket(ctx context.Context, name string) (object.BucketInfo, error)
	DeleteBucket(ctx context.Context, name string) error
	ListBuckets(ctx context.Context) ([]object.BucketInfo, error)
}

// Objects is the part of the engine that knows objects.
type Objects interface {
	Put(ctx context.Context, req *object.PutRequest) (object.PutResult, error)
	Open(ctx context.Context, bucket, key string, withBody bool) (*object.Object, error)
	Delete(ctx context.Context, bucket, key string, pre metadata.Precondition) error
	Copy(ctx context.Context, req *object.CopyRequest) (object.CopyResult, error)
	List(ctx context.Context, req *object.ListRequest) (object.ListResult, error)
}

// Uploads is the part of the engine that knows multipart uploads.
type Uploads interface {
	CreateUpload(ctx context.Context, req *object.CreateUploadRequest) (ident.ID, error)
	Complete(ctx context.Context, req *object.CompleteRequest) (metadata.Version, error)
	AbortUpload(ctx context.Context, bucket, key string, id ident.ID) error
	ListParts(ctx context.Context, bucket, key string, id ident.ID, after, max int) (object.ListPartsResult, error)
	ListUploads(ctx context.Context, req *object.ListUploadsRequest) (object.ListUploadsResult, error)
}

// Parts is the part of the engine that stores parts.
type Parts interface {
	PutPart(ctx context.Context, req *object.PutPartRequest) (metadata.Part, error)
	CopyPart(ctx context.Context, req *object.CopyRequest) (object.CopyResult, error)
}

// Health answers /-/live, /-/ready and /-/cluster: nil is 200, an error is 503. What the error says goes to the log,
// not to the asker, who is not authenticated.
type Health interface {
	Live(ctx context.Context) error
	Ready(ctx context.Context) error
	Cluster(ctx context.Context) error
}

// Metrics hears of each request once, after its last byte. It must not block.
type Metrics interface {
	ObserveRequest(op string, status int, code string, in, out int64, d time.Duration)
}

// Deps is what a Handler works with. Metrics, Logger and Now may be nil.
type Deps struct {
	Buckets     Buckets
	Objects     Objects
	Uploads     Uploads
	Parts       Parts
	Credentials auth.Lookup
	Health      Health
	Logger      *slog.Logger // the access log: one line for each request
	Metrics     Metrics
	Now         func() time.Time
}

func (d *Deps) validate() error {
	var errs []error
	for _, dep := range []struct {
		name string
		set  bool
	}{
		{"Buckets", d.Buckets != nil}, {"Objects", d.Objects != nil}, {"Uploads", d.Uploads != nil},
		{"Parts", d.Parts != nil}, {"Credentials", d.Credentials != nil}, {"Health", d.Health != nil},
	} {
		if !dep.set {
			errs = append(errs, fmt.Errorf("s3: Deps.%s is nil", dep.name))
		}
	}
	return errors.Join(errs...)
}
