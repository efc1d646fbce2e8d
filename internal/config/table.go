package config

import (
	"time"
)

// MaxSettings bounds the table. A store with a thousand settings has none that anybody understands.
const MaxSettings = 60

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
	tib = int64(1) << 40
)

// table binds every setting to its field in s. Order is the order in which the settings are shown.
func table(s *Settings) []entry {
	rows := append(edgeTable(s), engineTable(s)...)
	return append(rows, driveTable(s)...)
}

// edgeTable has what concerns clients, logs and memory.
func edgeTable(s *Settings) []entry {
	return []entry{
		levelEntry("OBJ_LOG_LEVEL", &s.LogLevel, "info", "least severe log lines that are written: debug, info, warn or error"),
		choiceEntry("OBJ_LOG_FORMAT", &s.LogFormat, "text", "form of log lines", "text", "json"),
		switchEntry("OBJ_ACCESS_LOG", &s.AccessLog, "off", "one log line for each S3 request"),
		switchEntry("OBJ_METRICS_RUNTIME", &s.MetricsGoCollector, "on", "Go runtime and process metrics beside objstore's own"),
		switchEntry("OBJ_ADMIN_PPROF", &s.AdminPprof, "on", "profiling on the admin port, for the root credential only"),
		textEntry("OBJ_S3_REGION", &s.S3Region, "us-east-1", checkRegion, "region that S3 clients sign for"),
		textEntry("OBJ_S3_DOMAIN", &s.S3Domain, "", checkDomain, "domain for virtual-host style requests (bucket.DOMAIN); empty serves path style only"),
		textEntry("OBJ_ROOT_ACCESS_KEY", &s.RootAccessKey, "", checkAccessKey, "root access key of a cluster that is being made; empty generates one; ignored afterwards"),
		secretEntry("OBJ_ROOT_SECRET_KEY", &s.RootSecretKey, checkSecretKey, "secret of OBJ_ROOT_ACCESS_KEY; both are given or none"),
		intEntry("OBJ_MAX_REQUESTS", &s.MaxRequests, 512, 1, 100_000, "S3 requests served at once; more are answered 503 SlowDown"),
		durationEntry("OBJ_IDLE_TIMEOUT", &s.IdleTimeout, 60*time.Second, time.Second, time.Hour, "how long a request or response body may make no progress"),
		durationEntry("OBJ_SHUTDOWN_TIMEOUT", &s.ShutdownTimeout, 5*time.Second, 0, 10*time.Minute, "how long requests in flight may take to end when the server stops"),

		bytesEntry("OBJ_PUT_BUFFER_BYTES", &s.PutBufferBytes, 192*mib, 16*mib, 64*gib, "stripe buffers of all puts in flight"),
		bytesEntry("OBJ_GET_BUFFER_BYTES", &s.GetBufferBytes, 128*mib, 16*mib, 64*gib, "stripe buffers of all gets in flight"),
		bytesEntry("OBJ_SHARD_BUFFER_BYTES", &s.ShardBufferBytes, 96*mib, 16*mib, 64*gib, "buffers of shards that other nodes write and read here"),
		bytesEntry("OBJ_META_CACHE_BYTES", &s.MetaCacheBytes, 64*mib, 8*mib, 256*gib, "caches of the metadata stores of one node"),
		bytesEntry("OBJ_MEMORY_LIMIT_BYTES", &s.MemoryLimitBytes, 448*mib, 0, 16*tib, "soft limit of Go's memory; 0 leaves it to GOMEMLIMIT"),
		intEntry("OBJ_GC_PERCENT", &s.GCPercent, 200, 10, 10_000, "heap growth in per cent that starts a garbage collection"),
	}
}

