package s3

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/object"
)

// fakeEngine keeps everything in memory and follows the contract of object/api.go.
type fakeEngine struct {
	mu        sync.Mutex
	buckets   map[string]*fakeBucket
	clock     int64
	failRead  func(w io.Writer, body []byte) error // in place of writing the body
	failWith  error                                // every call answers this
	blockOpen chan struct{}                        // Open waits for it
	readAll   bool                                 // Put reads up to io.EOF; otherwise exactly Length bytes
}

type fakeBucket struct {
	created int64
	objects map[string]*fakeObject
	uploads map[ident.ID]*fakeUpload
}

type fakeObject struct {
	v    metadata.Version
	body []byte
}

type fakeUpload struct {
	up    metadata.Upload
	parts map[int]*fakeObject
	part  map[int]metadata.Part
}

func newFake() *fakeEngine {
	return &fakeEngine{buckets: map[string]*fakeBucket{}, clock: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMilli()}
}

// set changes what the engine does, between requests.
func (f *fakeEngine) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeEngine) tick() int64 { f.clock += 1001; return f.clock }

func (f *fakeEngine) bucket(name string) (*fakeBucket, error) {
	if f.failWith != nil {
		return nil, f.failWith
	}
	if b := f.buckets[name]; b != nil {
		return b, nil
	}
	return nil, oerr.E("fake", oerr.NoSuchBucket, nil)
}

func (f *fakeEngine) CreateBucket(_ context.Context, name, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failWith != nil {
		return f.failWith
	}
	if f.buckets[name] != nil {
		return oerr.E("fake", oerr.BucketExists, nil)
	}
	f.buckets[name] = &fakeBucket{created: f.tick(), objects: map[string]*fakeObject{}, uploads: map[ident.ID]*fakeUpload{}}
	return nil
}

func (f *fakeEngine) HeadBucket(_ context.Context, name string) (object.BucketInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(name)
	if err != nil {
		return object.BucketInfo{}, err
	}
	return object.BucketInfo{Name: name, Created: b.created}, nil
}

func (f *fakeEngine) DeleteBucket(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(name)
	if err != nil {
		return err
	}
	if len(b.objects) > 0 {
		return oerr.E("fake", oerr.BucketNotEmpty, nil)
	}
	delete(f.buckets, name)
	return nil
}

func (f *fakeEngine) ListBuckets(context.Context) ([]object.BucketInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []object.BucketInfo
	for name, b := range f.buckets {
		out = append(out, object.BucketInfo{Name: name, Created: b.created})
	}
	return out, f.failWith
}

// readBody does what the engine does with a body.
func (f *fakeEngine) readBody(b *object.Body) ([]byte, object.Sealed, error) {
	body := make([]byte, b.Length)
	if _, err := io.ReadFull(b.Reader, body); err != nil {
		return nil, object.Sealed{}, err
	}
	if f.readAll {
		if n, err := b.Reader.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			if err == nil || err == io.EOF {
				err = oerr.Errorf("fake", oerr.InvalidArgument, "the body is longer than %d bytes", b.Length)
			}
			return nil, object.Sealed{}, err
		}
	}
	for _, d := range b.Digests {
		d.Write(body)
	}
	s, err := b.Seal()
	return body, s, err
}

func check(p metadata.Precondition, cur *fakeObject) error {
	fail := oerr.E("fake", oerr.PreconditionFailed, nil)
	if cur != nil && (p.IfNoneMatchAny || slices.Contains(p.IfNoneMatch, cur.v.ETag)) {
		return fail
	}
	if len(p.IfMatch) > 0 {
		if cur == nil {
			return oerr.E("fake", oerr.NoSuchKey, nil)
		}
		if !slices.Contains(p.IfMatch, "*") && !slices.Contains(p.IfMatch, cur.v.ETag) {
			return fail
		}
	}
	return nil
}

func (f *fakeEngine) put(bucket, key string, body []byte, s object.Sealed, headers []metadata.Pair, parts []metadata.Part, pre metadata.Precondition) (metadata.Version, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(bucket)
	if err != nil {
		return metadata.Version{}, err
	}
	if err := check(pre, b.objects[key]); err != nil {
		return metadata.Version{}, err
	}
	v := metadata.Version{ID: ident.New(), Key: key, Size: int64(len(body)), ETag: s.ETag, ModTime: f.tick(), Headers: headers, Checksums: s.Checksums, Parts: parts}
	b.objects[key] = &fakeObject{v, body}
	return v, nil
}

