// Package object is the engine a gateway runs: put, get, list, multipart, copy. It knows no HTTP. Bodies are erasure
// coded and streamed with bounded memory; metadata goes through metadata/router, shards through shard.Dialer.
//
// A put chooses a blob id and a placement group, cuts the body into slabs (runs of stripes, contiguous for each shard),
// encodes them, sends each shard on a goroutine of its own, waits by the rule of PROTOCOLS D and commits. A get reads
// the windows it needs from the k data shards, checks every block, and turns to the other shards for what is bad,
// missing or late. Memory is admitted before it is taken (admission.go), so nothing holds buffers while it waits for more.
//
// It must not import net/http, s3 or a transport. All methods of Engine are safe for concurrent use.
//
//	api.go        requests and results
//	engine.go     Config, Deps, New, Close
//	bucket.go     buckets, through the node's view of group 0
//	put.go        Put, Delete, the commit of a blob
//	write.go      placing a blob, the second try of a small one
//	attempt.go    one blob on one placement group; bodies of one slab; the acknowledgement rule
//	stream.go     bodies of several slabs
//	settle.go     after the commit: late shards, abandoned blobs
//	slab.go       slabs and digests
//	get.go        Open, ranges, read-ahead
//	fetch.go      one window of a blob: what is read when
//	rebuild.go    what could not be read, out of what could
//	place.go      placement groups and drives as a view has them
//	drives.go     what was seen of each drive: latency, trouble
//	announce.go   batches of landings and of reports of bad shards
//	multipart.go, copy.go, list.go, registry.go, admission.go, batch.go, event.go
package object
