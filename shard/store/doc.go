// Package store keeps shards on one node's drives: it is shard.Endpoint in process.
//
// A drive folder holds
//
//	shardstore            superblock: whose drive this is and how it was formatted
//	segments/<16 hex>.seg append-only segments; shards below shard.SegmentLimit are records in them
//	shards/<2 hex>/       one file for each larger shard, <blob>.<index>
//	index/                a Pebble: (blob, index) -> where, length, digest, checksums. It can always be rebuilt
//	ballast               room kept for the metadata stores on a drive that is full otherwise
//
// docs/formats/shard.md has the byte tables. The rules behind the code:
//
//   - The segments are the log of which the index is a fold. A record carries its own checksums, a delete is a tombstone
//     record; each batch of index changes carries the log position that it reflects, so what the index lost in a crash is
//     found again by scanning from there. Nothing in the index is synced before an acknowledgement.
//   - One write and one fdatasync acknowledge every record and tombstone that was queued meanwhile (commit.go).
//   - A file is sealed by fdatasync of its data and footer, then fsync of its directory, then its index row. A file
//     without a row is believed after a crash only if every block of it verifies; a row is removed, durably, before its
//     file is unlinked. So a row always tells the truth.
//   - The first failed write or sync fences the drive for good: nothing is retried, reads go on.
//   - A replaced or deleted record's space is punched out only after reads that may still use it have ended (gate.go),
//     and a segment is unlinked only when the index, flushed, no longer needs a byte of it (reclaim.go).
//
// One operation at a time works on a shard: claims.go. Reads are served from the page cache in the caller's goroutine
// (RWF_NOWAIT) and go to a bounded pool of goroutines with a bounce buffer when the device is needed, so a stuck drive
// never holds a caller past its deadline and never writes into a buffer that was given back.
//
// All exported methods of Store are safe for concurrent use. The package logs nothing: it returns errors and calls
// Config.OnFence. It must not import anything above shard.
//
//	config.go  settings, limits        store.go   Open, the Endpoint's entry points    drive.go   one drive's state
//	format.go  making a drive          recover.go scan and reconciliation at open      space.go   reserve and ballast
//	header.go footer.go log.go row.go  encodings  index.go   the Pebble                segment.go segment files
//	commit.go  group commit            record.go  writer of records                    file.go    writer of files
//	filer.go   directory syncs         reclaim.go holes, dead segments, checkpoints    read.go stat.go verify.go list.go
//	fs.go osfs.go the file-system seam iopool.go  bounded I/O                          status.go  status and metrics
package store
