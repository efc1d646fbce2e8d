package s3

import (
	"crypto/md5"
	"encoding/hex"
	"hash"
	"net/http"
	"strings"

	"objstore/metadata"
	"objstore/object"
	"objstore/s3/apierr"
	"objstore/s3/auth"
)

// copySource reads x-amz-copy-source: [/]bucket/key[?versionId=…], escaped. It goes through the parser of paths.
func (q *request) copySource() (target, error) {
	v := q.r.Header.Get("X-Amz-Copy-Source")
	if strings.HasPrefix(v, "arn:") {
		return target{}, apierr.Errorf(apierr.NotImplemented, "An ARN in x-amz-copy-source is not implemented.")
	}
	if name, version, ok := strings.Cut(v, "?versionId="); ok {
		id, ok := auth.Unescape(version, false)
		if !ok {
			return target{}, apierr.New(apierr.InvalidURI)
		}
		if err := checkVersionID(id); err != nil {
			return target{}, err
		}
		v = name
	}
	// The slash between bucket and key may be escaped too, when a client escapes the whole value.
	if !strings.Contains(strings.TrimPrefix(v, "/"), "/") {
		v = strings.Replace(strings.Replace(v, "%2f", "/", 2), "%2F", "/", 2)
	}
	t, err := splitName(strings.TrimPrefix(v, "/"))
	if err != nil {
		return target{}, err
	}
	if t.level() != onObject {
		return target{}, apierr.Errorf(apierr.InvalidArgument, "Copy Source must mention the source bucket and key: sourcebucket/sourcekey").With("ArgumentName", "x-amz-copy-source")
	}
	return t, t.checkNames()
}

// copyRequest reads what CopyObject and UploadPartCopy share.
func (q *request) copyRequest() (*object.CopyRequest, error) {
	src, err := q.copySource()
	if err != nil {
		return nil, err
	}
	cond := copyConditions(q.r.Header)
	return &object.CopyRequest{SrcBucket: src.bucket, SrcKey: src.key, DstBucket: q.bucket, DstKey: q.key,
		SrcCondition: func(v *metadata.Version) error { return cond.check(v, true) }}, nil
}

func sourceTooLarge() error {
	return apierr.Errorf(apierr.InvalidRequest, "The specified copy source is larger than the maximum allowable size for a copy source: %d", int64(MaxPutSize))
}

func copyObject(q *request) error {
	req, err := q.copyRequest()
	if err != nil {
		return err
	}
	if req.Precondition, err = precondition(q.r.Header); err != nil {
		return err
	}
	replace := false
	switch d := q.r.Header.Get("X-Amz-Metadata-Directive"); d {
	case "", "COPY":
	case "REPLACE":
		replace = true
	default:
		return apierr.Errorf(apierr.InvalidArgument, "Unknown metadata directive.").With("ArgumentName", "x-amz-metadata-directive")
	}
	if q.r.Header["X-Amz-Copy-Source-Range"] != nil {
		return notImplemented("X-Amz-Copy-Source-Range")
	}
	if replace {
		if req.Headers, err = storedHeaders(q.r.Header); err != nil {
			return err
		}
	} else if req.SrcBucket == q.bucket && req.SrcKey == q.key {
		return apierr.Errorf(apierr.InvalidRequest, "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.")
	}
	var alg *algorithm
	if v := q.r.Header.Get("X-Amz-Checksum-Algorithm"); v != "" {
		if alg = algorithmByName(v); alg == nil {
			return unknownAlgorithm()
		}
	}
	cond := req.SrcCondition
	req.SrcCondition = func(v *metadata.Version) error {
		if v.Size > MaxPutSize {
			return sourceTooLarge()
		}
		return cond(v)
	}
	req.Digests = func(src *metadata.Version) ([]hash.Hash, func() (object.Sealed, error)) {
		if a := alg; a == nil && len(src.Checksums) > 0 {
			return copyDigests(algorithmByID(src.Checksums[0].Algorithm))
		}
		return copyDigests(alg)
	}
	res, err := q.h.deps.Objects.Copy(q.ctx(), req)
	if err != nil {
		return err
	}
	x := newXML()
	x.raw("<CopyObjectResult" + xmlNS + ">")
	lastModified(x, res.Version.ModTime)
	x.etag(res.Version.ETag)
	checksumXML(x, res.Version.Checksums, 0)
	x.raw("</CopyObjectResult>")
	return q.sendXML(http.StatusOK, x)
}

