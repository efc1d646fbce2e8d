package s3

import (
	"net/http"

	"golang.org/x/sync/errgroup"

	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/s3/apierr"
)

func deleteObject(q *request) error {
	if err := q.checkVersion(); err != nil {
		return err
	}
	pre, err := precondition(q.r.Header)
	if err != nil {
		return err
	}
	if pre.IfNoneMatchAny || pre.IfNoneMatch != nil {
		return notImplemented("If-None-Match")
	}
	if err := q.h.deps.Objects.Delete(q.ctx(), q.bucket, q.key, pre); err != nil {
		return err
	}
	return q.sendEmpty(http.StatusNoContent)
}

// deleteObjects deletes up to 1,000 keys, each on its own: the answer lists what was deleted and what was not.
func deleteObjects(q *request) error {
	var in deleteXML
	present, err := q.readXML(MaxDeleteXML, true, &in)
	if err != nil {
		return err
	}
	if !present || len(in.Objects) == 0 || len(in.Objects) > MaxDeleteKeys {
		return apierr.New(apierr.MalformedXML)
	}
	errs := make([]error, len(in.Objects))
	var g errgroup.Group
	g.SetLimit(deleteWorkers)
	for i := range in.Objects {
		g.Go(func() error {
			errs[i] = q.deleteOne(&in.Objects[i])
			if oerr.Is(errs[i], oerr.NoSuchBucket) {
				return errs[i]
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	x := newXML()
	x.raw("<DeleteResult" + xmlNS + ">")
	for i := range in.Objects {
		o := &in.Objects[i]
		if errs[i] == nil {
			if !in.Quiet {
				x.raw("<Deleted>")
				x.elem("Key", o.Key)
				x.raw("</Deleted>")
			}
			continue
		}
		e := apierr.From(errs[i])
		x.raw("<Error>")
		x.elem("Key", o.Key)
		if o.VersionID != nil {
			x.elem("VersionId", *o.VersionID)
		}
		x.elem("Code", e.Code.String())
		x.elem("Message", e.Text())
		x.raw("</Error>")
	}
	x.raw("</DeleteResult>")
	return q.sendXML(http.StatusOK, x)
}

func (q *request) deleteOne(o *deleteObjectXML) error {
	switch {
	case o.Key == "":
		return apierr.Errorf(apierr.InvalidArgument, "An Object has no Key.")
	case o.LastModified != nil || o.Size != nil:
		return apierr.Errorf(apierr.NotImplemented, "LastModifiedTime and Size in DeleteObjects are not implemented.")
	case o.VersionID != nil:
		if err := checkVersionID(*o.VersionID); err != nil {
			return err
		}
	}
	if err := checkKey(o.Key); err != nil {
		return err
	}
	var pre metadata.Precondition
	if o.ETag != nil {
		anyone, tags, err := parseETags("ETag", []string{*o.ETag})
		if err != nil {
			return err
		}
		if pre.IfMatch = tags; anyone {
			pre.IfMatch = []string{"*"}
		}
	}
	return q.h.deps.Objects.Delete(q.ctx(), q.bucket, o.Key, pre)
}
