package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/metadata/host"
)

// ReplicaChanger changes the membership of a group at its leader, wherever that is. All calls end by ctx's deadline and
// may be repeated.
type ReplicaChanger interface {
	// Status returns the group's status at its leader, with Progress.
	Status(ctx context.Context, g ident.Group) (host.GroupStatus, error)
	// AddLearner makes an empty replica on its node and adds it to the group.
	AddLearner(ctx context.Context, g ident.Group, m host.Member) error
	// Promote makes a learner that has caught up a voter.
	Promote(ctx context.Context, g ident.Group, replica uint64) error
	// Remove takes a replica out of the group; if it leads, leadership moves away first.
	Remove(ctx context.Context, g ident.Group, replica uint64) error
}

// SpanLister reads, linearizably, which spans a metadata group has (metadata.QuerySpans).
type SpanLister interface {
	Spans(ctx context.Context, g ident.Group) ([]metadata.Span, error)
}

// Limits of one pass of the controller, and its pace (start).
const (
	controllerInterval = time.Second
	controllerStep     = 5 * time.Second  // for each call that leaves the process
	halfDoneGrace      = 10 * time.Second // longer than a gateway's own calls take: it may still be at it
	spanCheckInterval  = time.Minute      // one group at a time
	maxBucketsPass     = 16
	maxGroupsPass      = 8
	maxDroppedSpans    = 4096 // remembered, so that each is dropped once for each leadership
)

// ControllerConfig says what the controller works with.
type ControllerConfig struct {
	BucketDeps
	Replicas ReplicaChanger
	Lister   SpanLister // nil: spans that no bucket has are not looked for
	// Leading reports whether this node leads group 0. It does not block.
	Leading func() bool
	// Now is a monotonic clock; nil is time.Now.
	Now func() time.Time
	// Interval between passes; 0 is one second.
	Interval time.Duration
	// OnEvent hears of everything the controller did or failed to do. It must not block. Optional.
	OnEvent func(Event)
	// PGCount and GroupCount for formation; 0 is the default.
	PGCount, GroupCount int
}

// Validate returns every problem at once.
func (c ControllerConfig) Validate() error {
	var errs []error
	if c.Source == nil {
		errs = append(errs, errors.New("no source"))
	}
	if c.Spans == nil {
		errs = append(errs, errors.New("no span commander"))
	}
	if c.Replicas == nil {
		errs = append(errs, errors.New("no replica changer"))
	}
	if c.Leading == nil {
		errs = append(errs, errors.New("no Leading"))
	}
	if c.Interval < 0 || c.PGCount < 0 || c.GroupCount < 0 {
		errs = append(errs, fmt.Errorf("interval %s, %d placement groups and %d groups: none may be negative", c.Interval, c.PGCount, c.GroupCount))
	}
	if len(errs) > 0 {
		return oerr.E("cluster.controller", oerr.InvalidArgument, errors.Join(errs...))
	}
	return nil
}

// Event is one duty done (Err nil) or failed; a failed one is tried again at a later pass.
type Event struct {
	Duty   string // "form", "bucket", "replica", "span"
	Detail string
	Err    error
}

// Controller does the duties of the group-0 leader: it forms the cluster, finishes half-done buckets and replaces
// replicas, one step for a group at a time. Every node runs one; it works only while its node leads group 0. All that
// it decides on is read anew after leadership changed, and all that it does may be done twice, so two that believe to
// lead do no harm.
type Controller struct {
	cfg      ControllerConfig
	halfDone map[ident.ID]sighting
	dropped  map[ident.ID]bool
	next     ident.Group // where the next pass goes on over the groups
	nextSpan ident.Group
	spanAt   time.Time
}

// sighting is a bucket seen half-done, and since when.
type sighting struct {
	state   BucketState
	attempt uint64
	since   time.Time
}

// NewController returns a controller; Run starts it.
func NewController(cfg ControllerConfig) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Interval == 0 {
		cfg.Interval = controllerInterval
	}
	if cfg.OnEvent == nil {
		cfg.OnEvent = func(Event) {}
	}
	c := &Controller{cfg: cfg}
	c.forget()
	return c, nil
}

