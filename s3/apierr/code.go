// Package apierr holds the errors of the S3 edge: every code a client can see with its status and text, and the one
// table that turns the engine's error kinds (internal/oerr) into codes.
//
// It is the leaf of the s3 folder: s3 and s3/auth both import it, it imports internal/oerr only. Everything in it is
// read-only after start and safe for concurrent use.
//
//	code.go   the codes
//	error.go  the error type and the table of kinds
package apierr

import "net/http"

// Code is an S3 error code. The names, statuses and texts are those of
// https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html where AWS has the code.
type Code uint8

// The codes.
const (
	InternalError Code = iota
	AccessDenied
	AuthorizationHeaderMalformed
	AuthorizationQueryParametersError
	BadDigest
	BucketAlreadyOwnedByYou
	BucketNotEmpty
	EntityTooLarge
	EntityTooSmall
	IllegalLocationConstraint
	IncompleteBody
	InvalidAccessKeyID
	InvalidArgument
	InvalidBucketName
	InvalidDigest
	InvalidPart
	InvalidPartNumber
	InvalidPartOrder
	InvalidRange
	InvalidRequest
	InvalidStorageClass
	InvalidToken
	InvalidURI
	KeyTooLong
	MalformedTrailer
	MalformedXML
	MaxMessageLengthExceeded
	MetadataTooLarge
	MethodNotAllowed
	MissingContentLength
	NoSuchBucket
	NoSuchKey
	NoSuchUpload
	NoSuchVersion
	NotImplemented
	NotModified
	PreconditionFailed
	RequestTimeTooSkewed
	RequestTimeout
	ServiceUnavailable
	SignatureDoesNotMatch
	SlowDown
	StorageFull
	ContentSHA256Mismatch
	ClientClosed

	numCodes
)

type info struct {
	name    string
	status  int
	message string
}

// StatusClientClosed is logged when the client went away before it was answered; it is never seen by anyone.
const StatusClientClosed = 499

