// Package metadata is the state of metadata groups: which rows there are and how they are encoded (rows.go, keys.go),
// what a log entry does to them (apply.go), and what can be asked of them (query.go). Apply is a pure function of the
// group's state and the entry: no copy of group 0, no clock, no randomness, no map iteration order (PROTOCOLS A).
//
// It knows no Raft (metadata/host drives it), no network (metadata/router finds the leader) and no drives.
package metadata

import (
	"objstore/internal/ident"
)

// Limits, enforced in Validate of each command. All in bytes unless said otherwise.
const (
	MaxKeyLen      = 1024    // S3's limit, UTF-8
	MaxInline      = 8 << 10 // bodies up to this size live in the metadata row
	MaxUserMeta    = 2 << 10 // S3's limit: sum of names and values
	MaxHeaders     = 8 << 10 // all stored headers together
	MaxParts       = 10000
	MaxListKeys    = 1000    // keys in one List answer
	MaxCommandSize = 1 << 20 // one log entry
)

// Pair is a stored header: a system header ("Content-Type") or user metadata ("x-amz-meta-…"), as it is to be returned.
type Pair struct{ Name, Value string }

// Checksum is one x-amz-checksum value.
type Checksum struct {
	Algorithm uint8 // 1 CRC32, 2 CRC32C, 3 CRC64NVME, 4 SHA1, 5 SHA256
	Composite bool  // computed over the parts' checksums; ETag-style "-N" suffix at the edge
	Value     []byte
}

// Blob is where the shards of one body are. Rows store the placement group and the missing shards, never drives.
type Blob struct {
	ID       ident.ID
	PG       ident.PG
	Epoch    uint64 // map epoch of the write
	K, M     uint8
	CellSize uint32
	Size     int64    // body bytes
	Missing  uint32   // bitmap of shard indexes without a durable acknowledgement
	Digests  []uint64 // one for each of the K+M shards (shard.Digest)
	// Who wrote it; also in each shard's header.
	WriterNode  ident.Node
	WriterStart ident.ID
	WriterPut   uint64
}

// Part is one run of body bytes: the whole body of a single-part object (Number 0), or one part of a multipart object.
type Part struct {
	Number   uint16 // 1..10000; 0 for single-part
	Size     int64
	ETag     string // without quotes
	ModTime  int64  // Unix milliseconds
	Checksum *Checksum
	Blob     *Blob // nil when Size is 0 or the body is inline
}

// Version is one object version: all that HEAD needs, and where the body is.
type Version struct {
	ID           ident.ID // chosen by the gateway before the first byte; "null" at the edge in unversioned buckets
	Seq          uint64   // assigned in apply: the span's counter
	Key          string
	DeleteMarker bool
	Size         int64
	ETag         string // without quotes
	ModTime      int64  // Unix milliseconds: max(leader's clock, this key's previous + 1), settled in apply
	Headers      []Pair
	Checksums    []Checksum
	Parts        []Part
	Inline       bool // the body is in the d/ row
}

// Multipart reports whether the object was made by CompleteMultipartUpload.
func (v *Version) Multipart() bool { return len(v.Parts) > 0 && v.Parts[0].Number != 0 }

// Precondition is checked against the key's current version in apply.
type Precondition struct {
	IfNoneMatchAny bool     // "*": fails when a current version exists
	IfNoneMatch    []string // ETags without quotes: fails when the current version has one of them
	IfMatch        []string // ETags; "*" matches any current version; NoSuchKey when there is none
}

// IsZero reports whether there is no condition.
func (p Precondition) IsZero() bool {
	return !p.IfNoneMatchAny && len(p.IfNoneMatch) == 0 && len(p.IfMatch) == 0
}

// Op says which command an entry is. Values are part of the log format: append, never reuse.
type Op uint8

