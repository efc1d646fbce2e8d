package config

import (
	"log/slog"
	"time"
)

// Settings are the effective values of one process. Sizes are bytes unless the name says otherwise.
type Settings struct {
	// Logging.
	LogLevel  slog.Level
	LogFormat string // "text" or "json"
	AccessLog bool   // one line for each S3 request

	// S3 edge.
	S3Region      string
	S3Domain      string // for virtual-host style requests; "" is path style only
	RootAccessKey string // "" generates one; used only when a cluster is made
	RootSecretKey string
	MaxRequests   int           // S3 requests served at once
	IdleTimeout   time.Duration // how long a body may make no progress

	// Memory.
	PutBufferBytes   int64 // stripe buffers of puts in flight
	GetBufferBytes   int64 // stripe buffers of gets in flight
	ShardBufferBytes int64 // buffers of shards that other nodes write and read here
	MetaCacheBytes   int64 // block cache and memtables of the metadata stores
	MemoryLimitBytes int64 // soft limit of the Go heap; 0 leaves it to GOMEMLIMIT
	GCPercent        int   // heap growth between collections, per cent

	// Objects.
	InlineBytes int64         // bodies up to this live inside their metadata row
	PutGrace    time.Duration // least wait for the last shards before an early acknowledgement
	HedgeAfter  time.Duration // a shard read later than this is hedged to parity

	// Between nodes.
	ShardTLS      bool
	RDMAInternode bool
	DialTimeout   time.Duration
	RetryDeadline time.Duration // how long a request rides over an election before it is answered 503

	// Metadata.
	MetaElectionTimeout time.Duration
	MetaHashInterval    time.Duration // how often replicas compare their hashes; 0 never
	MetaLogEntries      int           // log entries kept for lagging replicas, for each group
	MetaGroups          int           // metadata groups at formation

	// Drives.
	DriveReserveBytes  int64 // no shard is written below this much free space; 0 is min(max(5 %, 4 GiB), 10 % of the drive)
	DriveBallastBytes  int64 // file kept for the metadata store on a full drive; 0 is min(1 GiB, 2 % of the drive)
	DriveSegmentBytes  int64 // 0 is min(256 MiB, 1/64 of the drive)
	DriveStuckTimeout  time.Duration
	DriveReadWorkers   int
	DriveWriteWorkers  int
	DirectIO           string // auto, on, off
	VerifyInterval     time.Duration
	VerifyRateBytes    int64 // bytes per second and drive
	RepairConcurrency  int
	RepairAge          time.Duration // least age of a repair row that came from a commit
	GarbageGrace       time.Duration
	TokenTTL           time.Duration // life of a join token unless asked otherwise
	ShutdownTimeout    time.Duration // how long requests in flight may take to end at a stop
	MetricsGoCollector bool          // Go runtime and process metrics beside objstore's own
	AdminPprof         bool          // profiling on the admin port, for the root credential
}
