package metadata

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sort"
	"strings"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// model is what a group should be, in Go maps. It shares types with the machine, no code.
type model struct {
	spans map[ident.ID]*modelSpan // by bucket
	dedup map[ident.ID]modelDone
}

type modelDone struct {
	index uint64
	res   Result
}

type modelSpan struct {
	span      Span
	dropped   bool
	objects   map[string]*modelObject
	uploads   map[ident.ID]*modelUpload
	done      map[ident.ID]*Upload
	garbage   map[ident.ID]GarbageRow
	abandoned map[ident.ID]bool
	repairs   map[shardOf]*repairFact
}

type modelObject struct {
	v    Version
	body []byte
}

type modelUpload struct {
	u     Upload
	parts map[uint16]*Part
}

type shardOf struct {
	blob  ident.ID
	index uint8
}

type repairFact struct {
	created       int64
	checked, lost bool
}

// holder is where a blob is referenced.
type holder struct {
	key     string
	version ident.ID
	upload  ident.ID
	part    *Part
}

func newModel() *model {
	return &model{spans: map[ident.ID]*modelSpan{}, dedup: map[ident.ID]modelDone{}}
}

func (s *modelSpan) holders() map[ident.ID]holder {
	out := map[ident.ID]holder{}
	add := func(h holder) {
		if h.part.Blob != nil {
			if _, twice := out[h.part.Blob.ID]; twice {
				panic("model: blob referenced twice")
			}
			out[h.part.Blob.ID] = h
		}
	}
	for key, o := range s.objects {
		for i := range o.v.Parts {
			add(holder{key: key, version: o.v.ID, part: &o.v.Parts[i]})
		}
	}
	for id, u := range s.uploads {
		for _, p := range u.parts {
			add(holder{key: u.u.Key, upload: id, part: p})
		}
	}
	return out
}

// about says whether a command that may name a bucket, or none, is about this one.
func (c *Command) about(b ident.ID) bool { return c.Bucket.IsZero() || c.Bucket == b }

func fail(kind oerr.Kind) Result { return Result{Code: 1 + uint8(kind)} }

func (m *model) apply(c *Command, index uint64) Result {
	epoch := index / dedupEpoch
	grouped := c.Op == OpRepairDone || c.Op == OpGarbageDone
	if !grouped {
		if d, ok := m.dedup[c.RequestID]; ok && d.index/dedupEpoch+1 >= epoch {
			return d.res
		}
		if epoch > 0 && c.FirstIndex != 0 && c.FirstIndex < (epoch-1)*dedupEpoch {
			r := fail(oerr.OutcomeUnknown)
			r.Index = index
			return r
		}
	}
	r := m.do(c)
	r.Index = index
	unknown := m.spans[c.Bucket] == nil && c.Op != OpDropSpan
	if !grouped && !unknown && r.Code != 1+uint8(oerr.StaleEpoch) {
		m.dedup[c.RequestID] = modelDone{index, r}
	}
	return r
}

func (m *model) do(c *Command) Result {
	if c.Op == OpRepairDone || c.Op == OpGarbageDone {
		return m.doGroup(c)
	}
	s := m.spans[c.Bucket]
	if c.Op == OpCreateSpan {
		switch {
		case s == nil:
			m.spans[c.Bucket] = &modelSpan{span: *c.Span, objects: map[string]*modelObject{}, uploads: map[ident.ID]*modelUpload{},
				done: map[ident.ID]*Upload{}, garbage: map[ident.ID]GarbageRow{}, abandoned: map[ident.ID]bool{},
				repairs: map[shardOf]*repairFact{}}
			return Result{}
		case s.span.Generation != c.Span.Generation:
			return fail(oerr.StaleEpoch)
		case s.span.Sealed:
			return fail(oerr.NoSuchBucket)
		}
		return Result{}
	}
	switch {
	case s == nil && c.Op == OpDropSpan:
		return Result{}
	case s == nil:
		return fail(oerr.NoSuchBucket)
	case c.Generation != s.span.Generation:
		return fail(oerr.StaleEpoch)
	}
	switch c.Op {
	case OpSealSpan:
		if !s.span.Sealed && len(s.objects) > 0 {
			return fail(oerr.BucketNotEmpty)
		}
		s.span.Sealed = true
		for id, u := range s.uploads {
			for _, p := range u.parts {
				s.discard(p.Blob, u.u.Key, c.Now)
			}
			delete(s.uploads, id)
		}
		return Result{}
	case OpDropSpan:
		if !s.span.Sealed {
			return fail(oerr.InvalidArgument)
		}
		s.dropped = true
		clear(s.done)
		clear(s.abandoned)
		if len(s.garbage) == 0 {
			delete(m.spans, c.Bucket)
		}
		return Result{}
	case OpSetMinEpoch:
		s.span.MinEpoch = max(s.span.MinEpoch, c.MinEpoch)
		return Result{}
	}
	if s.span.Sealed {
		return fail(oerr.NoSuchBucket)
	}
	switch c.Op {
	case OpPut:
		return s.put(c)
	case OpDelete:
		return s.delete(c)
	case OpCreateUpload:
		if s.uploads[c.Upload.ID] != nil || s.done[c.Upload.ID] != nil {
			return fail(oerr.Exists)
		}
		u := *c.Upload
		u.Key, u.Created = c.Key, c.Now
		s.uploads[u.ID] = &modelUpload{u: u, parts: map[uint16]*Part{}}
		s.trim(c.Now)
		return Result{ModTime: c.Now}
	case OpPutPart:
		return s.putPart(c)
	case OpCompleteUpload:
		return s.complete(c)
	case OpAbortUpload:
		u := s.uploads[c.UploadID]
		if u == nil || u.u.Key != c.Key {
			return fail(oerr.NoSuchUpload)
		}
		for _, p := range u.parts {
			s.discard(p.Blob, c.Key, c.Now)
		}
		delete(s.uploads, c.UploadID)
		return Result{}
	}
	return s.doBatch(c)
}

