package s3

import (
	"net/http"

	"objstore/internal/ident"
	"objstore/metadata"
	"objstore/object"
	"objstore/s3/apierr"
)

func listParts(q *request) error {
	id, err := q.uploadID()
	if err != nil {
		return err
	}
	limit, after := metadata.MaxListKeys, 0
	if q.query.Get("max-parts") != "" {
		if limit, err = q.intParam("max-parts", 0, metadata.MaxListKeys); err != nil {
			return err
		}
	}
	if q.query.Get("part-number-marker") != "" {
		if after, err = q.intParam("part-number-marker", 0, metadata.MaxParts); err != nil {
			return err
		}
	}
	res, err := q.h.deps.Uploads.ListParts(q.ctx(), q.bucket, q.key, id, after, max(limit, 1))
	if err != nil {
		return err
	}
	if limit == 0 {
		res.Parts, res.Truncated = nil, false
	}
	x := newXML()
	x.raw("<ListPartsResult" + xmlNS + ">")
	x.elem("Bucket", q.bucket)
	x.elem("Key", q.key)
	x.elem("UploadId", id.String())
	q.owner(x, "Initiator")
	q.owner(x, "Owner")
	x.raw("<StorageClass>STANDARD</StorageClass>")
	x.int("PartNumberMarker", int64(after))
	if res.Truncated {
		x.int("NextPartNumberMarker", int64(res.Next))
	}
	x.int("MaxParts", int64(limit))
	x.bool("IsTruncated", res.Truncated)
	uploadChecksumXML(x, &res.Upload)
	for i := range res.Parts {
		partXML(x, &res.Parts[i])
	}
	x.raw("</ListPartsResult>")
	return q.sendXML(http.StatusOK, x)
}

func uploadChecksumXML(x *xmlBuf, up *metadata.Upload) {
	if a := algorithmByID(up.Algorithm); a != nil {
		x.elem("ChecksumAlgorithm", a.name)
		x.elem("ChecksumType", typeName(up.Composite))
	}
}

func partXML(x *xmlBuf, p *metadata.Part) {
	x.raw("<Part>")
	x.int("PartNumber", int64(p.Number))
	x.time("LastModified", p.ModTime)
	x.etag(p.ETag)
	x.int("Size", p.Size)
	if p.Checksum != nil {
		if a := algorithmByID(p.Checksum.Algorithm); a != nil {
			x.elem(a.xmlName(), checksumText(p.Checksum, 0))
		}
	}
	x.raw("</Part>")
}

func listMultipartUploads(q *request) error {
	req := &object.ListUploadsRequest{Bucket: q.bucket, Prefix: q.query.Get("prefix"), Delimiter: q.query.Get("delimiter"),
		KeyMarker: q.query.Get("key-marker"), Max: metadata.MaxListKeys}
	limit := req.Max
	var err error
	if q.query.Get("max-uploads") != "" {
		if limit, err = q.intParam("max-uploads", 0, metadata.MaxListKeys); err != nil {
			return err
		}
		req.Max = max(limit, 1)
	}
	url, err := q.encodingType()
	if err != nil {
		return err
	}
	if err := q.checkListNames("prefix", "delimiter", "key-marker"); err != nil {
		return err
	}
	marker := q.query.Get("upload-id-marker")
	if marker != "" && req.KeyMarker != "" { // without a key marker AWS ignores it
		if req.UploadIDMarker, err = ident.Parse(marker); err != nil {
			return apierr.Errorf(apierr.InvalidArgument, "Invalid uploadId marker").With("ArgumentName", "upload-id-marker")
		}
	}
	res, err := q.h.deps.Uploads.ListUploads(q.ctx(), req)
	if err != nil {
		return err
	}
	if limit == 0 {
		res = object.ListUploadsResult{}
	}
	x := newXML()
	x.url = url
	x.raw("<ListMultipartUploadsResult" + xmlNS + ">")
	x.elem("Bucket", q.bucket)
	x.name("KeyMarker", req.KeyMarker)
	x.elem("UploadIdMarker", marker)
	if res.Truncated {
		x.name("NextKeyMarker", res.NextKey)
		if !res.NextID.IsZero() {
			x.elem("NextUploadIdMarker", res.NextID.String())
		}
	}
	x.name("Prefix", req.Prefix)
	if req.Delimiter != "" {
		x.name("Delimiter", req.Delimiter)
	}
	if url {
		x.elem("EncodingType", "url")
	}
	x.int("MaxUploads", int64(limit))
	x.bool("IsTruncated", res.Truncated)
	for i := range res.Uploads {
		up := &res.Uploads[i]
		x.raw("<Upload>")
		x.name("Key", up.Key)
		x.elem("UploadId", up.ID.String())
		q.owner(x, "Initiator")
		q.owner(x, "Owner")
		x.raw("<StorageClass>STANDARD</StorageClass>")
		x.time("Initiated", up.Created)
		uploadChecksumXML(x, up)
		x.raw("</Upload>")
	}
	for _, p := range res.Prefixes {
		x.commonPrefix(p)
	}
	x.raw("</ListMultipartUploadsResult>")
	return q.sendXML(http.StatusOK, x)
}