func (f *fakeEngine) Put(_ context.Context, r *object.PutRequest) (object.PutResult, error) {
	f.mu.Lock()
	fail := f.failWith
	f.mu.Unlock()
	if fail != nil {
		return object.PutResult{}, fail
	}
	body, s, err := f.readBody(&r.Body)
	if err != nil {
		return object.PutResult{}, oerr.Wrap("object.put", err)
	}
	v, err := f.put(r.Bucket, r.Key, body, s, r.Headers, nil, r.Precondition)
	return object.PutResult{Version: v}, err
}

func (f *fakeEngine) get(bucket, key string) (*fakeObject, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(bucket)
	if err != nil {
		return nil, err
	}
	o := b.objects[key]
	if o == nil {
		return nil, oerr.E("fake", oerr.NoSuchKey, nil)
	}
	return o, nil
}

func (f *fakeEngine) Open(ctx context.Context, bucket, key string, withBody bool) (*object.Object, error) {
	f.mu.Lock()
	block := f.blockOpen
	f.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	o, err := f.get(bucket, key)
	if err != nil {
		return nil, err
	}
	return &object.Object{Version: o.v, Close: func() {}, WriteRange: func(_ context.Context, w io.Writer, off, n int64) error {
		if !withBody {
			panic("the body of a HEAD was read")
		}
		f.mu.Lock()
		fail := f.failRead
		f.mu.Unlock()
		if fail != nil {
			return fail(w, o.body[off:off+n])
		}
		_, err := w.Write(o.body[off : off+n])
		return err
	}}, nil
}

func (f *fakeEngine) Delete(_ context.Context, bucket, key string, pre metadata.Precondition) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(bucket)
	if err != nil {
		return err
	}
	if err := check(pre, b.objects[key]); err != nil {
		return err
	}
	delete(b.objects, key)
	return nil
}

func (f *fakeEngine) copyBody(r *object.CopyRequest) (*fakeObject, []byte, object.Sealed, error) {
	src, err := f.get(r.SrcBucket, r.SrcKey)
	if err != nil {
		return nil, nil, object.Sealed{}, err
	}
	if r.SrcCondition != nil {
		if err := r.SrcCondition(&src.v); err != nil {
			return nil, nil, object.Sealed{}, err
		}
	}
	body := src.body
	if r.Range != nil {
		off, n, err := r.Range(src.v.Size)
		if err != nil {
			return nil, nil, object.Sealed{}, err
		}
		body = body[off : off+n]
	}
	digests, seal := r.Digests(&src.v)
	for _, d := range digests {
		d.Write(body)
	}
	s, err := seal()
	return src, bytes.Clone(body), s, err
}

func (f *fakeEngine) Copy(_ context.Context, r *object.CopyRequest) (object.CopyResult, error) {
	src, body, s, err := f.copyBody(r)
	if err != nil {
		return object.CopyResult{}, err
	}
	headers := r.Headers
	if headers == nil {
		headers = src.v.Headers
	}
	v, err := f.put(r.DstBucket, r.DstKey, body, s, headers, nil, r.Precondition)
	return object.CopyResult{Source: src.v, Version: v}, err
}