func (m *model) doGroup(c *Command) Result {
	switch c.Op {
	case OpRepairDone:
		for _, o := range c.Repairs {
			for b, s := range m.spans {
				if f := s.repairs[shardOf{o.Blob, o.Index}]; f != nil && o.State == RepairLost && c.about(b) {
					f.lost = true
				}
			}
		}
		return Result{}
	case OpGarbageDone:
		for _, id := range c.Blobs {
			for b, s := range m.spans {
				if !c.about(b) {
					continue
				}
				delete(s.garbage, id)
				if s.dropped && len(s.garbage) == 0 {
					delete(m.spans, b)
				}
			}
		}
		return Result{}
	}
	return Result{}
}

func (s *modelSpan) doBatch(c *Command) Result {
	switch c.Op {
	case OpLanded:
		for _, l := range c.Landings {
			h, ok := s.holders()[l.Blob]
			if !ok || h.key != l.Key || int(l.Index) >= len(h.part.Blob.Digests) || h.part.Blob.Digests[l.Index] != l.Digest {
				continue
			}
			if h.part.Blob.Missing&(1<<l.Index) == 0 {
				continue
			}
			h.part.Blob.Missing &^= 1 << l.Index
			delete(s.repairs, shardOf{l.Blob, l.Index})
			for k, f := range s.repairs {
				if k.blob == l.Blob {
					f.lost = false
				}
			}
		}
		return Result{}
	case OpReportBad:
		for _, r := range c.Reports {
			h, ok := s.holders()[r.Blob]
			if !ok || h.key != r.Key || int(r.Index) >= len(h.part.Blob.Digests) {
				continue
			}
			h.part.Blob.Missing |= 1 << r.Index
			f := s.repairs[shardOf{r.Blob, r.Index}]
			if f == nil {
				f = &repairFact{created: c.Now}
				s.repairs[shardOf{r.Blob, r.Index}] = f
			}
			f.checked = true
		}
		return Result{}
	case OpAbandon:
		var res Result
		held := s.holders()
		for _, id := range c.Blobs {
			_, live := held[id]
			res.Live = append(res.Live, live)
			if live {
				continue
			}
			s.abandoned[id] = true
			if _, ok := s.garbage[id]; !ok {
				g := GarbageRow{Blob: Blob{ID: id}, Bucket: s.span.Bucket, Key: c.Key, Created: c.Now}
				for _, x := range c.Abandoned {
					if x.ID == id {
						g.Blob = x
					}
				}
				s.garbage[id] = g
			}
		}
		return res
	}
	panic(fmt.Sprintf("model: op %d", c.Op))
}

func (s *modelSpan) discard(x *Blob, key string, now int64) {
	if x == nil {
		return
	}
	s.garbage[x.ID] = GarbageRow{Blob: *x, Bucket: s.span.Bucket, Key: key, Created: now}
	for i := range uint8(MaxShards) {
		delete(s.repairs, shardOf{x.ID, i})
	}
}

