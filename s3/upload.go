package s3

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"hash"
	"net/http"
	"strconv"
	"strings"

	"objstore/internal/ident"
	"objstore/metadata"
	"objstore/object"
	"objstore/s3/apierr"
)

func createMultipartUpload(q *request) error {
	headers, err := storedHeaders(q.r.Header)
	if err != nil {
		return err
	}
	req := &object.CreateUploadRequest{Bucket: q.bucket, Key: q.key, Headers: headers}
	alg, composite, err := uploadChecksum(q.r.Header)
	if err != nil {
		return err
	}
	if alg != nil {
		req.Algorithm, req.Composite = alg.id, composite
	}
	id, err := q.h.deps.Uploads.CreateUpload(q.ctx(), req)
	if err != nil {
		return err
	}
	if alg != nil {
		q.w.set("X-Amz-Checksum-Algorithm", alg.name)
		q.w.set("X-Amz-Checksum-Type", typeName(composite))
	}
	x := newXML()
	x.raw("<InitiateMultipartUploadResult" + xmlNS + ">")
	x.elem("Bucket", q.bucket)
	x.elem("Key", q.key)
	x.elem("UploadId", id.String())
	x.raw("</InitiateMultipartUploadResult>")
	return q.sendXML(http.StatusOK, x)
}

// uploadChecksum reads which checksum the upload will have
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html).
func uploadChecksum(h http.Header) (*algorithm, bool, error) {
	name, kind := h.Get("X-Amz-Checksum-Algorithm"), h.Get("X-Amz-Checksum-Type")
	if name == "" {
		if kind != "" {
			return nil, false, apierr.Errorf(apierr.InvalidRequest, "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.")
		}
		return nil, false, nil
	}
	a := algorithmByName(name)
	if a == nil {
		return nil, false, unknownAlgorithm()
	}
	composite := a.compositeByDefault()
	switch kind {
	case "":
	case "COMPOSITE":
		composite = true
	case "FULL_OBJECT":
		composite = false
	default:
		return nil, false, apierr.Errorf(apierr.InvalidRequest, "Value for x-amz-checksum-type header is invalid.")
	}
	if composite && a.name == "CRC64NVME" || !composite && a.poly == 0 {
		return nil, false, apierr.Errorf(apierr.InvalidRequest, "The %s checksum type cannot be used with the %s checksum algorithm.", typeName(composite), strings.ToLower(a.name))
	}
	return a, composite, nil
}

// partNumber reads the partNumber parameter.
func (q *request) partNumber() (int, error) {
	n, err := strconv.Atoi(q.query.Get("partNumber"))
	if err != nil || n < 1 || n > metadata.MaxParts {
		return 0, apierr.Errorf(apierr.InvalidArgument, "Part number must be an integer between 1 and %d, inclusive", metadata.MaxParts).
			With("ArgumentName", "partNumber").With("ArgumentValue", printable(q.query.Get("partNumber")))
	}
	return n, nil
}

// uploadID reads the uploadId parameter; what is no id of ours was never given out.
func (q *request) uploadID() (ident.ID, error) {
	s := q.query.Get("uploadId")
	id, err := ident.Parse(s)
	if err != nil || id.IsZero() {
		return ident.ID{}, apierr.New(apierr.NoSuchUpload).With("UploadId", printable(s))
	}
	return id, nil
}

func uploadPart(q *request) error {
	number, err := q.partNumber()
	if err != nil {
		return err
	}
	id, err := q.uploadID()
	if err != nil {
		return err
	}
	p, err := q.openBody(MaxPutSize, apierr.EntityTooLarge, true)
	if err != nil {
		return err
	}
	defer p.close()
	part, err := q.h.deps.Parts.PutPart(q.ctx(), &object.PutPartRequest{Bucket: q.bucket, Key: q.key, UploadID: id, Number: number, Body: p.engineBody()})
	if err != nil {
		return err
	}
	q.w.set("Etag", `"`+part.ETag+`"`)
	if c := part.Checksum; c != nil {
		if a := algorithmByID(c.Algorithm); a != nil {
			q.w.set(a.header, checksumText(c, 0))
		}
	}
	return q.sendEmpty(http.StatusOK)
}

func abortMultipartUpload(q *request) error {
	id, err := q.uploadID()
	if err != nil {
		return err
	}
	if err := q.h.deps.Uploads.AbortUpload(q.ctx(), q.bucket, q.key, id); err != nil {
		return err
	}
	return q.sendEmpty(http.StatusNoContent)
}

