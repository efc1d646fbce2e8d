package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// sdk is an S3 client of one node. It tries each request attempts times.
func (c *cluster) sdk(n node, attempts int) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(n.S3), Region: c.Region, UsePathStyle: true, RetryMaxAttempts: attempts,
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, ""),
	})
}

// within is a context for one step of a test. The limit is against hangs only; it is wide because machines are slow.
func within(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func createBucket(t *testing.T, cl *s3.Client, bucket string) {
	t.Helper()
	if _, err := cl.CreateBucket(within(t, time.Minute), &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		t.Fatal(err)
	}
}

func putObject(t *testing.T, cl *s3.Client, bucket, key string, body []byte) error {
	_, err := cl.PutObject(within(t, time.Minute), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)})
	return err
}

// readBack reads an object and compares it with what it should be.
func readBack(t *testing.T, cl *s3.Client, bucket, key string, want digest) error {
	got, err := readDigest(t, cl, bucket, key)
	if err == nil && got != want {
		err = fmt.Errorf("%s/%s: read %s, expected %s", bucket, key, got, want)
	}
	return err
}

func readDigest(t *testing.T, cl *s3.Client, bucket, key string) (digest, error) {
	out, err := cl.GetObject(within(t, 5*time.Minute), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return digest{}, err
	}
	defer out.Body.Close()
	return digestOf(out.Body)
}

// digest stands for a body.
type digest struct {
	size   int64
	sha256 string
}

func (d digest) String() string {
	return fmt.Sprintf("%d bytes with sha256 %.12s…", d.size, d.sha256)
}

func digestOf(r io.Reader) (digest, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return digest{n, hex.EncodeToString(h.Sum(nil))}, err
}

func digestBytes(b []byte) digest {
	d, _ := digestOf(bytes.NewReader(b))
	return d
}

// seed is random, or OBJ_E2E_SEED, and is printed.
func seed(t *testing.T) uint64 {
	s := rand.Uint64()
	if text := os.Getenv("OBJ_E2E_SEED"); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("OBJ_E2E_SEED: %v", err)
		}
	}
	t.Logf("OBJ_E2E_SEED=%d", s)
	return s
}

// randomBytes depend on both numbers only.
func randomBytes(seed, stream uint64, n int) []byte {
	var k [32]byte
	for i := range 8 {
		k[i], k[8+i] = byte(seed>>(8*i)), byte(stream>>(8*i))
	}
	b := make([]byte, n)
	rand.NewChaCha8(k).Read(b)
	return b
}

// answer is what a failed request was answered with.
type answer struct {
	status     int
	code       string
	message    string
	retryAfter string
}

// answered takes the answer out of an SDK error; false when no answer came.
func answered(err error) (a answer, ok bool) {
	var re *smithyhttp.ResponseError
	if !errors.As(err, &re) || re.Response == nil {
		return a, false
	}
	a.status, a.retryAfter = re.HTTPStatusCode(), re.Response.Header.Get("Retry-After")
	var ae smithy.APIError
	if errors.As(err, &ae) {
		a.code, a.message = ae.ErrorCode(), ae.ErrorMessage()
	}
	return a, true
}

// metric sums one series, given with its labels as in the text, or all series of a name, over all nodes.
func (c *cluster) metric(series string) (float64, error) {
	sum := 0.0
	for _, n := range c.Nodes {
		v, err := nodeMetric(n, series)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

func nodeMetric(n node, series string) (float64, error) {
	client := http.Client{Timeout: 20 * time.Second}
	resp, err := client.Get(n.Admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: metrics: read status %d, expected 200", n.Name, resp.StatusCode)
	}
	sum := 0.0 // stays 0 for a counter that never counted
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if bare, _, _ := strings.Cut(name, "{"); !ok || name != series && bare != series {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: metrics: %q: %w", n.Name, line, err)
		}
		sum += v
	}
	return sum, nil
}
