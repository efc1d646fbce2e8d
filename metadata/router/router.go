// Package router takes commands and queries to the leader of the group that owns a key: it finds the span in the
// node's view of group 0, the leader by hint, calls it (in process when it is this node), refreshes and retries across
// elections within the caller's deadline, and never proposes a command twice under different request ids.
package router

import (
	"context"

	"objstore/internal/ident"
	"objstore/metadata"
)

// API is what object and repair use; *Router implements it.
type API interface {
	// Command proposes cmd in the span that owns (bucket, cmd.Key). It fills RequestID, Bucket, Generation and
	// FirstIndex. A refusal by apply comes back as an error of that oerr.Kind. OutcomeUnknown: it may have happened.
	Command(ctx context.Context, bucket string, cmd *metadata.Command) (metadata.Result, error)
	// Query asks the span that owns (bucket, q.Key or q.Prefix/After), linearizably.
	Query(ctx context.Context, bucket string, q *metadata.Query) (*metadata.Answer, error)
	// CommandByID and QueryByID are the same for a caller that has the bucket's id (repair, admin).
	CommandByID(ctx context.Context, bucket ident.ID, cmd *metadata.Command) (metadata.Result, error)
	QueryByID(ctx context.Context, bucket ident.ID, q *metadata.Query) (*metadata.Answer, error)
	// GroupQuery asks a group itself (repair rows, garbage rows, blobs), linearizably.
	GroupQuery(ctx context.Context, g ident.Group, q *metadata.Query) (*metadata.Answer, error)
	// GroupCommand proposes commands that name blobs, not keys (OpRepairDone, OpGarbageDone), in a group.
	GroupCommand(ctx context.Context, g ident.Group, cmd *metadata.Command) (metadata.Result, error)
}
