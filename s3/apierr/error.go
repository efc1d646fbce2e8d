package apierr

import (
	"errors"
	"fmt"

	"objstore/internal/oerr"
)

// Error is an error as the client will see it.
type Error struct {
	Code   Code
	Detail string  // replaces the code's text; it goes to the client, so it names only what the client sent
	Fields []Field // further elements of the XML
	Err    error   // the cause, for the log; the client never sees it
}

// Field is one further element of an error's XML.
type Field struct{ Name, Value string }

// New makes an error with the code's own text.
func New(code Code) *Error { return &Error{Code: code} }

// Errorf makes an error with its own text.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// With adds an element to the XML.
func (e *Error) With(name, value string) *Error {
	e.Fields = append(e.Fields, Field{name, value})
	return e
}

// Text is what the client reads.
func (e *Error) Text() string {
	if e.Detail != "" {
		return e.Detail
	}
	return e.Code.Message()
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Code.String() + ": " + e.Text() + ": " + e.Err.Error()
	}
	return e.Code.String() + ": " + e.Text()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// As lets oerr.KindOf see a kind in an error that a body reader or a Seal returned through the engine: the request
// was at fault, not the engine.
func (e *Error) As(target any) bool {
	t, ok := target.(**oerr.Error)
	if !ok {
		return false
	}
	*t = oerr.E("s3", e.kind(), errors.New(e.Text()))
	return true
}

func (e *Error) kind() oerr.Kind {
	for kind, code := range kinds {
		if code == e.Code && code != InternalError {
			return oerr.Kind(kind)
		}
	}
	if e.Code.Status() >= 500 {
		return oerr.Internal
	}
	return oerr.InvalidArgument
}

// kinds is the one table from the engine's kinds to S3 codes. A kind beyond its end is an InternalError. What could
// not be found out is 503, never 404 or 403.
var kinds = [...]Code{
	oerr.Internal:           InternalError,
	oerr.Unavailable:        ServiceUnavailable,
	oerr.OutcomeUnknown:     ServiceUnavailable,
	oerr.DeadlineExceeded:   ServiceUnavailable,
	oerr.Canceled:           ClientClosed,
	oerr.InvalidArgument:    InvalidArgument,
	oerr.NoSuchBucket:       NoSuchBucket,
	oerr.NoSuchKey:          NoSuchKey,
	oerr.NoSuchVersion:      NoSuchVersion,
	oerr.NoSuchUpload:       NoSuchUpload,
	oerr.BucketExists:       BucketAlreadyOwnedByYou,
	oerr.BucketNotEmpty:     BucketNotEmpty,
	oerr.PreconditionFailed: PreconditionFailed,
	oerr.NotModified:        NotModified,
	oerr.InvalidPart:        InvalidPart,
	oerr.InvalidPartOrder:   InvalidPartOrder,
	oerr.EntityTooSmall:     EntityTooSmall,
	oerr.InvalidRange:       InvalidRange,
	oerr.BadDigest:          BadDigest,
	oerr.ShardMissing:       InternalError,
	oerr.Corrupt:            InternalError,
	oerr.StaleEpoch:         ServiceUnavailable,
	oerr.WrongIncarnation:   ServiceUnavailable,
	oerr.DriveFenced:        ServiceUnavailable,
	oerr.DriveFull:          StorageFull,
	oerr.Busy:               SlowDown,
	oerr.NotLeader:          ServiceUnavailable,
	oerr.Exists:             InternalError,
	oerr.InProgress:         ServiceUnavailable,
	oerr.Abandoned:          ServiceUnavailable,
	oerr.PermissionDenied:   AccessDenied,
	oerr.NotImplemented:     NotImplemented,
	oerr.Closed:             ServiceUnavailable,
}

// From turns any error into what the client will see: an *Error anywhere in the chain as it is, everything else by
// its kind and with the code's own text, so that nothing internal leaks.
func From(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	code := InternalError
	if k := oerr.KindOf(err); int(k) < len(kinds) {
		code = kinds[k]
	}
	return &Error{Code: code, Err: err}
}
