package s3

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"objstore/metadata"
	"objstore/object"
	"objstore/s3/apierr"
	"objstore/s3/auth"
)

// bodyReader reads the body as it is on the wire, under a deadline that each stretch of progress renews.
type bodyReader struct {
	body  io.Reader
	w     *responseWriter
	idle  time.Duration
	armed time.Time
	began time.Time
	n     int64
	ended bool // io.EOF was seen
}

func (b *bodyReader) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(b.armed) >= b.idle/4 {
		if b.armed = now; b.began.IsZero() {
			b.began = now
		}
		limit := now.Add(b.idle)
		// A body that trickles holds memory that others wait for: after the idle time it has to have kept up minRate.
		if fair := b.began.Add(b.idle + time.Duration(b.n/minRate)*time.Second); fair.Before(limit) {
			limit = fair
		}
		_ = b.w.rc.SetReadDeadline(limit)
	}
	n, err := b.body.Read(p)
	b.n += int64(n)
	if err == nil {
		return n, nil
	}
	if err == io.EOF {
		b.disarm()
		return n, io.EOF
	}
	var ne net.Error
	code := apierr.IncompleteBody
	if errors.As(err, &ne) && ne.Timeout() {
		code = apierr.RequestTimeout
	}
	return n, &apierr.Error{Code: code, Err: err}
}

// disarm takes the deadline away at the body's end: what comes after it is not the body's time. After an error the
// deadline stays, because net/http reads on from a body that was not finished; it clears it before the next request.
func (b *bodyReader) disarm() {
	b.ended = true
	if !b.armed.IsZero() {
		b.armed = time.Time{}
		_ = b.w.rc.SetReadDeadline(time.Time{})
	}
}

// payload is a request's body with everything that was promised about it.
type payload struct {
	promise
	r      io.Reader
	chunks *auth.ChunkReader // nil unless aws-chunked
	length int64
	// Digests that run over the body; nil where there is nothing to compare and nothing to store.
	md5, sha, sum hash.Hash
	wantMD5       []byte
	wantSHA       [32]byte
}

// openBody checks everything that can be known of a body before it is read. needMD5 says that the MD5 is wanted even
// if none was promised: it is the ETag. Call close.
func (q *request) openBody(limit int64, over apierr.Code, needMD5 bool) (*payload, error) {
	p := &payload{}
	var err error
	if p.promise, err = readPromise(q.r.Header); err != nil {
		return nil, err
	}
	if err := p.readMD5(q.r.Header, needMD5); err != nil {
		return nil, err
	}
	if p.length, err = q.bodyLength(); err != nil {
		return nil, err
	}
	if p.length > limit {
		return nil, apierr.New(over).With("ProposedSize", itoa(p.length)).With("MaxSizeAllowed", itoa(limit))
	}
	if p.algorithm != nil {
		p.sum = p.algorithm.create()
	}
	return p, q.attach(p)
}

// attach connects the payload to the wire as the mode of the signature says. An unknown mode is refused here too.
func (q *request) attach(p *payload) error {
	q.body = &bodyReader{body: q.r.Body, w: q.w, idle: q.h.cfg.IdleTimeout}
	p.r = q.body
	mode := q.grant.Mode
	if p.trailer != "" && !mode.Trailing() {
		return apierr.Errorf(apierr.InvalidRequest, "x-amz-trailer needs an x-amz-content-sha256 that ends in -TRAILER")
	}
	switch mode {
	case auth.Literal:
		p.sha, p.wantSHA = sha256.New(), q.grant.SHA256
		return nil
	case auth.Unsigned:
		return nil
	case auth.StreamSigned, auth.StreamSignedTrailer, auth.StreamUnsignedTrailer:
		var announced []string
		if p.trailer != "" {
			announced = []string{p.trailer}
		}
		var err error
		p.chunks, err = q.grant.NewReader(q.body, p.length, announced)
		p.r = p.chunks
		return err
	default:
		return apierr.Errorf(apierr.NotImplemented, "this form of x-amz-content-sha256 is not implemented")
	}
}

// bodyLength is the number of payload bytes that will come. A body of unknown length is refused.
func (q *request) bodyLength() (int64, error) {
	if q.grant.Mode.Streaming() {
		v := q.r.Header.Get("X-Amz-Decoded-Content-Length")
		if v == "" {
			return 0, apierr.Errorf(apierr.MissingContentLength, "You must provide the x-amz-decoded-content-length HTTP header.")
		}
		n, err := strconv.ParseUint(v, 10, 63)
		if err != nil {
			return 0, apierr.Errorf(apierr.InvalidArgument, "x-amz-decoded-content-length is not a number.")
		}
		return int64(n), nil
	}
	if q.r.ContentLength < 0 || q.op.body && q.r.ContentLength == 0 && q.r.ProtoMajor == 1 && q.r.Header["Content-Length"] == nil {
		return 0, apierr.New(apierr.MissingContentLength)
	}
	return q.r.ContentLength, nil
}

