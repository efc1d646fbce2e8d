package s3

import (
	"net/http"

	"objstore/s3/apierr"
)

// What stock clients ask in passing gets the true answer of a store without the feature.

// getBucketVersioning: versioning was never enabled.
func getBucketVersioning(q *request) error {
	if err := q.needBucket(); err != nil {
		return err
	}
	x := newXML()
	x.raw("<VersioningConfiguration" + xmlNS + "></VersioningConfiguration>")
	return q.sendXML(http.StatusOK, x)
}

// getObjectTagging: no object has tags. awscli asks when it copies in parts.
func getObjectTagging(q *request) error {
	if err := q.needObject(); err != nil {
		return err
	}
	x := newXML()
	x.raw("<Tagging" + xmlNS + "><TagSet></TagSet></Tagging>")
	return q.sendXML(http.StatusOK, x)
}

func getBucketACL(q *request) error {
	if err := q.needBucket(); err != nil {
		return err
	}
	return q.sendACL()
}

func getObjectACL(q *request) error {
	if err := q.needObject(); err != nil {
		return err
	}
	return q.sendACL()
}

// sendACL: the owner may do everything. s3cmd info asks.
func (q *request) sendACL() error {
	x := newXML()
	x.raw("<AccessControlPolicy" + xmlNS + ">")
	q.owner(x, "Owner")
	x.raw(`<AccessControlList><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser">`)
	x.elem("ID", q.h.cfg.OwnerID)
	x.elem("DisplayName", "objstore")
	x.raw("</Grantee><Permission>FULL_CONTROL</Permission></Grant></AccessControlList></AccessControlPolicy>")
	return q.sendXML(http.StatusOK, x)
}

// needObject fails unless the object is there.
func (q *request) needObject() error {
	if err := q.checkVersion(); err != nil {
		return err
	}
	obj, err := q.h.deps.Objects.Open(q.ctx(), q.bucket, q.key, false)
	if err != nil {
		return err
	}
	obj.Close()
	return nil
}

// checkVersion reads versionId. While no bucket has versions, the only one there is is "null".
func (q *request) checkVersion() error {
	if !q.query.Has("versionId") {
		return nil
	}
	return checkVersionID(q.query.Get("versionId"))
}

func checkVersionID(v string) error {
	switch v {
	case "null":
		return nil
	case "":
		return apierr.Errorf(apierr.InvalidArgument, "Version id cannot be the empty string").With("ArgumentName", "versionId")
	}
	return apierr.New(apierr.NoSuchVersion).With("VersionId", printable(v))
}
