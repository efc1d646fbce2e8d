package s3

import (
	"net/http"
	"slices"
	"strings"

	"objstore/object"
	"objstore/s3/apierr"
)

// maxBucketsPage bounds max-buckets, as AWS does.
const maxBucketsPage = 10000

// listBuckets answers GET /. Without max-buckets all buckets come in one page.
func listBuckets(q *request) error {
	all, err := q.h.deps.Buckets.ListBuckets(q.ctx())
	if err != nil {
		return err
	}
	page, limit, prefix := all[:0:0], maxBucketsPage, q.query.Get("prefix")
	if q.query.Has("max-buckets") {
		if limit, err = q.intParam("max-buckets", 1, maxBucketsPage); err != nil {
			return err
		}
	}
	after, err := readToken(q.query.Get("continuation-token"))
	if err != nil {
		return err
	}
	region := q.query.Get("bucket-region")
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b object.BucketInfo) int { return strings.Compare(a.Name, b.Name) })
	next := ""
	for _, b := range all {
		if !strings.HasPrefix(b.Name, prefix) || b.Name <= after && after != "" || region != "" && region != q.h.cfg.Region {
			continue
		}
		if len(page) == limit {
			next = makeToken(page[len(page)-1].Name)
			break
		}
		page = append(page, b)
	}
	x := newXML()
	x.raw("<ListAllMyBucketsResult" + xmlNS + ">")
	q.owner(x, "Owner")
	x.raw("<Buckets>")
	for i := range page {
		x.raw("<Bucket>")
		x.elem("Name", page[i].Name)
		x.time("CreationDate", page[i].Created)
		x.elem("BucketRegion", q.h.cfg.Region)
		x.raw("</Bucket>")
	}
	x.raw("</Buckets>")
	x.opt("ContinuationToken", next)
	x.opt("Prefix", prefix)
	x.raw("</ListAllMyBucketsResult>")
	return q.sendXML(http.StatusOK, x)
}

// owner writes who owns everything: there is one account.
func (q *request) owner(x *xmlBuf, element string) {
	x.open(element)
	x.elem("ID", q.h.cfg.OwnerID)
	x.elem("DisplayName", "objstore")
	x.close(element)
}

func createBucket(q *request) error {
	var in createBucketXML
	if _, err := q.readXML(MaxConfigXML, false, &in); err != nil {
		return err
	}
	for _, o := range in.Other {
		return apierr.Errorf(apierr.NotImplemented, "%s in CreateBucketConfiguration is not implemented.", printable(o.XMLName.Local))
	}
	if in.Location != "" && in.Location != q.h.cfg.Region {
		return apierr.Errorf(apierr.IllegalLocationConstraint, "The %s location constraint is incompatible for the region specific endpoint this request was sent to.", printable(in.Location))
	}
	if err := q.h.deps.Buckets.CreateBucket(q.ctx(), q.bucket, q.h.cfg.OwnerID); err != nil {
		return err
	}
	q.w.set("Location", "/"+q.bucket)
	return q.sendEmpty(http.StatusOK)
}

func headBucket(q *request) error {
	if err := q.needBucket(); err != nil {
		return err
	}
	q.w.set("X-Amz-Bucket-Region", q.h.cfg.Region)
	q.w.set("Content-Type", "application/xml")
	q.w.WriteHeader(http.StatusOK)
	return nil
}

// needBucket fails unless the bucket is there.
func (q *request) needBucket() error {
	_, err := q.h.deps.Buckets.HeadBucket(q.ctx(), q.bucket)
	return err
}

func deleteBucket(q *request) error {
	if err := q.h.deps.Buckets.DeleteBucket(q.ctx(), q.bucket); err != nil {
		return err
	}
	return q.sendEmpty(http.StatusNoContent)
}

// getBucketLocation says "" for us-east-1, as S3 always has.
func getBucketLocation(q *request) error {
	if err := q.needBucket(); err != nil {
		return err
	}
	x := newXML()
	x.raw("<LocationConstraint" + xmlNS + ">")
	if q.h.cfg.Region != DefaultRegion {
		x.text(q.h.cfg.Region)
	}
	x.raw("</LocationConstraint>")
	return q.sendXML(http.StatusOK, x)
}