// engineTable has what concerns objects, nodes and metadata.
func engineTable(s *Settings) []entry {
	return []entry{
		bytesEntry("OBJ_INLINE_BYTES", &s.InlineBytes, 8*kib, 0, 64*kib, "bodies up to this size live inside their metadata row"),
		durationEntry("OBJ_PUT_GRACE", &s.PutGrace, 20*time.Millisecond, 0, 10*time.Second, "least wait for the last shards of a put before it is acknowledged with k + ⌈m/2⌉ of them"),
		durationEntry("OBJ_HEDGE_AFTER", &s.HedgeAfter, 50*time.Millisecond, time.Millisecond, time.Minute, "a shard read that takes longer is hedged to a parity shard"),

		switchEntry("OBJ_SHARD_TLS", &s.ShardTLS, "on", "TLS for shards between nodes; off sends them in plaintext after an authenticated hand-over"),
		switchEntry("OBJ_RDMA_INTERNODE", &s.RDMAInternode, "off", "shards between nodes over RDMA; this build has no RDMA transport and refuses to start with on"),
		durationEntry("OBJ_DIAL_TIMEOUT", &s.DialTimeout, 3*time.Second, 10*time.Millisecond, time.Minute, "how long a connection to another node may take to open"),
		durationEntry("OBJ_RETRY_DEADLINE", &s.RetryDeadline, 10*time.Second, 100*time.Millisecond, time.Minute, "how long a request rides over an election before it is answered 503"),

		durationEntry("OBJ_META_ELECTION_TIMEOUT", &s.MetaElectionTimeout, 1500*time.Millisecond, 500*time.Millisecond, time.Minute, "silence of a leader after which another replica stands for election"),
		durationEntry("OBJ_META_HASH_INTERVAL", &s.MetaHashInterval, 10*time.Minute, 0, 7*24*time.Hour, "how often the replicas of a group compare the hashes of their rows; 0 never"),
		intEntry("OBJ_META_LOG_ENTRIES", &s.MetaLogEntries, 10_000, 100, 10_000_000, "log entries that each metadata group keeps for lagging replicas"),
		intEntry("OBJ_META_GROUPS", &s.MetaGroups, 16, 1, 256, "metadata groups that formation makes; ignored afterwards"),
		durationEntry("OBJ_TOKEN_TTL", &s.TokenTTL, time.Hour, time.Minute, 7*24*time.Hour, "life of a join token unless it is asked otherwise"),
	}
}

// driveTable has what concerns drives and the work in the background.
func driveTable(s *Settings) []entry {
	return []entry{
		bytesEntry("OBJ_DRIVE_RESERVE_BYTES", &s.DriveReserveBytes, 0, 0, 16*tib, "no shard is written to a drive with less free space; 0 is min(max(5 %, 4 GiB), 10 % of the drive)"),
		bytesEntry("OBJ_DRIVE_BALLAST_BYTES", &s.DriveBallastBytes, 0, 0, tib, "file given up when a drive is full, so that metadata goes on; 0 is min(1 GiB, 2 % of the drive)"),
		bytesEntry("OBJ_DRIVE_SEGMENT_BYTES", &s.DriveSegmentBytes, 0, 0, 4*gib, "size of the segments that small shards share; 0 is min(256 MiB, 1/64 of the drive)"),
		durationEntry("OBJ_DRIVE_STUCK_TIMEOUT", &s.DriveStuckTimeout, 30*time.Second, time.Second, time.Hour, "a drive operation that takes longer counts as stuck"),
		intEntry("OBJ_DRIVE_READ_WORKERS", &s.DriveReadWorkers, 32, 1, 1024, "reads that one drive serves at once"),
		intEntry("OBJ_DRIVE_WRITE_WORKERS", &s.DriveWriteWorkers, 16, 1, 1024, "writes of large shards that one drive serves at once"),
		choiceEntry("OBJ_DRIVE_DIRECT_IO", &s.DirectIO, "auto", "O_DIRECT for shard writes: auto uses it where it works, on refuses a drive where it does not", "auto", "on", "off"),

		durationEntry("OBJ_VERIFY_INTERVAL", &s.VerifyInterval, 24*time.Hour, 0, 365*24*time.Hour, "how often every shard is read and checked in the background; 0 never"),
		bytesEntry("OBJ_VERIFY_RATE_BYTES", &s.VerifyRateBytes, 32*mib, 64*kib, 100*gib, "bytes per second that the background check reads from each drive"),
		intEntry("OBJ_REPAIR_CONCURRENCY", &s.RepairConcurrency, 16, 1, 256, "blobs that one node repairs at once"),
		durationEntry("OBJ_REPAIR_AGE", &s.RepairAge, 30*time.Second, 0, 24*time.Hour, "least age of a repair row that a put left behind before repair touches it"),
		durationEntry("OBJ_GARBAGE_GRACE", &s.GarbageGrace, 15*time.Minute, 0, 7*24*time.Hour, "how long the shards of a deleted object stay for readers that have begun"),
	}
}