const (
	OpCreateSpan     Op = 1  // Span
	OpSealSpan       Op = 2  // bucket delete: seals if there is no l/ and no v/ row, else BucketNotEmpty; open uploads go to g/
	OpDropSpan       Op = 3  // after group 0 removed the bucket: drops what a sealed span still has, but its g/ rows
	OpSetMinEpoch    Op = 4  // raises the span's minimum map epoch
	OpPut            Op = 5  // Key, Version, Body (inline), Precondition
	OpDelete         Op = 6  // Key, Precondition: unversioned delete of the current version. Absent is success
	OpCreateUpload   Op = 7  // Key, Upload
	OpPutPart        Op = 8  // Key, UploadID, Part: checked against the u/ row; a replaced part goes to g/
	OpCompleteUpload Op = 9  // Key, UploadID, Complete, Precondition, Version.ID
	OpAbortUpload    Op = 10 // Key, UploadID
	OpLanded         Op = 11 // Landings: late or repaired shards; clears Missing bits and r/ rows
	OpReportBad      Op = 12 // Reports: a check found shards missing or corrupt; makes r/ rows where the blob is referenced
	OpRepairDone     Op = 13 // Repairs: terminal states other than repaired: superseded, absent, lost
	OpGarbageDone    Op = 14 // Blobs: all drives have answered; drops their g/ rows
	OpAbandon        Op = 15 // Blobs with Key: live if referenced (Result.Live), else an a/ row; a later commit is refused
	OpDeleteVersion  Op = 16 // reserved for versioned buckets
)

// Command is one log entry of a metadata group. Only the fields that Op names are encoded.
type Command struct {
	Op        Op
	RequestID ident.ID // dedup window: a retry with the same id gets the first result
	// FirstIndex is the group's applied index when the request was first tried; 0 on the first try. A retry older than
	// the dedup window is answered OutcomeUnknown and never applied.
	FirstIndex uint64
	Bucket     ident.ID // names the span together with Key
	Generation uint64   // the span generation the caller's map has
	Epoch      uint64   // the map epoch the caller's placement used
	Now        int64    // Unix milliseconds, stamped by the leader before it proposes; the only time there is in apply

	Key          string
	Version      *Version
	Body         []byte // inline body, ≤ MaxInline
	Precondition Precondition
	UploadID     ident.ID
	Upload       *Upload
	Part         *Part
	Complete     []CompletePart
	MinPartSize  int64 // of all parts but the last (5 MiB at the S3 edge)
	Checksums    []Checksum
	ETag         string // of the completed object, computed by the gateway from the parts it listed
	Span         *Span
	MinEpoch     uint64
	Landings     []Landing
	Reports      []Report
	Repairs      []RepairOutcome
	Blobs        []ident.ID
	// Abandoned may give the placement of some of Blobs (OpAbandon), so that their garbage rows know it.
	Abandoned []Blob
}

// Span is a key range of one bucket, as its group keeps it.
type Span struct {
	Bucket     ident.ID
	Start, End string // [Start, End); End "" is no bound
	Generation uint64
	MinEpoch   uint64
	Seq        uint64 // last sequence number handed out
	Sealed     bool
	Versioning uint8 // 0 never enabled, 1 enabled, 2 suspended; only 0 until versioning exists
}

// Upload is an open multipart upload.
type Upload struct {
	ID        ident.ID
	Key       string
	Created   int64 // Unix milliseconds
	Headers   []Pair
	Algorithm uint8 // checksum algorithm asked for at creation, 0 none
	Composite bool  // checksum type
	Done      *UploadDone
}

// UploadDone is left for 24 h after Complete, so that a repeated Complete gets the first answer.
type UploadDone struct {
	Version  ident.ID
	ETag     string
	At       int64
	Checksum *Checksum
}

// CompletePart is one part as CompleteMultipartUpload lists it.
type CompletePart struct {
	Number   uint16
	ETag     string
	Checksum []byte // when given
}

// Landing says that a shard is now durable on its drive.
type Landing struct {
	Key         string
	Blob        ident.ID
	Index       uint8
	Drive       ident.Drive
	Incarnation ident.Incarnation
	Digest      uint64 // must equal the committed digest
}

// Report says that a check found a shard missing or corrupt.
type Report struct {
	Key     string
	Version ident.ID
	Blob    ident.ID
	Index   uint8
}

