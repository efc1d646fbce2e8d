// Package s3 is the HTTP edge: it speaks the S3 protocol on the client port and calls the object engine through the
// small interfaces of config.go. It owns the S3 vocabulary; nothing below it knows HTTP, XML or S3's error codes.
//
// It must not import shard/rdma, a transport or a drive. A Handler is safe for concurrent use; a request value belongs
// to the goroutine that serves it.
//
// Every operation is a row of one table (table.go): routing, metric labels, IAM actions and docs/s3-matrix.md come
// from it, and what is not built answers 501 with its name. A request passes, in this order: limit of concurrent
// requests, path and query, operation, signature (s3/auth), names, parameters, headers, handler.
//
//	config.go handler.go server.go   what a Handler needs; the way of a request; settings for http.Server
//	table.go match.go admit.go       operations; choosing one; refusing parameters and headers nobody enforces
//	path.go                          bucket and key: the one parser for paths and copy sources
//	body.go checksum.go crc.go       bodies: modes, digests, verdicts; x-amz-checksum-*; combining CRCs
//	meta.go condition.go httprange.go  stored headers; If-*; Range and partNumber
//	response.go fail.go              writing with deadlines; errors as XML
//	xmlout.go xmlin.go               XML written by hand; XML bodies read
//	bucket.go list.go get.go put.go delete.go copy.go upload.go uploads.go courtesy.go   the operations
//	health.go                        /-/live, /-/ready, /-/cluster
package s3
