// Package auth verifies AWS Signature Version 4: in the Authorization header, in a presigned query, and in every
// streaming form of a signed body. One gate stands before all handlers: a request that Verify does not grant reaches
// none of them, and what Verify does not know it refuses.
//
// It must not import the engine or the handlers; it knows requests, keys and clocks. A Verifier is safe for concurrent
// use; a Grant and a ChunkReader belong to one request.
//
// Rules: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
//
//	mode.go       the modes of x-amz-content-sha256
//	query.go      the query string, parsed once for the signature and for the handlers
//	credential.go the Authorization header and the presigned parameters
//	canonical.go  the canonical request
//	key.go        derived signing keys and their bounded cache
//	verify.go     the gate
//	chunk.go      aws-chunked bodies
package auth