func (f *fakeEngine) List(_ context.Context, r *object.ListRequest) (object.ListResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(r.Bucket)
	if err != nil {
		return object.ListResult{}, err
	}
	var keys []string
	for k := range b.objects {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var res object.ListResult
	last := ""
	for _, k := range keys {
		if !strings.HasPrefix(k, r.Prefix) {
			continue
		}
		name, common := k, false
		if r.Delimiter != "" {
			if at := strings.Index(k[len(r.Prefix):], r.Delimiter); at >= 0 {
				name, common = k[:len(r.Prefix)+at+len(r.Delimiter)], true
			}
		}
		if name <= r.After || name == last {
			continue
		}
		if len(res.Entries)+len(res.Prefixes) == r.Max {
			res.Truncated, res.Next = true, last
			break
		}
		last = name
		if common {
			res.Prefixes = append(res.Prefixes, name)
			continue
		}
		v := b.objects[k].v
		e := metadata.Entry{Key: k, Size: v.Size, ETag: v.ETag, ModTime: v.ModTime}
		if len(v.Checksums) > 0 {
			e.Algorithm, e.Composite = v.Checksums[0].Algorithm, v.Checksums[0].Composite
		}
		res.Entries = append(res.Entries, e)
	}
	return res, nil
}

func (f *fakeEngine) CreateUpload(_ context.Context, r *object.CreateUploadRequest) (ident.ID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(r.Bucket)
	if err != nil {
		return ident.ID{}, err
	}
	id := ident.New()
	b.uploads[id] = &fakeUpload{up: metadata.Upload{ID: id, Key: r.Key, Created: f.tick(), Headers: r.Headers, Algorithm: r.Algorithm, Composite: r.Composite},
		parts: map[int]*fakeObject{}, part: map[int]metadata.Part{}}
	return id, nil
}

func (f *fakeEngine) upload(bucket, key string, id ident.ID) (*fakeUpload, error) {
	b, err := f.bucket(bucket)
	if err != nil {
		return nil, err
	}
	u := b.uploads[id]
	if u == nil || u.up.Key != key {
		return nil, oerr.E("fake", oerr.NoSuchUpload, nil)
	}
	return u, nil
}

func (f *fakeEngine) storePart(bucket, key string, id ident.ID, n int, body []byte, s object.Sealed) (metadata.Part, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, err := f.upload(bucket, key, id)
	if err != nil {
		return metadata.Part{}, err
	}
	p := metadata.Part{Number: uint16(n), Size: int64(len(body)), ETag: s.ETag, ModTime: f.tick()}
	if len(s.Checksums) > 0 {
		p.Checksum = &s.Checksums[0]
	}
	u.parts[n], u.part[n] = &fakeObject{body: body}, p
	return p, nil
}

func (f *fakeEngine) PutPart(_ context.Context, r *object.PutPartRequest) (metadata.Part, error) {
	body, s, err := f.readBody(&r.Body)
	if err != nil {
		return metadata.Part{}, err
	}
	return f.storePart(r.Bucket, r.Key, r.UploadID, r.Number, body, s)
}

func (f *fakeEngine) CopyPart(_ context.Context, r *object.CopyRequest) (object.CopyResult, error) {
	src, body, s, err := f.copyBody(r)
	if err != nil {
		return object.CopyResult{}, err
	}
	p, err := f.storePart(r.DstBucket, r.DstKey, r.UploadID, r.PartNumber, body, s)
	return object.CopyResult{Source: src.v, Part: p}, err
}

func (f *fakeEngine) Complete(_ context.Context, r *object.CompleteRequest) (metadata.Version, error) {
	f.mu.Lock()
	u, err := f.upload(r.Bucket, r.Key, r.UploadID)
	f.mu.Unlock()
	if err != nil {
		return metadata.Version{}, err
	}
	var have []metadata.Part
	var body []byte
	for i, p := range r.Parts {
		m, ok := u.part[int(p.Number)]
		if !ok || m.ETag != p.ETag {
			return metadata.Version{}, oerr.E("fake", oerr.InvalidPart, nil)
		}
		if i < len(r.Parts)-1 && m.Size < r.MinPartSize {
			return metadata.Version{}, oerr.E("fake", oerr.EntityTooSmall, nil)
		}
		have = append(have, m)
		body = append(body, u.parts[int(p.Number)].body...)
	}
	s, err := r.Seal(&u.up, have)
	if err != nil {
		return metadata.Version{}, err
	}
	v, err := f.put(r.Bucket, r.Key, body, s, u.up.Headers, have, r.Precondition)
	if err == nil {
		f.mu.Lock()
		delete(f.buckets[r.Bucket].uploads, r.UploadID)
		f.mu.Unlock()
	}
	return v, err
}

func (f *fakeEngine) AbortUpload(_ context.Context, bucket, key string, id ident.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.upload(bucket, key, id); err != nil {
		return err
	}
	delete(f.buckets[bucket].uploads, id)
	return nil
}

func (f *fakeEngine) ListParts(_ context.Context, bucket, key string, id ident.ID, after, limit int) (object.ListPartsResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, err := f.upload(bucket, key, id)
	if err != nil {
		return object.ListPartsResult{}, err
	}
	res := object.ListPartsResult{Upload: u.up}
	for n := after + 1; n <= metadata.MaxParts; n++ {
		if p, ok := u.part[n]; ok {
			if len(res.Parts) == limit {
				res.Truncated, res.Next = true, int(res.Parts[limit-1].Number)
				break
			}
			res.Parts = append(res.Parts, p)
		}
	}
	return res, nil
}

func (f *fakeEngine) ListUploads(_ context.Context, r *object.ListUploadsRequest) (object.ListUploadsResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(r.Bucket)
	if err != nil {
		return object.ListUploadsResult{}, err
	}
	var all []metadata.Upload
	for _, u := range b.uploads {
		if strings.HasPrefix(u.up.Key, r.Prefix) {
			all = append(all, u.up)
		}
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].Key != all[j].Key {
			return all[i].Key < all[j].Key
		}
		return all[i].ID.Compare(all[j].ID) < 0
	})
	var res object.ListUploadsResult
	for _, u := range all {
		if u.Key < r.KeyMarker || u.Key == r.KeyMarker && (r.UploadIDMarker.IsZero() || u.ID.Compare(r.UploadIDMarker) <= 0) {
			continue
		}
		if len(res.Uploads) == r.Max {
			res.Truncated = true
			break
		}
		res.Uploads = append(res.Uploads, u)
		res.NextKey, res.NextID = u.Key, u.ID
	}
	return res, nil
}