// RepairState is how a repair row ends.
type RepairState uint8

const (
	RepairSuperseded RepairState = iota + 1 // the blob is no longer referenced
	RepairAbsent                            // authoritatively absent
	RepairLost                              // fewer than k good shards: kept, reported
)

// RepairOutcome ends one repair row.
type RepairOutcome struct {
	Blob  ident.ID
	Index uint8
	State RepairState
}

// Result is what apply answers. Kind is an oerr.Kind: 0 means success here.
type Result struct {
	Code    uint8 // 0 success, else 1 + oerr.Kind
	Detail  string
	Version ident.ID // of the object put, deleted or completed
	Seq     uint64
	ModTime int64
	ETag    string
	Live    []bool // OpAbandon: for each of Blobs
	Index   uint64 // log index that produced it; set by the host
}

// RepairRow is one shard to rebuild. Rows are made in the batch that makes them necessary.
type RepairRow struct {
	Blob     Blob // as the referencing row has it now
	Index    uint8
	Bucket   ident.ID
	Key      string
	Version  ident.ID
	Part     uint16
	UploadID ident.ID // set while the part belongs to an open upload
	Priority uint8    // remaining redundancy when the row was made: good shards - k
	Created  int64    // Unix milliseconds
	Checked  bool     // from a failed check: repair at once; from a commit: when ≥ 30 s old
	Lost     bool
}

// GarbageRow is a blob whose shards are to be removed from all n drives.
type GarbageRow struct {
	Blob    Blob
	Bucket  ident.ID
	Key     string
	Created int64
}

// Entry is one row of a listing.
type Entry struct {
	Key       string
	Version   ident.ID
	Size      int64
	ETag      string
	ModTime   int64
	Algorithm uint8 // checksum algorithm, 0 none
	Composite bool
}

// QueryOp says which question a Query asks. Values are part of the wire format.
type QueryOp uint8

const (
	QueryGet         QueryOp = 1 // Key: the current version, with its inline body if WithBody
	QueryList        QueryOp = 2 // Prefix, Delimiter, After, Max
	QueryUploads     QueryOp = 3 // Prefix, After (key), AfterUpload, Max
	QueryUpload      QueryOp = 4 // Key, UploadID
	QueryParts       QueryOp = 5 // Key, UploadID, AfterPart, Max
	QueryRepair      QueryOp = 6 // group-wide: After (opaque cursor), Max
	QueryGarbage     QueryOp = 7 // group-wide: After (opaque cursor), Max
	QueryBlobs       QueryOp = 8 // group-wide: all referenced blobs, for the verify pass: After (opaque cursor), Max
	QueryReferenced  QueryOp = 9 // Key, Blobs: which of them are referenced, in open uploads included
	QuerySpans       QueryOp = 10
	QueryRepairCount QueryOp = 11 // group-wide: pending and lost rows
)

// Query is a question to one metadata group.
type Query struct {
	Op          QueryOp
	Bucket      ident.ID
	Generation  uint64
	Key         string
	WithBody    bool
	Prefix      string
	Delimiter   string
	After       string // keys (or common prefixes) strictly after this; for group-wide queries an opaque cursor
	AfterUpload ident.ID
	AfterPart   uint16
	UploadID    ident.ID
	Max         int // ≤ MaxListKeys
	Blobs       []ident.ID
}

// Answer holds what the query asked for; the rest is zero.
type Answer struct {
	Version    *Version
	Body       []byte
	Entries    []Entry
	Prefixes   []string // common prefixes; with Entries in one order by the caller
	Truncated  bool
	Next       string // cursor or last key, when Truncated
	Uploads    []Upload
	Upload     *Upload
	Parts      []Part
	Repairs    []RepairRow
	Garbage    []GarbageRow
	Blobs      []BlobRef
	Referenced []bool
	Spans      []Span
	Pending    int64
	Lost       int64
}

// BlobRef is a blob and the row that references it.
type BlobRef struct {
	Blob     Blob
	Bucket   ident.ID
	Key      string
	Version  ident.ID
	Part     uint16
	UploadID ident.ID
}