func unknownAlgorithm() error {
	return apierr.Errorf(apierr.InvalidRequest, "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]")
}

// copyDigests makes the digests of a copied body: the ETag's MD5 and, if there is an algorithm, its checksum.
func copyDigests(a *algorithm) ([]hash.Hash, func() (object.Sealed, error)) {
	sum := md5.New()
	digests := []hash.Hash{sum}
	var check hash.Hash
	if a != nil {
		check = a.create()
		digests = append(digests, check)
	}
	return digests, func() (object.Sealed, error) {
		s := object.Sealed{ETag: hex.EncodeToString(sum.Sum(nil))}
		if check != nil {
			s.Checksums = []metadata.Checksum{{Algorithm: a.id, Value: check.Sum(nil)}}
		}
		return s, nil
	}
}

func uploadPartCopy(q *request) error {
	number, err := q.partNumber()
	if err != nil {
		return err
	}
	id, err := q.uploadID()
	if err != nil {
		return err
	}
	req, err := q.copyRequest()
	if err != nil {
		return err
	}
	if q.r.Header["X-Amz-Metadata-Directive"] != nil {
		return notImplemented("X-Amz-Metadata-Directive")
	}
	if req.Range, err = copyRange(q.r.Header.Get("X-Amz-Copy-Source-Range")); err != nil {
		return err
	}
	// The part gets the checksum that the upload was opened for.
	up, err := q.h.deps.Uploads.ListParts(q.ctx(), q.bucket, q.key, id, 0, 1)
	if err != nil {
		return err
	}
	alg := algorithmByID(up.Upload.Algorithm)
	req.UploadID, req.PartNumber = id, number
	req.Digests = func(*metadata.Version) ([]hash.Hash, func() (object.Sealed, error)) { return copyDigests(alg) }
	res, err := q.h.deps.Parts.CopyPart(q.ctx(), req)
	if err != nil {
		return err
	}
	x := newXML()
	x.raw("<CopyPartResult" + xmlNS + ">")
	lastModified(x, res.Part.ModTime)
	x.etag(res.Part.ETag)
	if c := res.Part.Checksum; c != nil {
		if a := algorithmByID(c.Algorithm); a != nil {
			x.elem(a.xmlName(), checksumText(c, 0))
		}
	}
	x.raw("</CopyPartResult>")
	return q.sendXML(http.StatusOK, x)
}

// copyRange reads x-amz-copy-source-range, which must be bytes=first-last and within the source.
func copyRange(h string) (func(size int64) (off, n int64, err error), error) {
	if h == "" {
		return func(size int64) (int64, int64, error) {
			if size > MaxPutSize {
				return 0, 0, sourceTooLarge()
			}
			return 0, size, nil
		}, nil
	}
	spec, ok := strings.CutPrefix(h, "bytes=")
	first, last, dash := strings.Cut(spec, "-")
	from, ok1 := parseOffset(first)
	to, ok2 := parseOffset(last)
	if !ok || !dash || !ok1 || !ok2 || to < from {
		return nil, apierr.Errorf(apierr.InvalidArgument, "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy").
			With("ArgumentName", "x-amz-copy-source-range").With("ArgumentValue", printable(h))
	}
	return func(size int64) (int64, int64, error) {
		switch {
		case to >= size:
			return 0, 0, apierr.Errorf(apierr.InvalidArgument, "Range specified is not valid for source object of size: %d", size).
				With("ArgumentName", "x-amz-copy-source-range").With("ArgumentValue", printable(h))
		case to-from+1 > MaxPutSize:
			return 0, 0, sourceTooLarge()
		}
		return from, to - from + 1, nil
	}, nil
}