func (s *modelSpan) refuses(c *Command, x *Blob) (Result, bool) {
	if x == nil {
		return Result{}, false
	}
	if c.Epoch < s.span.MinEpoch || x.Epoch < s.span.MinEpoch {
		return fail(oerr.StaleEpoch), true
	}
	if _, g := s.garbage[x.ID]; g || s.abandoned[x.ID] {
		return fail(oerr.Abandoned), true
	}
	if _, held := s.holders()[x.ID]; held {
		return fail(oerr.Exists), true
	}
	return Result{}, false
}

func (s *modelSpan) note(x *Blob, now int64) {
	if x == nil {
		return
	}
	for i := range uint8(MaxShards) {
		if x.Missing>>i&1 == 1 {
			s.repairs[shardOf{x.ID, i}] = &repairFact{created: now}
		}
	}
}

func (s *modelSpan) condition(c *Command) (Result, bool) {
	o := s.objects[c.Key]
	p := c.Precondition
	if len(p.IfMatch) > 0 {
		if o == nil {
			return fail(oerr.NoSuchKey), true
		}
		ok := false
		for _, e := range p.IfMatch {
			ok = ok || e == "*" || e == o.v.ETag
		}
		if !ok {
			return fail(oerr.PreconditionFailed), true
		}
	}
	if o != nil && (p.IfNoneMatchAny || slices.Contains(p.IfNoneMatch, o.v.ETag)) {
		return fail(oerr.PreconditionFailed), true
	}
	return Result{}, false
}

// replace settles v and makes it current.
func (s *modelSpan) replace(c *Command, v Version, body []byte) Result {
	v.ModTime = c.Now
	if o := s.objects[c.Key]; o != nil {
		v.ModTime = max(v.ModTime, o.v.ModTime+1)
		for i := range o.v.Parts {
			s.discard(o.v.Parts[i].Blob, c.Key, c.Now)
		}
	}
	s.span.Seq++
	v.Seq, v.Key = s.span.Seq, c.Key
	s.objects[c.Key] = &modelObject{v: v, body: body}
	return Result{Version: v.ID, Seq: v.Seq, ModTime: v.ModTime, ETag: v.ETag}
}

func (s *modelSpan) put(c *Command) Result {
	v := clone(c.Version)
	var x *Blob
	if len(v.Parts) > 0 {
		x = v.Parts[0].Blob
	}
	if r, no := s.refuses(c, x); no {
		return r
	}
	if r, no := s.condition(c); no {
		return r
	}
	v.Inline = len(c.Body) > 0
	r := s.replace(c, v, c.Body)
	s.note(x, c.Now)
	return r
}

func (s *modelSpan) delete(c *Command) Result {
	if r, no := s.condition(c); no {
		return r
	}
	o := s.objects[c.Key]
	if o == nil {
		return Result{}
	}
	for i := range o.v.Parts {
		s.discard(o.v.Parts[i].Blob, c.Key, c.Now)
	}
	delete(s.objects, c.Key)
	return Result{Version: o.v.ID}
}

func (s *modelSpan) putPart(c *Command) Result {
	u := s.uploads[c.UploadID]
	if u == nil || u.u.Key != c.Key {
		return fail(oerr.NoSuchUpload)
	}
	p := clonePart(c.Part)
	if r, no := s.refuses(c, p.Blob); no {
		return r
	}
	p.ModTime = c.Now
	if old := u.parts[p.Number]; old != nil {
		p.ModTime = max(p.ModTime, old.ModTime+1)
		s.discard(old.Blob, c.Key, c.Now)
	}
	u.parts[p.Number] = &p
	s.note(p.Blob, c.Now)
	return Result{ModTime: p.ModTime, ETag: p.ETag}
}