func (p *payload) readMD5(h http.Header, need bool) error {
	if v := h["Content-Md5"]; v != nil {
		b, err := base64.StdEncoding.DecodeString(v[0])
		if err != nil || len(b) != md5.Size {
			return apierr.New(apierr.InvalidDigest).With("Content-MD5", printable(v[0]))
		}
		p.wantMD5 = b
	}
	if need || p.wantMD5 != nil {
		p.md5 = md5.New()
	}
	return nil
}

// close gives buffers back.
func (p *payload) close() {
	if p.chunks != nil {
		p.chunks.Release()
	}
}

// digests are the hashes that must see every byte.
func (p *payload) digests() []hash.Hash {
	d := make([]hash.Hash, 0, 3)
	for _, h := range [...]hash.Hash{p.md5, p.sha, p.sum} {
		if h != nil {
			d = append(d, h)
		}
	}
	return d
}

// engineBody is the payload as the engine takes it.
func (p *payload) engineBody() object.Body {
	return object.Body{Reader: p.r, Length: p.length, Digests: p.digests(), Seal: p.seal}
}

// verify compares every promise with what came, after the last byte.
func (p *payload) verify() error {
	if p.chunks != nil {
		if err := p.chunks.Finish(); err != nil {
			return err
		}
		if err := p.takeTrailer(); err != nil {
			return err
		}
	}
	if p.sha != nil && subtle.ConstantTimeCompare(p.sha.Sum(nil), p.wantSHA[:]) != 1 {
		return apierr.New(apierr.ContentSHA256Mismatch).
			With("ClientComputedContentSHA256", hex.EncodeToString(p.wantSHA[:])).
			With("S3ComputedContentSHA256", hex.EncodeToString(p.sha.Sum(nil)))
	}
	if p.wantMD5 != nil {
		if got := p.md5.Sum(nil); subtle.ConstantTimeCompare(got, p.wantMD5) != 1 {
			return apierr.Errorf(apierr.BadDigest, "The Content-MD5 you specified did not match what we received.").
				With("ExpectedDigest", base64.StdEncoding.EncodeToString(p.wantMD5)).
				With("CalculatedDigest", base64.StdEncoding.EncodeToString(got))
		}
	}
	if p.sum != nil && subtle.ConstantTimeCompare(p.sum.Sum(nil), p.value) != 1 {
		return apierr.Errorf(apierr.BadDigest, "The %s you specified did not match the calculated checksum.", p.algorithm.name)
	}
	return nil
}

// takeTrailer moves the checksum from the verified trailer to where a header would have put it.
func (p *payload) takeTrailer() error {
	if p.trailer == "" {
		return nil
	}
	v, ok := p.chunks.Trailer(p.trailer)
	if !ok {
		if p.value != nil {
			return nil // it came as a header
		}
		return apierr.Errorf(apierr.MalformedTrailer, "The trailer %s was announced and did not come.", p.trailer)
	}
	value, ok := p.algorithm.parse(v)
	if !ok {
		return apierr.Errorf(apierr.InvalidRequest, "Value for %s trailing header is invalid.", p.trailer)
	}
	if p.value != nil && subtle.ConstantTimeCompare(p.value, value) != 1 {
		return apierr.Errorf(apierr.BadDigest, "The checksum in the header and the one in the trailer differ.")
	}
	p.value = value
	return nil
}

// seal is called by the engine when every byte was read and every digest has caught up.
func (p *payload) seal() (object.Sealed, error) {
	if err := p.verify(); err != nil {
		return object.Sealed{}, err
	}
	s := object.Sealed{ETag: hex.EncodeToString(p.md5.Sum(nil))}
	if p.sum != nil {
		s.Checksums = []metadata.Checksum{{Algorithm: p.algorithm.id, Value: p.sum.Sum(nil)}}
	}
	return s, nil
}

// tee is a reader over the payload that feeds the digests itself, for bodies that the edge reads.
func (p *payload) tee() io.Reader {
	r := p.r
	for _, h := range p.digests() {
		r = io.TeeReader(r, h)
	}
	return r
}

// emptyBody verifies the body of a request that needs none, and drops it.
func (q *request) emptyBody() error {
	if q.r.ContentLength == 0 && q.grant.Mode == auth.Literal && q.grant.SHA256 == sha256.Sum256(nil) && q.r.Header["Content-Md5"] == nil ||
		q.r.ContentLength == 0 && q.grant.Mode == auth.Unsigned && q.r.Header["Content-Md5"] == nil {
		return nil
	}
	p, err := q.openBody(MaxEmptyBody, apierr.MaxMessageLengthExceeded, false)
	if err != nil {
		return err
	}
	defer p.close()
	if _, err := io.Copy(io.Discard, p.tee()); err != nil {
		return err
	}
	return p.verify()
}
