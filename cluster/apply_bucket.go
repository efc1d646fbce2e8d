package cluster

import (
	"objstore/internal/ident"
	"objstore/internal/oerr"
)

const maxOwner = 128 // bytes

// applyCreateBucket makes a bucket in state creating, or finds the one its owner is creating already.
func (s *State) applyCreateBucket(cmd *Command) CommandResult {
	if !s.head.Formed {
		return refuse(oerr.Unavailable, "create bucket %s: the cluster is not formed: %d nodes are expected", quoteShort(cmd.Bucket), s.head.Expect)
	}
	if err := ValidateBucketName(cmd.Bucket); err != nil {
		return refuse(oerr.InvalidArgument, "%v", err)
	}
	if cmd.BucketID.IsZero() || cmd.Owner == "" || len(cmd.Owner) > maxOwner || !printable(cmd.Owner) {
		return refuse(oerr.InvalidArgument, "create bucket %s: need a random id and an owner of 1 to %d printable characters", cmd.Bucket, maxOwner)
	}
	if b := s.view.Buckets[cmd.Bucket]; b != nil {
		if b.State == BucketCreating && b.Owner == cmd.Owner {
			return CommandResult{Bucket: b}
		}
		return refuse(oerr.BucketExists, "create bucket %s: the name is taken", cmd.Bucket)
	}
	if s.view.ByID[cmd.BucketID] != nil || s.retired.has(cmd.BucketID) {
		return refuse(oerr.InvalidArgument, "create bucket %s: the id %s was used before", cmd.Bucket, cmd.BucketID)
	}
	if len(s.view.Buckets) >= MaxBuckets {
		return refuse(oerr.Busy, "create bucket %s: there are %d buckets, no more are allowed", cmd.Bucket, len(s.view.Buckets))
	}
	g, ok := s.leastLoadedGroup()
	if !ok {
		return refuse(oerr.Unavailable, "create bucket %s: there is no metadata group", cmd.Bucket)
	}
	b := &Bucket{
		ID: cmd.BucketID, Name: cmd.Bucket, State: BucketCreating, Created: cmd.Now, Owner: cmd.Owner,
		Spans: []SpanRef{{Generation: 1, Group: g}},
	}
	s.bumpSpanEpoch()
	s.putBucket(b)
	return CommandResult{Bucket: b}
}

// leastLoadedGroup returns the metadata group with the fewest buckets, the lowest number among equals.
func (s *State) leastLoadedGroup() (best ident.Group, ok bool) {
	for _, g := range sortedKeys(s.view.Groups) {
		if g != 0 && (!ok || s.load[g] < s.load[best]) {
			best, ok = g, true
		}
	}
	return best, ok
}

func (s *State) bumpSpanEpoch() {
	h := s.head
	h.SpanEpoch++
	s.setHead(h)
}

// bucketOf finds the bucket that a command names by name and id.
func (s *State) bucketOf(cmd *Command) (*Bucket, CommandResult) {
	b := s.view.Buckets[cmd.Bucket]
	if b == nil || b.ID != cmd.BucketID {
		return nil, refuse(oerr.NoSuchBucket, "%s: there is no bucket %s with id %s", cmd.Op, quoteShort(cmd.Bucket), cmd.BucketID)
	}
	return b, CommandResult{}
}

// applyBucketState moves a bucket along PROTOCOLS B. Every move to deleting begins a new attempt, also from deleting:
// the newest one alone may put the bucket back.
func (s *State) applyBucketState(cmd *Command) CommandResult {
	b, res := s.bucketOf(cmd)
	if b == nil {
		return res
	}
	next := *b
	next.State = BucketState(cmd.State)
	switch {
	case b.State == BucketActive && next.State == BucketActive:
		return CommandResult{Bucket: b}
	case b.State == BucketCreating && next.State == BucketActive:
	case b.State != BucketCreating && next.State == BucketDeleting:
		next.Attempt = s.view.Index
	case b.State == BucketDeleting && next.State == BucketActive:
		if cmd.Attempt != b.Attempt {
			return refuse(oerr.StaleEpoch, "bucket %s: deletion attempt %d was superseded by attempt %d", b.Name, cmd.Attempt, b.Attempt)
		}
	default:
		return refuse(oerr.InvalidArgument, "bucket %s: no way from %s to %s", b.Name, b.State, next.State)
	}
	s.bumpSpanEpoch()
	s.putBucket(&next)
	return CommandResult{Bucket: &next}
}

// applyRemoveBucket forgets a bucket whose span is sealed. Its id is never used again.
func (s *State) applyRemoveBucket(cmd *Command) CommandResult {
	if s.retired.has(cmd.BucketID) {
		return CommandResult{}
	}
	b, res := s.bucketOf(cmd)
	if b == nil {
		return res
	}
	if b.State != BucketDeleting {
		return refuse(oerr.StaleEpoch, "remove bucket %s: it is %s, not deleting", b.Name, b.State)
	}
	s.bumpSpanEpoch()
	s.dropBucket(b)
	s.retire(b.ID)
	return CommandResult{Bucket: b}
}

var bucketStates = [...]string{"creating", "active", "deleting"}

func (s BucketState) String() string {
	if int(s) < len(bucketStates) {
		return bucketStates[s]
	}
	return "unknown"
}
