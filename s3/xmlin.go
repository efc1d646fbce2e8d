package s3

import (
	"encoding/xml"
	"errors"
	"io"

	"objstore/s3/apierr"
)

// readXML decodes a body of at most limit bytes into v. The document is read as it comes, so memory is bounded by what
// v keeps; nothing is done with it before every promise about the body has been verified. digest says that the body
// must come with an MD5 or a checksum. present is false for an empty body.
func (q *request) readXML(limit int64, digest bool, v any) (present bool, err error) {
	p, err := q.openBody(limit, apierr.MaxMessageLengthExceeded, false)
	if err != nil {
		return false, err
	}
	defer p.close()
	if digest && p.wantMD5 == nil && p.algorithm == nil {
		return false, apierr.Errorf(apierr.InvalidRequest, "Missing required header for this request: Content-MD5 OR x-amz-checksum-*")
	}
	r := p.tee()
	if p.length == 0 {
		return false, p.verify()
	}
	decodeErr := decodeXML(r, v)
	if _, err := io.Copy(io.Discard, r); err != nil {
		return false, err
	}
	if err := p.verify(); err != nil {
		return false, err
	}
	return true, decodeErr
}

// decodeXML reads one document and refuses what follows it.
func decodeXML(r io.Reader, v any) error {
	d := xml.NewDecoder(r)
	if err := d.Decode(v); err != nil {
		return xmlError(err)
	}
	for {
		switch t, err := d.Token(); {
		case err == io.EOF:
			return nil
		case err != nil:
			return xmlError(err)
		default:
			if _, ok := t.(xml.StartElement); ok {
				return apierr.New(apierr.MalformedXML)
			}
		}
	}
}

// xmlError keeps an error of the body's reader, which is not the document's fault.
func xmlError(err error) error {
	var e *apierr.Error
	if errors.As(err, &e) {
		return e
	}
	return &apierr.Error{Code: apierr.MalformedXML, Err: err}
}

// createBucketXML is the body of CreateBucket. What is in it beyond a location is refused by name.
type createBucketXML struct {
	XMLName  xml.Name `xml:"CreateBucketConfiguration"`
	Location string   `xml:"LocationConstraint"`
	Other    []struct {
		XMLName xml.Name
	} `xml:",any"`
}

type deleteObjectXML struct {
	Key          string  `xml:"Key"`
	VersionID    *string `xml:"VersionId"`
	ETag         *string `xml:"ETag"`
	LastModified *string `xml:"LastModifiedTime"`
	Size         *string `xml:"Size"`
}

type deleteXML struct {
	XMLName xml.Name          `xml:"Delete"`
	Quiet   bool              `xml:"Quiet"`
	Objects []deleteObjectXML `xml:"Object"`
}

type completePartXML struct {
	Number            int    `xml:"PartNumber"`
	ETag              string `xml:"ETag"`
	ChecksumCRC32     string `xml:"ChecksumCRC32"`
	ChecksumCRC32C    string `xml:"ChecksumCRC32C"`
	ChecksumCRC64NVME string `xml:"ChecksumCRC64NVME"`
	ChecksumSHA1      string `xml:"ChecksumSHA1"`
	ChecksumSHA256    string `xml:"ChecksumSHA256"`
}

type completeXML struct {
	XMLName xml.Name          `xml:"CompleteMultipartUpload"`
	Parts   []completePartXML `xml:"Part"`
}

// checksums pairs each value given for a part with its algorithm's id.
func (p *completePartXML) checksum() (*algorithm, []byte, error) {
	var alg *algorithm
	var value []byte
	for id, s := range [...]string{1: p.ChecksumCRC32, 2: p.ChecksumCRC32C, 3: p.ChecksumCRC64NVME, 4: p.ChecksumSHA1, 5: p.ChecksumSHA256} {
		if s == "" {
			continue
		}
		a := algorithmByID(uint8(id))
		b, ok := a.parse(s)
		if !ok || alg != nil {
			return nil, nil, apierr.Errorf(apierr.InvalidPart, "The checksum of part %d is not one valid value.", p.Number)
		}
		alg, value = a, b
	}
	return alg, value, nil
}