func (s *modelSpan) complete(c *Command) Result {
	u := s.uploads[c.UploadID]
	if u == nil || u.u.Key != c.Key {
		if d := s.done[c.UploadID]; d != nil && d.Key == c.Key {
			return Result{Version: d.Done.Version, ETag: d.Done.ETag, ModTime: d.Done.At}
		}
		return fail(oerr.NoSuchUpload)
	}
	for i := 1; i < len(c.Complete); i++ {
		if c.Complete[i].Number <= c.Complete[i-1].Number {
			return fail(oerr.InvalidPartOrder)
		}
	}
	v := Version{ID: c.Version.ID, ETag: c.ETag, Headers: u.u.Headers, Checksums: c.Checksums}
	listed := map[uint16]bool{}
	for i, want := range c.Complete {
		p := u.parts[want.Number]
		switch {
		case p == nil || p.ETag != want.ETag:
			return fail(oerr.InvalidPart)
		case len(want.Checksum) > 0 && (p.Checksum == nil || string(p.Checksum.Value) != string(want.Checksum)):
			return fail(oerr.InvalidPart)
		case i+1 < len(c.Complete) && p.Size < c.MinPartSize:
			return fail(oerr.EntityTooSmall)
		}
		listed[want.Number] = true
		v.Parts = append(v.Parts, *p)
		v.Size += p.Size
	}
	if r, no := s.condition(c); no {
		return r
	}
	r := s.replace(c, v, nil)
	for n, p := range u.parts {
		if !listed[n] {
			s.discard(p.Blob, c.Key, c.Now)
		}
	}
	delete(s.uploads, c.UploadID)
	d := u.u
	d.Done = &UploadDone{Version: v.ID, ETag: v.ETag, At: c.Now}
	if len(v.Checksums) > 0 {
		d.Done.Checksum = &v.Checksums[0]
	}
	s.done[d.ID] = &d
	s.trim(c.Now)
	return r
}

func (s *modelSpan) trim(now int64) {
	all := slices.Collect(maps.Values(s.done))
	sort.Slice(all, func(i, j int) bool {
		if all[i].Done.At != all[j].Done.At {
			return all[i].Done.At < all[j].Done.At
		}
		return all[i].ID.Compare(all[j].ID) < 0
	})
	for i, d := range all {
		if i < doneTrim && d.Done.At+24*3600*1000 <= now {
			delete(s.done, d.ID)
		}
	}
}

// listing lists the whole span by definition, not by scan: groups first, then cuts.
func (s *modelSpan) listing(q *Query) (a Answer) {
	var names []string
	groups := map[string]bool{}
	for key := range s.objects {
		if !strings.HasPrefix(key, q.Prefix) {
			continue
		}
		name := key
		if q.Delimiter != "" {
			if before, _, found := strings.Cut(key[len(q.Prefix):], q.Delimiter); found {
				name = q.Prefix + before + q.Delimiter
				if groups[name] {
					continue
				}
				groups[name] = true
			}
		}
		if name > q.After && !(groups[name] && strings.HasPrefix(q.After, name)) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	if len(names) > q.Max {
		names = names[:q.Max]
		if a.Truncated = q.Max > 0; a.Truncated {
			a.Next = names[q.Max-1]
		}
	}
	for _, n := range names {
		if groups[n] {
			a.Prefixes = append(a.Prefixes, n)
			continue
		}
		v := &s.objects[n].v
		e := Entry{Key: n, Version: v.ID, Size: v.Size, ETag: v.ETag, ModTime: v.ModTime}
		if len(v.Checksums) > 0 {
			e.Algorithm, e.Composite = v.Checksums[0].Algorithm, v.Checksums[0].Composite
		}
		a.Entries = append(a.Entries, e)
	}
	return a
}

// repairRows returns what QueryRepair should give, in its order.
func (m *model) repairRows() (rows []RepairRow) {
	for _, s := range m.spans {
		held := s.holders()
		for at, f := range s.repairs {
			h := held[at.blob]
			good := len(h.part.Blob.Digests) - bits.OnesCount32(h.part.Blob.Missing)
			rows = append(rows, RepairRow{Blob: *h.part.Blob, Index: at.index, Bucket: s.span.Bucket, Key: h.key, Version: h.version,
				Part: h.part.Number, UploadID: h.upload, Priority: uint8(max(0, good-int(h.part.Blob.K))), Created: f.created,
				Checked: f.checked, Lost: f.lost})
		}
	}
	sort.Slice(rows, func(i, j int) bool {
		a, b := &rows[i], &rows[j]
		switch {
		case a.Lost != b.Lost:
			return b.Lost
		case !a.Lost && a.Priority != b.Priority:
			return a.Priority < b.Priority
		case a.Bucket != b.Bucket:
			return a.Bucket.Compare(b.Bucket) < 0
		case a.Blob.ID != b.Blob.ID:
			return a.Blob.ID.Compare(b.Blob.ID) < 0
		}
		return a.Index < b.Index
	})
	return rows
}

func clone(v *Version) Version {
	out := *v
	out.Parts = slices.Clone(v.Parts)
	for i := range out.Parts {
		out.Parts[i] = clonePart(&v.Parts[i])
	}
	return out
}

func clonePart(p *Part) Part {
	out := *p
	if p.Blob != nil {
		x := *p.Blob
		out.Blob = &x
	}
	return out
}
