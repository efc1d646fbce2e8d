package object

import (
	"context"
	"hash"
	"io"

	"objstore/internal/ident"
	"objstore/metadata"
)

// BucketInfo is a bucket as ListBuckets shows it.
type BucketInfo struct {
	Name    string
	Created int64 // Unix milliseconds
}

// Body is what a put reads. The engine reads Reader into its stripe buffers and, beside the encode, feeds the bytes in
// order to each of Digests (on a goroutine of its own for large bodies, inline for small ones), so that no digest ever
// stalls the encode. When the body has ended, Length bytes long, and all digests have caught up, Seal is called once,
// before the commit; an error from it abandons the put and is returned as it is.
type Body struct {
	Reader  io.Reader // must yield exactly Length bytes, then io.EOF; any other error abandons the put and is returned
	Length  int64     // bytes
	Digests []hash.Hash
	Seal    func() (Sealed, error)
}

// Sealed is what the edge learnt from the body.
type Sealed struct {
	ETag      string // without quotes
	Checksums []metadata.Checksum
}

// PutRequest stores an object.
type PutRequest struct {
	Bucket, Key  string
	Body         Body
	Headers      []metadata.Pair
	Precondition metadata.Precondition
}

// PutResult is the version that was committed.
type PutResult struct {
	Version metadata.Version
}

// Object is an object opened for reading: its metadata, and its body through WriteTo. Close it.
type Object struct {
	metadata.Version
	// WriteRange writes body bytes [off, off+n) to w in order. Every byte was checked before it was written. After an
	// error nothing may be concluded from what w got: the edge must abort the connection.
	WriteRange func(ctx context.Context, w io.Writer, off, n int64) error
	Close      func()
}

// ListRequest asks for one page.
type ListRequest struct {
	Bucket, Prefix, Delimiter string
	After                     string // keys and common prefixes strictly greater than this
	Max                       int    // 0..1000
}

// ListResult is one page; Entries and Prefixes are each in order.
type ListResult struct {
	Entries   []metadata.Entry
	Prefixes  []string
	Truncated bool
	Next      string // last key or common prefix given, when Truncated
}

// CopyRequest copies an object (or a range of it as a part).
type CopyRequest struct {
	SrcBucket, SrcKey string
	SrcCondition      func(*metadata.Version) error // x-amz-copy-source-if-*; nil is none
	DstBucket, DstKey string
	Headers           []metadata.Pair // replacing headers; nil copies the source's
	Precondition      metadata.Precondition
	// Digests makes the digests and Seal for a body of this length: the copy's ETag and checksums.
	Digests func(src *metadata.Version) ([]hash.Hash, func() (Sealed, error))
	// For UploadPartCopy:
	UploadID   ident.ID
	PartNumber int
	Range      func(size int64) (off, n int64, err error) // nil is the whole source
}

// CopyResult is the new version or part.
type CopyResult struct {
	Source  metadata.Version
	Version metadata.Version // CopyObject
	Part    metadata.Part    // UploadPartCopy
}

// CreateUploadRequest opens a multipart upload.
type CreateUploadRequest struct {
	Bucket, Key string
	Headers     []metadata.Pair
	Algorithm   uint8
	Composite   bool
}

// PutPartRequest stores one part.
type PutPartRequest struct {
	Bucket, Key string
	UploadID    ident.ID
	Number      int
	Body        Body
}

// CompleteRequest stitches parts together.
type CompleteRequest struct {
	Bucket, Key  string
	UploadID     ident.ID
	Parts        []metadata.CompletePart
	MinPartSize  int64
	Precondition metadata.Precondition
	// Checksum computes the object's checksum and ETag from its parts, as the group has them; it may refuse (BadDigest).
	Seal func(upload *metadata.Upload, parts []metadata.Part) (Sealed, error)
}

// ListUploadsRequest asks for one page of open uploads.
type ListUploadsRequest struct {
	Bucket, Prefix, Delimiter string
	KeyMarker                 string
	UploadIDMarker            ident.ID
	Max                       int
}

// ListUploadsResult is one page.
type ListUploadsResult struct {
	Uploads   []metadata.Upload
	Prefixes  []string
	Truncated bool
	NextKey   string
	NextID    ident.ID
}

// ListPartsResult is one page.
type ListPartsResult struct {
	Upload    metadata.Upload
	Parts     []metadata.Part
	Truncated bool
	Next      int
}

// The engine's methods, in the groups the S3 edge consumes them in (it declares its own interfaces):
//
//	CreateBucket(ctx, name, owner string) error            // BucketExists
//	HeadBucket(ctx, name string) (BucketInfo, error)        // NoSuchBucket
//	DeleteBucket(ctx, name string) error                    // NoSuchBucket, BucketNotEmpty
//	ListBuckets(ctx) ([]BucketInfo, error)
//
//	Put(ctx, *PutRequest) (PutResult, error)
//	Open(ctx, bucket, key string, withBody bool) (*Object, error)  // one metadata read; withBody false for HEAD
//	Delete(ctx, bucket, key string, metadata.Precondition) error    // absent is success
//	Copy(ctx, *CopyRequest) (CopyResult, error)
//	List(ctx, *ListRequest) (ListResult, error)
//
//	CreateUpload(ctx, *CreateUploadRequest) (ident.ID, error)
//	PutPart(ctx, *PutPartRequest) (metadata.Part, error)
//	CopyPart(ctx, *CopyRequest) (CopyResult, error)
//	Complete(ctx, *CompleteRequest) (metadata.Version, error)
//	AbortUpload(ctx, bucket, key string, id ident.ID) error         // NoSuchUpload
//	ListParts(ctx, bucket, key string, id ident.ID, after, max int) (ListPartsResult, error)
//	ListUploads(ctx, *ListUploadsRequest) (ListUploadsResult, error)
