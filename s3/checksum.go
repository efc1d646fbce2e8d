package s3

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"hash/crc32"
	"net/http"
	"strings"

	"github.com/minio/crc64nvme"

	"objstore/metadata"
	"objstore/s3/apierr"
)

// algorithm is one of the x-amz-checksum algorithms. Its id is stored in metadata.
type algorithm struct {
	id     uint8
	name   string // as in x-amz-checksum-algorithm
	header string // canonical header name
	size   int    // bytes
	poly   uint64 // reflected polynomial; 0 for hashes, which cannot be combined
	create func() hash.Hash
}

var algorithms = [...]algorithm{
	1: {1, "CRC32", "X-Amz-Checksum-Crc32", 4, crc32.IEEE, func() hash.Hash { return crc32.NewIEEE() }},
	2: {2, "CRC32C", "X-Amz-Checksum-Crc32c", 4, crc32.Castagnoli, func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }},
	3: {3, "CRC64NVME", "X-Amz-Checksum-Crc64nvme", 8, 0x9a6c9329ac4bc9b5, func() hash.Hash { return crc64nvme.New() }},
	4: {4, "SHA1", "X-Amz-Checksum-Sha1", sha1.Size, 0, sha1.New},
	5: {5, "SHA256", "X-Amz-Checksum-Sha256", sha256.Size, 0, sha256.New},
}

// algorithmByID returns nil for 0 and for what is not known.
func algorithmByID(id uint8) *algorithm {
	if id == 0 || int(id) >= len(algorithms) {
		return nil
	}
	return &algorithms[id]
}

func algorithmByName(name string) *algorithm {
	for i := range algorithms {
		if algorithms[i].id != 0 && strings.EqualFold(algorithms[i].name, name) {
			return &algorithms[i]
		}
	}
	return nil
}

// xmlName is the element that carries a value of the algorithm.
func (a *algorithm) xmlName() string { return "Checksum" + a.name }

// compositeByDefault says what a multipart upload's checksum is when x-amz-checksum-type does not say.
func (a *algorithm) compositeByDefault() bool { return a.name != "CRC64NVME" }

// parse decodes a base64 value.
func (a *algorithm) parse(v string) ([]byte, bool) {
	b, err := base64.StdEncoding.DecodeString(v)
	return b, err == nil && len(b) == a.size
}

// combine appends a part's full-object CRC to that of what is before it.
func (a *algorithm) combine(whole, part []byte, partLen int64) []byte {
	x := combineCRC(beUint(whole), beUint(part), partLen, uint(a.size)*8, a.poly)
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], x)
	return append([]byte(nil), b[8-a.size:]...)
}

func beUint(b []byte) uint64 {
	var x uint64
	for _, c := range b {
		x = x<<8 | uint64(c)
	}
	return x
}

func typeName(composite bool) string {
	if composite {
		return "COMPOSITE"
	}
	return "FULL_OBJECT"
}

// checksumText is a checksum as clients see it: base64, and for a composite one the number of parts.
func checksumText(c *metadata.Checksum, parts int) string {
	s := base64.StdEncoding.EncodeToString(c.Value)
	if c.Composite {
		s += "-" + itoa(int64(parts))
	}
	return s
}

// setChecksums puts the checksums on an answer.
func setChecksums(w *responseWriter, sums []metadata.Checksum, parts int) {
	for i := range sums {
		if a := algorithmByID(sums[i].Algorithm); a != nil {
			w.set(a.header, checksumText(&sums[i], parts))
			w.set("X-Amz-Checksum-Type", typeName(sums[i].Composite))
		}
	}
}

// checksumXML writes the checksums as elements.
func checksumXML(x *xmlBuf, sums []metadata.Checksum, parts int) {
	for i := range sums {
		if a := algorithmByID(sums[i].Algorithm); a != nil {
			x.elem(a.xmlName(), checksumText(&sums[i], parts))
			x.elem("ChecksumType", typeName(sums[i].Composite))
		}
	}
}

// promise is the checksum that a request says its body has.
type promise struct {
	algorithm *algorithm
	value     []byte // from a header
	trailer   string // lower-case name of the trailer it will come in, if value is nil
}

// readPromise reads x-amz-checksum-*, x-amz-trailer and x-amz-sdk-checksum-algorithm.
func readPromise(h http.Header) (promise, error) {
	var p promise
	for i := range algorithms {
		a := &algorithms[i]
		if a.id == 0 {
			continue
		}
		v := h[a.header]
		if v == nil {
			continue
		}
		if p.algorithm != nil {
			return p, apierr.Errorf(apierr.InvalidRequest, "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
		}
		value, ok := a.parse(v[0])
		if !ok {
			return p, apierr.Errorf(apierr.InvalidRequest, "Value for %s header is invalid.", strings.ToLower(a.header))
		}
		p.algorithm, p.value = a, value
	}
	if err := p.readTrailer(h); err != nil {
		return p, err
	}
	if v := h.Get("X-Amz-Sdk-Checksum-Algorithm"); v != "" {
		a := algorithmByName(v)
		switch {
		case a == nil:
			return p, apierr.Errorf(apierr.InvalidRequest, "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]")
		case p.algorithm == nil && h["Content-Md5"] == nil:
			return p, apierr.Errorf(apierr.InvalidRequest, "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.")
		case p.algorithm != nil && p.algorithm != a:
			return p, apierr.Errorf(apierr.InvalidRequest, "Value for x-amz-sdk-checksum-algorithm header is invalid.")
		}
	}
	return p, nil
}

// readTrailer takes the announced trailer. Only checksums may come as trailers, and one of them; one that is announced
// and came as a header already need not come again.
func (p *promise) readTrailer(h http.Header) error {
	v := h.Get("X-Amz-Trailer")
	if v == "" {
		return nil
	}
	for name := range strings.SplitSeq(v, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		var a *algorithm
		for i := range algorithms {
			if algorithms[i].id != 0 && strings.EqualFold(algorithms[i].header, name) {
				a = &algorithms[i]
			}
		}
		if a == nil {
			return apierr.Errorf(apierr.InvalidRequest, "The value specified in the x-amz-trailer header is not supported")
		}
		if p.algorithm != nil && (p.algorithm != a || p.trailer != "") {
			return apierr.Errorf(apierr.InvalidRequest, "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
		}
		p.algorithm, p.trailer = a, name
	}
	return nil
}