var table = [numCodes]info{
	InternalError:                     {"InternalError", http.StatusInternalServerError, "We encountered an internal error. Please try again."},
	AccessDenied:                      {"AccessDenied", http.StatusForbidden, "Access Denied"},
	AuthorizationHeaderMalformed:      {"AuthorizationHeaderMalformed", http.StatusBadRequest, "The authorization header is malformed."},
	AuthorizationQueryParametersError: {"AuthorizationQueryParametersError", http.StatusBadRequest, "The authorization query parameters are malformed."},
	BadDigest:                         {"BadDigest", http.StatusBadRequest, "The Content-MD5 or checksum value that you specified did not match what the server received."},
	BucketAlreadyOwnedByYou:           {"BucketAlreadyOwnedByYou", http.StatusConflict, "Your previous request to create the named bucket succeeded and you already own it."},
	BucketNotEmpty:                    {"BucketNotEmpty", http.StatusConflict, "The bucket that you tried to delete is not empty."},
	EntityTooLarge:                    {"EntityTooLarge", http.StatusBadRequest, "Your proposed upload exceeds the maximum allowed object size."},
	EntityTooSmall:                    {"EntityTooSmall", http.StatusBadRequest, "Your proposed upload is smaller than the minimum allowed object size."},
	IllegalLocationConstraint:         {"IllegalLocationConstraintException", http.StatusBadRequest, "The specified location constraint is incompatible with the region this request was sent to."},
	IncompleteBody:                    {"IncompleteBody", http.StatusBadRequest, "You did not provide the number of bytes specified by the Content-Length HTTP header."},
	InvalidAccessKeyID:                {"InvalidAccessKeyId", http.StatusForbidden, "The access key ID that you provided does not exist in our records."},
	InvalidArgument:                   {"InvalidArgument", http.StatusBadRequest, "Invalid argument."},
	InvalidBucketName:                 {"InvalidBucketName", http.StatusBadRequest, "The specified bucket is not valid."},
	InvalidDigest:                     {"InvalidDigest", http.StatusBadRequest, "The Content-MD5 value that you specified is not valid."},
	InvalidPart:                       {"InvalidPart", http.StatusBadRequest, "One or more of the specified parts could not be found. The part might not have been uploaded, or the specified entity tag might not have matched the part's entity tag."},
	InvalidPartNumber:                 {"InvalidPartNumber", http.StatusRequestedRangeNotSatisfiable, "The requested partnumber is not satisfiable."},
	InvalidPartOrder:                  {"InvalidPartOrder", http.StatusBadRequest, "The list of parts was not in ascending order. The parts list must be specified in order by part number."},
	InvalidRange:                      {"InvalidRange", http.StatusRequestedRangeNotSatisfiable, "The requested range is not satisfiable."},
	InvalidRequest:                    {"InvalidRequest", http.StatusBadRequest, "Invalid request."},
	InvalidStorageClass:               {"InvalidStorageClass", http.StatusBadRequest, "The storage class that you specified is not valid."},
	InvalidToken:                      {"InvalidToken", http.StatusBadRequest, "The provided token is malformed or otherwise not valid."},
	InvalidURI:                        {"InvalidURI", http.StatusBadRequest, "The specified URI couldn't be parsed."},
	KeyTooLong:                        {"KeyTooLongError", http.StatusBadRequest, "Your key is too long."},
	MalformedTrailer:                  {"MalformedTrailerError", http.StatusBadRequest, "The request contained trailing data that was not well-formed or did not conform to our published schema."},
	MalformedXML:                      {"MalformedXML", http.StatusBadRequest, "The XML that you provided was not well formed or did not validate against our published schema."},
	MaxMessageLengthExceeded:          {"MaxMessageLengthExceeded", http.StatusBadRequest, "Your request was too large."},
	MetadataTooLarge:                  {"MetadataTooLarge", http.StatusBadRequest, "Your metadata headers exceed the maximum allowed metadata size."},
	MethodNotAllowed:                  {"MethodNotAllowed", http.StatusMethodNotAllowed, "The specified method is not allowed against this resource."},
	MissingContentLength:              {"MissingContentLength", http.StatusLengthRequired, "You must provide the Content-Length HTTP header."},
	NoSuchBucket:                      {"NoSuchBucket", http.StatusNotFound, "The specified bucket does not exist."},
	NoSuchKey:                         {"NoSuchKey", http.StatusNotFound, "The specified key does not exist."},
	NoSuchUpload:                      {"NoSuchUpload", http.StatusNotFound, "The specified multipart upload does not exist. The upload ID might not be valid, or the multipart upload might have been aborted or completed."},
	NoSuchVersion:                     {"NoSuchVersion", http.StatusNotFound, "The version ID specified in the request does not match an existing version."},
	NotImplemented:                    {"NotImplemented", http.StatusNotImplemented, "A header or query you provided implies functionality that is not implemented."},
	NotModified:                       {"NotModified", http.StatusNotModified, "Not Modified"},
	PreconditionFailed:                {"PreconditionFailed", http.StatusPreconditionFailed, "At least one of the preconditions that you specified did not hold."},
	RequestTimeTooSkewed:              {"RequestTimeTooSkewed", http.StatusForbidden, "The difference between the request time and the server's time is too large."},
	RequestTimeout:                    {"RequestTimeout", http.StatusBadRequest, "Your socket connection to the server was not read from or written to within the timeout period."},
	ServiceUnavailable:                {"ServiceUnavailable", http.StatusServiceUnavailable, "The service cannot answer this request now. Please try again."},
	SignatureDoesNotMatch:             {"SignatureDoesNotMatch", http.StatusForbidden, "The request signature that the server calculated does not match the signature that you provided. Check your secret access key and signing method."},
	SlowDown:                          {"SlowDown", http.StatusServiceUnavailable, "Please reduce your request rate."},
	StorageFull:                       {"StorageFull", http.StatusInsufficientStorage, "The storage has reached its reserve; writes are refused until space is freed. Reads go on."},
	ContentSHA256Mismatch:             {"XAmzContentSHA256Mismatch", http.StatusBadRequest, "The provided 'x-amz-content-sha256' header does not match what was computed."},
	ClientClosed:                      {"ClientClosedRequest", StatusClientClosed, "The client closed the connection."},
}

// String is the code as it stands in the XML.
func (c Code) String() string { return table[c].name }

// Status is the HTTP status.
func (c Code) Status() int { return table[c].status }

// Message is the text for an error that brings none of its own.
func (c Code) Message() string { return table[c].message }
