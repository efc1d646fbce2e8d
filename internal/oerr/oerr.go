// Package oerr is objstore's one error type: an operation, a kind that callers branch on and that crosses the wire
// unchanged, and the cause. The S3 edge maps kinds to S3 codes in exactly one table.
//
// Unknown is never absent: when it could not be found out whether a thing exists, the kind is Unavailable, never one
// of the NotFound kinds.
package oerr

import (
	"context"
	"errors"
	"fmt"
)

// Kind says what a caller can do about an error. Values are part of the wire format: append, never reorder.
type Kind uint8

const (
	Internal           Kind = iota // a defect or something nobody classified
	Unavailable                    // too few nodes, no leader, busy: try again later (503)
	OutcomeUnknown                 // a write may or may not have happened, now or later (503)
	DeadlineExceeded               // the operation's deadline passed before it had an outcome
	Canceled                       // the caller went away
	InvalidArgument                // the request is wrong and always will be
	NoSuchBucket                   // authoritatively absent
	NoSuchKey                      // authoritatively absent (or the current version is a delete marker)
	NoSuchVersion                  // authoritatively absent
	NoSuchUpload                   // authoritatively absent, aborted or completed long ago
	BucketExists                   // another bucket has this name
	BucketNotEmpty                 //
	PreconditionFailed             // If-Match, If-None-Match and friends (412)
	NotModified                    // a conditional read (304)
	InvalidPart                    // Complete names a part that is not there or whose ETag differs
	InvalidPartOrder               //
	EntityTooSmall                 // a part other than the last is below the minimum
	InvalidRange                   // not satisfiable (416)
	BadDigest                      // a body does not match the digest that came with it
	ShardMissing                   // the drive answered: it has no such shard
	Corrupt                        // bytes were read and are wrong; repair keys on this, however deep it is wrapped
	StaleEpoch                     // the caller's map or span is older than the callee's: refresh and try again
	WrongIncarnation               // the drive was formatted again since the caller's map
	DriveFenced                    // the drive failed a write or sync and takes no part until scrubbed
	DriveFull                      // below the reserve: reads go on, writes do not (507 / 503)
	Busy                           // a bounded queue is full: rejected at once instead of queued
	NotLeader                      // ask another replica
	Exists                         // the blob is there already, sealed
	InProgress                     // another writer of the same shard is active
	Abandoned                      // the blob was abandoned; its commit is refused for ever
	PermissionDenied               //
	NotImplemented                 // named in the documentation as not built
	Closed                         // the component was closed
)

var kindNames = [...]string{
	"internal", "unavailable", "outcome_unknown", "deadline_exceeded", "canceled", "invalid_argument", "no_such_bucket",
	"no_such_key", "no_such_version", "no_such_upload", "bucket_exists", "bucket_not_empty", "precondition_failed",
	"not_modified", "invalid_part", "invalid_part_order", "entity_too_small", "invalid_range", "bad_digest",
	"shard_missing", "corrupt", "stale_epoch", "wrong_incarnation", "drive_fenced", "drive_full", "busy", "not_leader",
	"exists", "in_progress", "abandoned", "permission_denied", "not_implemented", "closed",
}

// String returns the kind's name as it stands in metrics labels and logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind_%d", uint8(k))
}

// Error is an operation that failed. Op is "package.operation"; Err may be nil when Kind says it all.
type Error struct {
	Op   string
	Kind Kind
	Err  error
}

// E wraps err once for a layer.
func E(op string, kind Kind, err error) *Error { return &Error{Op: op, Kind: kind, Err: err} }

// Errorf makes an error of this kind with a formatted cause.
func Errorf(op string, kind Kind, format string, args ...any) *Error {
	return &Error{Op: op, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// Wrap adds the operation and keeps the kind of err; nil stays nil.
func Wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Kind: KindOf(err), Err: err}
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Op + ": " + e.Kind.String()
	}
	return e.Op + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the outermost *Error in err's chain; context errors have theirs; anything else is Internal.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Internal
}

// Is reports whether err is of this kind. A nil err is of no kind.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }

// IsCorrupt reports whether any error in the chain is marked Corrupt: bytes were read and are wrong. Repair keys on it.
func IsCorrupt(err error) bool {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return false
		}
		if e.Kind == Corrupt {
			return true
		}
		err = e.Err
	}
	return false
}
