package e2e

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"objstore/internal/sigv4"
)

const maxRawBody = 64 << 20 // bytes of an answer

// errNotSent marks a request that no server can have seen: the connection could not be opened.
var errNotSent = errors.New("not sent")

// rawClient speaks S3 without retries: a history is worth something only when every request is one attempt.
type rawClient struct {
	signer *sigv4.Signer
	http   *http.Client
}

// rawAnswer is a whole answer.
type rawAnswer struct {
	status int
	etag   string // without quotes
	body   []byte
}

func newRawClient(c *cluster, timeout time.Duration) *rawClient {
	return &rawClient{
		signer: sigv4.New(c.AccessKey, c.SecretKey, c.Region, "s3"),
		http: &http.Client{Timeout: timeout, Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 64,
			DisableCompression:  true,
		}},
	}
}

func (rc *rawClient) close() { rc.http.CloseIdleConnections() }

// do sends one request. An error other than errNotSent leaves the outcome unknown; so does a status of 500 and more.
func (rc *rawClient) do(ctx context.Context, endpoint, method, bucket, key, query string, body []byte, header ...string) (rawAnswer, error) {
	path := "/" + bucket
	if key != "" {
		path += "/" + sigv4.Escape(key)
	}
	target := endpoint + path
	if query != "" {
		target += "?" + query
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return rawAnswer{}, err
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	date, auth := rc.signer.Sign(time.Now(), sigv4.Request{Method: method, Host: req.URL.Host, Path: path, Query: query, Hash: hash})
	req.Header.Set("X-Amz-Date", date)
	req.Header.Set("X-Amz-Content-Sha256", hash)
	req.Header.Set("Authorization", auth)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := rc.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return rawAnswer{}, fmt.Errorf("%w: %w", errNotSent, err)
		}
		return rawAnswer{}, err
	}
	defer res.Body.Close()
	a := rawAnswer{status: res.StatusCode, etag: strings.Trim(res.Header.Get("ETag"), `"`)}
	a.body, err = io.ReadAll(io.LimitReader(res.Body, maxRawBody))
	return a, err
}

// rawPage is one page of ListObjectsV2.
type rawPage struct {
	Contents []struct {
		Key  string
		ETag string
		Size int64
	}
	IsTruncated           bool
	NextContinuationToken string
}

// list asks for one page after a key.
func (rc *rawClient) list(ctx context.Context, endpoint, bucket, after string, maxKeys int) (rawAnswer, rawPage, error) {
	q := fmt.Sprintf("list-type=2&max-keys=%d", maxKeys)
	if after != "" {
		q += "&start-after=" + url.QueryEscape(after)
	}
	a, err := rc.do(ctx, endpoint, "GET", bucket, "", q, nil)
	var p rawPage
	if err == nil && a.status == 200 {
		err = xml.Unmarshal(a.body, &p)
		for i := range p.Contents {
			p.Contents[i].ETag = strings.Trim(p.Contents[i].ETag, `"`)
		}
	}
	return a, p, err
}

// rawBody is a body of size bytes that no other id has.
func rawBody(id string, size int) []byte {
	line := []byte(id + " " + fmt.Sprint(size) + "\n")
	b := bytes.Repeat(line, size/len(line)+2)
	return b[:max(size, len(line))]
}

// rawETag is the ETag of a body that was put in one piece.
func rawETag(body []byte) string {
	sum := md5.Sum(body)
	return hex.EncodeToString(sum[:])
}