func completeMultipartUpload(q *request) error {
	id, err := q.uploadID()
	if err != nil {
		return err
	}
	pre, err := precondition(q.r.Header)
	if err != nil {
		return err
	}
	s := &stitch{}
	if err := s.readHeaders(q.r.Header); err != nil {
		return err
	}
	var in completeXML
	present, err := q.readCompleteXML(&in)
	if err != nil {
		return err
	}
	if !present || len(in.Parts) == 0 || len(in.Parts) > metadata.MaxParts {
		return apierr.New(apierr.MalformedXML)
	}
	if err := s.readParts(in.Parts); err != nil {
		return err
	}
	v, err := q.h.deps.Uploads.Complete(q.ctx(), &object.CompleteRequest{Bucket: q.bucket, Key: q.key, UploadID: id, Parts: s.parts,
		MinPartSize: MinPartSize, Precondition: pre, Seal: s.seal})
	if err != nil {
		return err
	}
	x := newXML()
	x.raw("<CompleteMultipartUploadResult" + xmlNS + ">")
	x.elem("Location", q.location())
	x.elem("Bucket", q.bucket)
	x.elem("Key", q.key)
	x.etag(v.ETag)
	checksumXML(x, v.Checksums, len(s.parts))
	x.raw("</CompleteMultipartUploadResult>")
	return q.sendXML(http.StatusOK, x)
}

// readCompleteXML reads the part list. The x-amz-checksum-* headers of this request describe the object, not the body.
func (q *request) readCompleteXML(in *completeXML) (bool, error) {
	for i := range algorithms {
		if algorithms[i].id != 0 {
			delete(q.r.Header, algorithms[i].header)
		}
	}
	delete(q.r.Header, "X-Amz-Sdk-Checksum-Algorithm")
	return q.readXML(MaxCompleteXML, false, in)
}

// location is the object's URL as this client would write it.
func (q *request) location() string {
	scheme := "http://"
	if q.r.TLS != nil {
		scheme = "https://"
	}
	path, _ := wirePath(q.r)
	return scheme + q.r.Host + path
}

// stitch is a CompleteMultipartUpload being judged.
type stitch struct {
	parts     []metadata.CompletePart
	algs      []*algorithm // of the checksum given for each part, or nil
	algorithm *algorithm   // of the object's checksum, when the request brings one
	value     string       // that checksum
	kind      string       // x-amz-checksum-type
	size      int64        // x-amz-mp-object-size, or -1
}

func (s *stitch) readHeaders(h http.Header) error {
	s.size, s.kind = -1, h.Get("X-Amz-Checksum-Type")
	if s.kind != "" && s.kind != "COMPOSITE" && s.kind != "FULL_OBJECT" {
		return apierr.Errorf(apierr.InvalidRequest, "Value for x-amz-checksum-type header is invalid.")
	}
	if v := h.Get("X-Amz-Mp-Object-Size"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return apierr.Errorf(apierr.InvalidArgument, "x-amz-mp-object-size is not a number.")
		}
		s.size = n
	}
	for i := range algorithms {
		a := &algorithms[i]
		if a.id == 0 || h[a.header] == nil {
			continue
		}
		if s.algorithm != nil {
			return apierr.Errorf(apierr.InvalidRequest, "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
		}
		s.algorithm, s.value = a, h.Get(a.header)
		base, _, _ := strings.Cut(s.value, "-")
		if _, ok := a.parse(base); !ok {
			return apierr.Errorf(apierr.InvalidRequest, "Value for %s header is invalid.", strings.ToLower(a.header))
		}
	}
	return nil
}

func (s *stitch) readParts(in []completePartXML) error {
	s.parts = make([]metadata.CompletePart, len(in))
	s.algs = make([]*algorithm, len(in))
	for i := range in {
		p := &in[i]
		if p.Number < 1 || p.Number > metadata.MaxParts {
			return apierr.Errorf(apierr.InvalidArgument, "PartNumber must be an integer between 1 and %d, inclusive", metadata.MaxParts).With("ArgumentName", "partNumber")
		}
		if i > 0 && p.Number <= in[i-1].Number {
			return apierr.New(apierr.InvalidPartOrder)
		}
		etag := strings.Trim(strings.TrimSpace(p.ETag), `"`)
		if etag == "" {
			return apierr.New(apierr.MalformedXML)
		}
		a, sum, err := p.checksum()
		if err != nil {
			return err
		}
		s.parts[i] = metadata.CompletePart{Number: uint16(p.Number), ETag: etag, Checksum: sum}
		s.algs[i] = a
	}
	return nil
}

