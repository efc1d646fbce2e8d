package metadata

import (
	"strings"
	"testing"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

func TestValidateRefusesWhatBreaksALimit(t *testing.T) {
	long := strings.Repeat("k", MaxKeyLen+1)
	blob := func(change func(*Blob)) *Command {
		x := sampleBlob()
		change(x)
		return &Command{Op: OpPut, Key: "k", Version: &Version{ID: testID('V', 1), Size: x.Size, Parts: []Part{{Size: x.Size, Blob: x}}}}
	}
	put := func(change func(*Command)) *Command {
		c := &Command{Op: OpPut, Key: "k", Body: []byte("abc"), Version: &Version{ID: testID('V', 1), Size: 3}}
		change(c)
		return c
	}
	id := testID('U', 1)
	complete := func(n int, etag string) *Command {
		return &Command{Op: OpCompleteUpload, Key: "k", UploadID: id, Version: &Version{ID: id}, Complete: make([]CompletePart, n), ETag: etag}
	}
	huge := complete(MaxParts, "")
	for i := range huge.Complete {
		huge.Complete[i].ETag = strings.Repeat("e", MaxETag)
	}
	for name, c := range map[string]*Command{
		"no op":               {},
		"op 16":               {Op: OpDeleteVersion, Key: "k"},
		"op 17":               {Op: 17, Key: "k"},
		"no key":              {Op: OpDelete},
		"long key":            {Op: OpDelete, Key: long},
		"long key in a batch": {Op: OpAbandon, Key: long, Blobs: []ident.ID{id}},
		"no version":          {Op: OpPut, Key: "k"},
		"other key":           put(func(c *Command) { c.Version.Key = "j" }),
		"delete marker":       put(func(c *Command) { c.Version.DeleteMarker = true }),
		"size":                put(func(c *Command) { c.Version.Size = 4 }),
		"body":                put(func(c *Command) { c.Body = make([]byte, MaxInline+1); c.Version.Size = MaxInline + 1 }),
		"etag":                put(func(c *Command) { c.Version.ETag = strings.Repeat("e", MaxETag+1) }),
		"no header name":      put(func(c *Command) { c.Version.Headers = []Pair{{"", "x"}} }),
		"headers":             put(func(c *Command) { c.Version.Headers = []Pair{{"x", strings.Repeat("x", MaxHeaders)}} }),
		"user metadata":       put(func(c *Command) { c.Version.Headers = []Pair{{"X-Amz-Meta-a", strings.Repeat("x", MaxUserMeta)}} }),
		"checksum algorithm":  put(func(c *Command) { c.Version.Checksums = []Checksum{{Algorithm: 6}} }),
		"checksum value":      put(func(c *Command) { c.Version.Checksums = []Checksum{{Algorithm: 1, Value: make([]byte, MaxChecksum+1)}} }),
		"checksums":           put(func(c *Command) { c.Version.Checksums = make([]Checksum, MaxChecksums+1) }),
		"two parts":           put(func(c *Command) { c.Version.Parts = make([]Part, 2) }),
		"numbered part":       put(func(c *Command) { c.Version.Parts = []Part{{Number: 1}} }),
		"many etags":          put(func(c *Command) { c.Precondition.IfMatch = make([]string, MaxETags+1) }),
		"long etag":           put(func(c *Command) { c.Precondition.IfNoneMatch = []string{strings.Repeat("e", MaxETag+1)} }),
		"no blob id":          blob(func(x *Blob) { x.ID = ident.ID{} }),
		"no data shard":       blob(func(x *Blob) { x.K, x.M = 0, 3 }),
		"many shards":         blob(func(x *Blob) { x.K, x.M, x.Digests = 32, 1, make([]uint64, 33) }),
		"digests":             blob(func(x *Blob) { x.Digests = x.Digests[:2] }),
		"missing shard 3":     blob(func(x *Blob) { x.Missing = 8 }),
		"too many missing":    blob(func(x *Blob) { x.Missing = 3 }),
		"blob size":           blob(func(x *Blob) { x.Size = 0 }),
		"no upload":           {Op: OpCreateUpload, Key: "k"},
		"upload key":          {Op: OpCreateUpload, Key: "k", Upload: &Upload{ID: id, Key: "j"}},
		"upload done":         {Op: OpCreateUpload, Key: "k", Upload: &Upload{ID: id, Done: &UploadDone{}}},
		"upload algorithm":    {Op: OpCreateUpload, Key: "k", Upload: &Upload{ID: id, Algorithm: 6}},
		"no part":             {Op: OpPutPart, Key: "k", UploadID: id},
		"part 0":              {Op: OpPutPart, Key: "k", UploadID: id, Part: &Part{}},
		"part 10001":          {Op: OpPutPart, Key: "k", UploadID: id, Part: &Part{Number: MaxParts + 1}},
		"part without a blob": {Op: OpPutPart, Key: "k", UploadID: id, Part: &Part{Number: 1, Size: 1}},
		"no parts":            complete(0, ""),
		"many parts":          complete(MaxParts+1, ""),
		"complete etag":       complete(1, strings.Repeat("e", MaxETag+1)),
		"complete size":       huge,
		"no upload id":        {Op: OpAbortUpload, Key: "k"},
		"empty batch":         {Op: OpLanded},
		"long batch":          {Op: OpGarbageDone, Blobs: make([]ident.ID, MaxBatch+1)},
		"repair state":        {Op: OpRepairDone, Repairs: []RepairOutcome{{}}},
		"abandoned blob":      {Op: OpAbandon, Blobs: []ident.ID{id}, Abandoned: make([]Blob, 1)},
		"no span":             {Op: OpCreateSpan},
		"span bucket":         {Op: OpCreateSpan, Span: &Span{Bucket: bucketB}},
		"span bounds":         {Op: OpCreateSpan, Span: &Span{Bucket: bucketA, Start: "b", End: "a"}},
		"sealed span":         {Op: OpCreateSpan, Span: &Span{Bucket: bucketA, Sealed: true}},
		"versioned span":      {Op: OpCreateSpan, Span: &Span{Bucket: bucketA, Versioning: 1}},
	} {
		c.RequestID, c.Bucket = testID('R', 1), bucketA
		if err := c.Validate(); !oerr.Is(err, oerr.InvalidArgument) && !oerr.Is(err, oerr.NotImplemented) {
			t.Errorf("%s: %v, expected a refusal", name, err)
		}
	}
	good := put(func(*Command) {})
	for _, c := range []Command{{Bucket: bucketA}, {RequestID: testID('R', 1)}} {
		good.Bucket, good.RequestID = c.Bucket, c.RequestID
		if err := good.Validate(); !oerr.Is(err, oerr.InvalidArgument) {
			t.Errorf("bucket %s, request %s: %v, expected InvalidArgument", c.Bucket, c.RequestID, err)
		}
	}
	good.Bucket, good.RequestID = bucketA, testID('R', 1)
	if err := good.Validate(); err != nil {
		t.Errorf("a good put: %v", err)
	}
	if err := (&Command{Op: OpGarbageDone, Blobs: []ident.ID{id}}).Validate(); err != nil {
		t.Errorf("a group command without a bucket: %v", err)
	}
}

func TestValidateRefusesBadQueries(t *testing.T) {
	for name, q := range map[string]*Query{
		"op 0":     {},
		"op 12":    {Op: 12},
		"max":      {Op: QueryList, Max: MaxListKeys + 1},
		"negative": {Op: QueryList, Max: -1},
		"no key":   {Op: QueryGet},
		"long key": {Op: QueryGet, Key: strings.Repeat("k", MaxKeyLen+1)},
		"prefix":   {Op: QueryList, Prefix: strings.Repeat("k", MaxQueryText+1)},
		"blobs":    {Op: QueryReferenced, Blobs: make([]ident.ID, MaxBatch+1)},
	} {
		if err := q.Validate(); !oerr.Is(err, oerr.InvalidArgument) {
			t.Errorf("%s: %v, expected InvalidArgument", name, err)
		}
		if _, err := Ask(newMemStore(), q); !oerr.Is(err, oerr.InvalidArgument) {
			t.Errorf("%s: asked: %v, expected InvalidArgument", name, err)
		}
	}
}
