// Package shard is the vocabulary of shards and the interfaces through which they are stored and fetched: on this
// node's drives (shard/store), over TCP (shard/tcp) or over RDMA (shard/rdma). shard/shardtest holds the one
// conformance and fault suite that each of them passes.
//
// A blob is the erasure-coded body of one object or part. It has k data and m parity shards of equal length; shard i
// lives on the i-th drive of the blob's placement group. A shard is a run of cells, one for each stripe; every 64 KiB
// of it (a block; the last may be shorter) carries a CRC32C seeded with the blob's identity and the block's position,
// computed once by the gateway that encoded it and checked by whoever stores it and by whoever uses it.
package shard

import (
	"context"

	"objstore/internal/ident"
)

// BlockSize is the unit of checksums, in bytes. Block b of a shard is bytes [b*BlockSize, min((b+1)*BlockSize, Length)).
const BlockSize = 64 << 10

// Align is the unit of drive I/O, in bytes: cells, and so shard lengths, are multiples of it.
const Align = 4 << 10

// SegmentLimit is the shard length, in bytes, below which a shard is a record in a segment; others are files.
const SegmentLimit = 1 << 20

// Ref names one shard on one drive as the caller's map has it.
type Ref struct {
	Drive       ident.Drive
	Incarnation ident.Incarnation
	Epoch       uint64 // map epoch the caller used; a store that knows a newer one for this drive says StaleEpoch
	Blob        ident.ID
	Index       uint8 // 0..k-1 data, k..n-1 parity
}

// Spec is everything a shard's header records. It is complete before the first byte is sent.
type Spec struct {
	Ref
	K, M     uint8
	CellSize uint32 // bytes; cells of full stripes
	Length   uint64 // bytes of cells in this shard: a multiple of Align, > 0
	BodyLen  uint64 // bytes of the blob's body

	Bucket  ident.ID
	Key     string // the object's key, for recovery from drives alone; never part of a path
	Version ident.ID
	Part    uint16 // multipart part number, 0 for a single-part object

	Writer  WriterID // who is writing, for Abandon
	Attempt uint32   // 1 for the first try; attempt n+1 is opened only after n ended
	Repair  bool     // a rebuild: replaces a torn or corrupt shard of the same (blob, index)
}

// WriterID identifies the gateway process that puts a blob, for orphan collection (PROTOCOLS D).
type WriterID struct {
	Node    ident.Node
	StartID ident.ID // random for each process start
	Put     uint64   // counts the puts of that process
}

// Ack is a durable acknowledgement: the shard is on stable storage, with its directory entry.
type Ack struct {
	Drive       ident.Drive
	Incarnation ident.Incarnation
	Digest      uint64 // Digest of the shard's CRC table, computed by the store from what it wrote
}

// State of a shard as its drive sees it.
type State uint8

const (
	StateUnknown State = iota // could not be found out
	StateOK                   // sealed; with Verify also: every block and both ends read and right
	StateMissing              // authoritatively absent from this incarnation
	StateCorrupt              // sealed, but read and wrong; or torn
	StateWriting              // a writer is active
)

var stateNames = [...]string{"unknown", "ok", "missing", "corrupt", "writing"}

func (s State) String() string { return stateNames[s] }

// Info describes one shard on its drive.
type Info struct {
	Spec
	State  State
	Digest uint64 // when sealed
	Path   string // absolute file path on its node
	Offset uint64 // bytes from the start of Path to the shard's header
	Size   uint64 // bytes from the header to the end of the shard, header and footer included
	Detail string // for StateCorrupt: what was read and what was expected
}

// ReadRequest asks for bytes [Offset, Offset+Length) of a shard's cells. Offset is a multiple of BlockSize; Length is
// a multiple of BlockSize or ends at the shard's end.
type ReadRequest struct {
	Ref
	Offset uint64
	Length uint64
	// Digest is what the commit says of the whole shard; a shard that has another one is Corrupt, however well its
	// blocks agree with its own checksums. 0 is not checked.
	Digest uint64
}

// Endpoint is the drives of one node, local or remote. All methods are safe for concurrent use and end by ctx's
// deadline at the latest; nothing waits on a stuck drive without one. Errors carry an oerr.Kind: ShardMissing (the drive
// answered: absent), Corrupt, StaleEpoch, WrongIncarnation, DriveFenced, DriveFull, Busy, Exists, InProgress,
// InvalidArgument, Unavailable (node or drive not reachable: state unknown), DeadlineExceeded.
type Endpoint interface {
	// Create begins a shard. Transports may delay the first network traffic to the first Append or Commit, and report
	// Create's error there. The writer dies with ctx.
	Create(ctx context.Context, spec Spec) (Writer, error)
	// Read fills dst (len(dst) == req.Length) and returns the CRCs of the blocks read, as stored. It does NOT check
	// them: the reader of the object does (CheckBlocks), after the transfer, before use. dst stays the caller's; it
	// may have been written to when an error returns, and is not touched after return.
	Read(ctx context.Context, req ReadRequest, dst []byte) (crcs []uint32, err error)
	// Stat says what the drive has. verify reads and checks every block, header and footer, from the drive, not from
	// the page cache where that is possible.
	Stat(ctx context.Context, ref Ref, verify bool) (Info, error)
	// Delete removes a shard, durably, and cancels an open writer of it. Deleting what is not there succeeds.
	Delete(ctx context.Context, refs []Ref) []error
	// List returns up to max shards of a drive in (blob, index) order, starting after (after, afterIndex); headers are
	// not read, so only Ref, State, Length and Digest are set. It is a drive's inventory.
	List(ctx context.Context, drive ident.Drive, after ident.ID, afterIndex uint8, max int) ([]Info, error)
}

// Writer writes one shard from one goroutine. Exactly one of Commit and Abort ends it; Abort after either is a no-op.
type Writer interface {
	// Append adds data, which lies inside buf, and its block CRCs (one for each BlockSize, the last block may be
	// short only at the shard's end). The total appended must be Spec.Length at Commit. A writer that needs data
	// after returning retains buf and releases it when done; data must not change until then.
	Append(ctx context.Context, buf *Buf, data []byte, crcs []uint32) error
	// Commit returns after the shard, its end mark and its directory entry are on stable storage.
	Commit(ctx context.Context) (Ack, error)
	// Abort drops the shard. It does not wait for the drive.
	Abort(cause error)
}

// Dialer finds the endpoint for a node, local, TCP or RDMA; the selection rule lives in its implementation.
type Dialer interface {
	// Endpoint returns the endpoint to use for one shard of this length on this node, and the transport's name for
	// the byte counters: "local", "tcp" or "rdma". It does not block; an unreachable node shows in the calls.
	Endpoint(node ident.Node, length uint64) (ep Endpoint, transport string)
}