// seal computes the object's ETag and checksum from its parts as the group has them.
func (s *stitch) seal(up *metadata.Upload, have []metadata.Part) (object.Sealed, error) {
	listed, err := s.match(have)
	if err != nil {
		return object.Sealed{}, err
	}
	etags := md5.New()
	var size int64
	for i := range listed {
		b, err := hex.DecodeString(listed[i].ETag)
		if err != nil {
			b = []byte(listed[i].ETag)
		}
		etags.Write(b)
		size += listed[i].Size
	}
	if s.size >= 0 && s.size != size {
		return object.Sealed{}, apierr.Errorf(apierr.InvalidRequest, "The provided 'x-amz-mp-object-size' header value does not match what was computed: %d.", size)
	}
	out := object.Sealed{ETag: hex.EncodeToString(etags.Sum(nil)) + "-" + strconv.Itoa(len(listed))}
	sum, err := s.checksum(up, listed)
	if err != nil || sum == nil {
		return out, err
	}
	out.Checksums = []metadata.Checksum{*sum}
	return out, s.compare(sum)
}

// match finds the listed parts among those that are there, by number, and compares ETags and checksums.
func (s *stitch) match(have []metadata.Part) ([]*metadata.Part, error) {
	listed := make([]*metadata.Part, len(s.parts))
	j := 0
	for i := range s.parts {
		want := &s.parts[i]
		for j < len(have) && have[j].Number < want.Number {
			j++
		}
		if j == len(have) || have[j].Number != want.Number || have[j].ETag != want.ETag {
			return nil, apierr.New(apierr.InvalidPart).With("PartNumber", itoa(int64(want.Number)))
		}
		if c := have[j].Checksum; want.Checksum != nil && (c == nil || c.Algorithm != s.algs[i].id || !bytes.Equal(c.Value, want.Checksum)) {
			return nil, apierr.New(apierr.InvalidPart).With("PartNumber", itoa(int64(want.Number)))
		}
		listed[i] = &have[j]
	}
	return listed, nil
}

// checksum makes the object's checksum from those of its parts, without reading a byte again: of a composite one the
// hash over the parts' values, of a full-object one the combination of the parts' CRCs.
func (s *stitch) checksum(up *metadata.Upload, parts []*metadata.Part) (*metadata.Checksum, error) {
	a, composite := algorithmByID(up.Algorithm), up.Composite
	switch {
	case a == nil && s.algorithm == nil:
		return nil, nil
	case a == nil: // opened without one: S3's default is a full-object checksum, which only a CRC can be
		a, composite = s.algorithm, false
		if a.poly == 0 {
			return nil, apierr.Errorf(apierr.InvalidRequest, "The upload was not created for a %s checksum.", strings.ToLower(a.name))
		}
	case s.algorithm != nil && s.algorithm != a:
		return nil, apierr.Errorf(apierr.InvalidRequest, "Checksum Type mismatch occurred, expected checksum Type: %s, actual checksum Type: %s", strings.ToLower(a.name), strings.ToLower(s.algorithm.name))
	}
	if s.kind != "" && s.kind != typeName(composite) {
		return nil, apierr.Errorf(apierr.InvalidRequest, "The upload was created using the %s checksum mode. The complete request must use the same checksum mode.", typeName(composite))
	}
	sum := &metadata.Checksum{Algorithm: a.id, Composite: composite}
	var h hash.Hash
	if composite {
		h = a.create()
	}
	for i, p := range parts {
		if p.Checksum == nil || p.Checksum.Algorithm != a.id {
			return nil, apierr.Errorf(apierr.InvalidRequest, "The upload was created using a %s checksum. The complete request must include the checksum for each part. It was missing for part %d in the request.", strings.ToLower(a.name), p.Number)
		}
		switch {
		case composite:
			h.Write(p.Checksum.Value)
		case i == 0:
			sum.Value = p.Checksum.Value
		default:
			sum.Value = a.combine(sum.Value, p.Checksum.Value, p.Size)
		}
	}
	if composite {
		sum.Value = h.Sum(nil)
	}
	return sum, nil
}

// compare judges the object's checksum that came with the request.
func (s *stitch) compare(sum *metadata.Checksum) error {
	if s.algorithm == nil {
		return nil
	}
	base, count, dashed := strings.Cut(s.value, "-")
	want, _ := s.algorithm.parse(base)
	if !bytes.Equal(want, sum.Value) || dashed && count != strconv.Itoa(len(s.parts)) {
		return apierr.Errorf(apierr.BadDigest, "The %s you specified did not match the calculated checksum.", s.algorithm.name)
	}
	return nil
}