func (c *Controller) forget() {
	c.halfDone, c.dropped = map[ident.ID]sighting{}, map[ident.ID]bool{}
	c.next, c.nextSpan, c.spanAt = 0, 0, time.Time{}
}

// Run makes a pass every Interval until ctx ends. It is called once.
func (c *Controller) Run(ctx context.Context) error {
	t := time.NewTicker(c.cfg.Interval)
	defer t.Stop()
	for {
		c.Pass(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// Pass does a bounded amount of what is to be done now. It is called from one goroutine.
func (c *Controller) Pass(ctx context.Context) {
	if !c.cfg.Leading() {
		c.forget()
		return
	}
	sctx, cancel := context.WithTimeout(ctx, controllerStep)
	v, err := c.cfg.Source.Sync(sctx)
	cancel()
	if err != nil || v.ClusterID.IsZero() {
		return // no quorum: whoever asks learns it there
	}
	c.replicas(ctx, v)
	c.form(ctx, v)
	c.buckets(ctx, v)
	c.spans(ctx)
}

func (c *Controller) report(duty string, err error, format string, args ...any) {
	c.cfg.OnEvent(Event{Duty: duty, Detail: fmt.Sprintf(format, args...), Err: err})
}

// form fixes the layout once the expected nodes have joined and follow group 0.
func (c *Controller) form(ctx context.Context, v *View) {
	if v.Formed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, controllerStep)
	defer cancel()
	st, err := c.cfg.Replicas.Status(ctx, 0)
	if err != nil || !readyToForm(v, st) {
		return
	}
	_, err = exec(ctx, c.cfg.Source, &Command{Op: OpForm, PGCount: c.cfg.PGCount, GroupCount: c.cfg.GroupCount})
	c.report("form", err, "%d nodes", v.Expect)
}

// buckets finishes what has been half-done, unchanged, for the grace.
func (c *Controller) buckets(ctx context.Context, v *View) {
	now := c.cfg.Now()
	seen := map[ident.ID]bool{}
	done := 0
	for _, name := range sortedKeys(v.Buckets) {
		b := v.Buckets[name]
		if b.State == BucketActive {
			continue
		}
		seen[b.ID] = true
		s, ok := c.halfDone[b.ID]
		if !ok || s.state != b.State || s.attempt != b.Attempt {
			c.halfDone[b.ID] = sighting{b.State, b.Attempt, now}
			continue
		}
		if now.Sub(s.since) < halfDoneGrace || done >= maxBucketsPass {
			continue
		}
		done++
		c.finishBucket(ctx, b)
	}
	for id := range c.halfDone {
		if !seen[id] {
			delete(c.halfDone, id)
		}
	}
}

func (c *Controller) finishBucket(ctx context.Context, b *Bucket) {
	ctx, cancel := context.WithTimeout(ctx, controllerStep)
	defer cancel()
	if b.State == BucketCreating {
		_, err := finishCreate(ctx, c.cfg.BucketDeps, b)
		c.report("bucket", err, "create %s", b.Name)
		return
	}
	err := c.delete(ctx, b)
	if oerr.Is(err, oerr.BucketNotEmpty) {
		err = nil // back to active: finished, too
	}
	c.report("bucket", err, "delete %s", b.Name)
}

// delete begins an attempt of its own, so that an older one that is still under way cannot undo it.
func (c *Controller) delete(ctx context.Context, b *Bucket) error {
	res, err := exec(ctx, c.cfg.Source, bucketCommand(OpBucketState, b, BucketDeleting))
	if err != nil {
		return err
	}
	return finishDelete(ctx, c.cfg.BucketDeps, res.Bucket)
}

// replicas takes one step for each of a few groups.
func (c *Controller) replicas(ctx context.Context, v *View) {
	ids := sortedKeys(v.Groups)
	done := 0
	for i := range ids {
		g := v.Groups[ids[(int(c.next)+i)%len(ids)]]
		if g.ID != 0 && !needsStep(v, g) {
			continue
		}
		if done++; done > maxGroupsPass {
			c.next = ident.Group((int(c.next) + i) % len(ids))
			return
		}
		c.stepGroup(ctx, v, g)
	}
	c.next = 0
}

// needsStep reports, from the view alone, whether a metadata group may need a change.
func needsStep(v *View, g *Group) bool {
	if len(g.Replicas) != len(g.Founders) {
		return true
	}
	for _, r := range g.Replicas {
		if r.Learner || !fit(v, r) {
			return true
		}
	}
	return false
}

func (c *Controller) stepGroup(ctx context.Context, v *View, g *Group) {
	ctx, cancel := context.WithTimeout(ctx, controllerStep)
	defer cancel()
	st, err := c.cfg.Replicas.Status(ctx, g.ID)
	if err != nil {
		c.report("replica", err, "status of group %d", g.ID)
		return
	}
	s := planGroup(v, g, st)
	switch s.kind {
	case stepNone:
		return
	case stepRecord:
		_, err = exec(ctx, c.cfg.Source, &Command{Op: OpSetReplicas, Group: g.ID, Replicas: s.members})
	case stepAdd:
		err = c.cfg.Replicas.AddLearner(ctx, g.ID, host.Member{Replica: s.replica.ID, Node: s.replica.Node, Learner: true})
	case stepPromote:
		err = c.cfg.Replicas.Promote(ctx, g.ID, s.replica.ID)
	case stepRemove:
		err = c.cfg.Replicas.Remove(ctx, g.ID, s.replica.ID)
	}
	c.report("replica", err, "group %d: %s %#x", g.ID, s.kind, s.replica.ID)
}

// spans looks at the spans of one group each minute. A sealed span whose bucket is active was sealed by a deletion
// that was thought to have failed: it is finished. A span that no bucket has is dropped. The bucket is looked up
// in a view that is newer than the list: a span is made after its bucket, so what is missing then is gone for ever.
func (c *Controller) spans(ctx context.Context) {
	now := c.cfg.Now()
	if c.cfg.Lister == nil || !c.spanAt.IsZero() && now.Sub(c.spanAt) < spanCheckInterval {
		return
	}
	c.spanAt = now
	ctx, cancel := context.WithTimeout(ctx, 2*controllerStep)
	defer cancel()
	c.nextSpan++
	if c.cfg.Source.View().Groups[c.nextSpan] == nil {
		c.nextSpan = 1
	}
	if c.cfg.Source.View().Groups[c.nextSpan] == nil {
		return // not formed
	}
	spans, err := c.cfg.Lister.Spans(ctx, c.nextSpan)
	if err != nil {
		c.report("span", err, "list of group %d", c.nextSpan)
		return
	}
	v, err := c.cfg.Source.Sync(ctx)
	if err != nil {
		return
	}
	done := 0
	for i := range spans {
		if sp := &spans[i]; !c.dropped[sp.Bucket] && done < maxBucketsPass {
			done += c.checkSpan(ctx, v, c.nextSpan, sp)
		}
	}
}

func (c *Controller) checkSpan(ctx context.Context, v *View, g ident.Group, sp *metadata.Span) (done int) {
	b := v.ByID[sp.Bucket]
	switch {
	case b == nil:
		err := c.dropSpan(ctx, g, sp)
		c.report("span", err, "drop span of removed bucket %s in group %d", sp.Bucket, g)
		return 1
	case b.State == BucketActive && sp.Sealed:
		err := c.delete(ctx, b)
		c.report("span", err, "finish deletion of bucket %s, whose span is sealed", b.Name)
		return 1
	}
	return 0
}

// dropSpan drops a span that no bucket has. It is sealed first: a creation that came late may have made it anew.
func (c *Controller) dropSpan(ctx context.Context, g ident.Group, sp *metadata.Span) error {
	ref := SpanRef{Start: sp.Start, End: sp.End, Generation: sp.Generation, Group: g}
	gone := &Bucket{ID: sp.Bucket}
	if !sp.Sealed {
		if err := span(ctx, c.cfg.BucketDeps, g, spanCommand(c.cfg.BucketDeps, metadata.OpSealSpan, gone, ref)); err != nil {
			return err
		}
	}
	err := span(ctx, c.cfg.BucketDeps, g, spanCommand(c.cfg.BucketDeps, metadata.OpDropSpan, gone, ref))
	if err != nil && !oerr.Is(err, oerr.NoSuchBucket) {
		return err
	}
	if len(c.dropped) >= maxDroppedSpans {
		clear(c.dropped)
	}
	c.dropped[sp.Bucket] = true
	return nil
}
