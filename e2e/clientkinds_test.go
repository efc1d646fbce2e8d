package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// awsCLI is awscli, version 1 or 2.
type awsCLI struct {
	path string
	env  []string
}

func newAWS(t *testing.T, c *cluster, n node, path string) client {
	home := t.TempDir()
	return &awsCLI{path, []string{"HOME=" + home, "AWS_ACCESS_KEY_ID=" + c.AccessKey, "AWS_SECRET_ACCESS_KEY=" + c.SecretKey,
		"AWS_DEFAULT_REGION=" + c.Region, "AWS_ENDPOINT_URL=" + n.S3, "E2E_ENDPOINT=" + n.S3, "AWS_PAGER="}}
}

func (a *awsCLI) run(args ...string) (string, error) {
	endpoint := ""
	for _, kv := range a.env { // old versions know no AWS_ENDPOINT_URL
		if v, ok := strings.CutPrefix(kv, "E2E_ENDPOINT="); ok {
			endpoint = v
		}
	}
	cmd := command(a.path, append([]string{"--endpoint-url", endpoint}, args...)...)
	cmd.Env = append(cmd.Env, a.env...)
	return outputOf(cmd)
}

func (a *awsCLI) do(args ...string) error { _, err := a.run(args...); return err }

func (a *awsCLI) makeBucket(b string) error { return a.do("s3", "mb", "s3://"+b) }
func (a *awsCLI) upload(b, k, p string) error {
	return a.do("s3", "cp", "--no-progress", p, "s3://"+b+"/"+k)
}
func (a *awsCLI) download(b, k, p string) error {
	return a.do("s3", "cp", "--no-progress", "s3://"+b+"/"+k, p)
}
func (a *awsCLI) copy(b, from, to string) error {
	return a.do("s3", "cp", "--no-progress", "s3://"+b+"/"+from, "s3://"+b+"/"+to)
}
func (a *awsCLI) remove(b, k string) error    { return a.do("s3", "rm", "s3://"+b+"/"+k) }
func (a *awsCLI) removeBucket(b string) error { return a.do("s3", "rb", "--force", "s3://"+b) }

func (a *awsCLI) list(b string) (keys []string, err error) {
	out, err := a.run("s3api", "list-objects-v2", "--bucket", b, "--query", "Contents[].Key", "--output", "json")
	if err != nil {
		return nil, err
	}
	return keys, json.Unmarshal([]byte(out), &keys)
}

// s3cmd is s3cmd with a configuration file.
type s3cmd struct{ conf string }

func newS3cmd(t *testing.T, c *cluster, n node) client {
	need(t, "s3cmd", "s3cmd")
	conf := filepath.Join(t.TempDir(), "s3cfg")
	host := strings.TrimPrefix(n.S3, "http://")
	writeFile(t, conf, fmt.Sprintf("[default]\naccess_key = %s\nsecret_key = %s\nhost_base = %s\nhost_bucket = %s\nbucket_location = %s\nuse_https = False\n",
		c.AccessKey, c.SecretKey, host, host, c.Region))
	return &s3cmd{conf}
}

func (s *s3cmd) run(args ...string) (string, error) {
	return outputOf(command("s3cmd", append([]string{"--config", s.conf, "--no-progress"}, args...)...))
}

func (s *s3cmd) do(args ...string) error { _, err := s.run(args...); return err }

func (s *s3cmd) makeBucket(b string) error     { return s.do("mb", "s3://"+b) }
func (s *s3cmd) upload(b, k, p string) error   { return s.do("put", p, "s3://"+b+"/"+k) }
func (s *s3cmd) download(b, k, p string) error { return s.do("get", "--force", "s3://"+b+"/"+k, p) }
func (s *s3cmd) copy(b, from, to string) error {
	return s.do("cp", "s3://"+b+"/"+from, "s3://"+b+"/"+to)
}
func (s *s3cmd) remove(b, k string) error    { return s.do("del", "s3://"+b+"/"+k) }
func (s *s3cmd) removeBucket(b string) error { return s.do("rb", "--recursive", "--force", "s3://"+b) }

func (s *s3cmd) list(b string) (keys []string, err error) {
	out, err := s.run("ls", "--recursive", "s3://"+b)
	for line := range strings.Lines(out) {
		if _, key, ok := strings.Cut(strings.TrimRight(line, "\n"), "s3://"+b+"/"); ok {
			keys = append(keys, key)
		}
	}
	return keys, err
}

// rclone is rclone with a remote called s.
type rclone struct{ conf string }

func newRclone(t *testing.T, c *cluster, n node) client {
	need(t, "rclone", "rclone")
	conf := filepath.Join(t.TempDir(), "rclone.conf")
	writeFile(t, conf, fmt.Sprintf("[s]\ntype = s3\nprovider = Other\naccess_key_id = %s\nsecret_access_key = %s\nendpoint = %s\nregion = %s\n"+
		"force_path_style = true\nupload_cutoff = 64M\nchunk_size = 16M\n", c.AccessKey, c.SecretKey, n.S3, c.Region))
	return &rclone{conf}
}

func (r *rclone) run(args ...string) (string, error) {
	return outputOf(command("rclone", append([]string{"--config", r.conf}, args...)...))
}

func (r *rclone) do(args ...string) error { _, err := r.run(args...); return err }

func (r *rclone) makeBucket(b string) error     { return r.do("mkdir", "s:"+b) }
func (r *rclone) upload(b, k, p string) error   { return r.do("copyto", p, "s:"+b+"/"+k) }
func (r *rclone) download(b, k, p string) error { return r.do("copyto", "s:"+b+"/"+k, p) }
func (r *rclone) copy(b, from, to string) error {
	return r.do("copyto", "s:"+b+"/"+from, "s:"+b+"/"+to)
}
func (r *rclone) remove(b, k string) error    { return r.do("deletefile", "s:"+b+"/"+k) }
func (r *rclone) removeBucket(b string) error { return r.do("purge", "s:"+b) }

func (r *rclone) list(b string) ([]string, error) {
	out, err := r.run("lsf", "--recursive", "--files-only", "s:"+b)
	if out = strings.TrimRight(out, "\n"); out == "" {
		return nil, err
	}
	return strings.Split(out, "\n"), err
}

// newBoto3 drives boto3 of Debian, or the one of the first python in PATH where there is no other.
func newBoto3(t *testing.T, c *cluster, n node) client {
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if command(python, "-c", "import boto3").Run() == nil {
			return startScript(t, command(python, "testdata/client.py"), c, n)
		}
	}
	missing(t, "boto3", "apt-get install python3-boto3")
	return nil
}

// newNodeJS drives @aws-sdk/client-s3, which it installs once for this user.
func newNodeJS(t *testing.T, c *cluster, n node) client {
	need(t, "node", "nodejs")
	need(t, "npm", "npm")
	dir := nodeModules(t)
	script := filepath.Join(dir, fmt.Sprintf("client-%d.mjs", os.Getpid()))
	text, err := os.ReadFile("testdata/client.js")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, script, string(text))
	t.Cleanup(func() { os.Remove(script) })
	return startScript(t, command("node", script), c, n)
}

// nodeModules returns a folder in which @aws-sdk/client-s3 is installed: one that is kept between runs.
func nodeModules(t *testing.T) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "objstore-e2e", "node")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	works := func() bool {
		cmd := command("node", "--input-type=module", "-e", `await import("@aws-sdk/client-s3")`)
		cmd.Dir = dir
		return cmd.Run() == nil
	}
	if works() {
		return dir
	}
	npm := command("npm", "install", "--omit-lockfile-registry-resolved", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts",
		"--prefix", dir, "@aws-sdk/client-s3")
	npm.Dir = dir
	if out, err := outputOf(npm); err != nil {
		missing(t, "@aws-sdk/client-s3", fmt.Sprintf("npm install --prefix %s @aws-sdk/client-s3 (tried: %v %s)", dir, err, out))
	}
	if !works() {
		t.Fatalf("node does not find @aws-sdk/client-s3 in %s", dir)
	}
	return dir
}

// missing fails, or skips when that is allowed: a test that quietly skips proves nothing.
func missing(t *testing.T, what, how string) {
	t.Helper()
	if os.Getenv("OBJ_E2E_ALLOW_SKIP") == "1" {
		t.Skipf("%s is not there and OBJ_E2E_ALLOW_SKIP=1", what)
	}
	t.Fatalf("%s is not there: %s, or set OBJ_E2E_ALLOW_SKIP=1", what, how)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sdkClient is aws-sdk-go-v2 with its defaults.
type sdkClient struct {
	s3  *s3.Client
	ctx context.Context
}

func newSDK(t *testing.T, c *cluster, n node) client {
	return &sdkClient{c.sdk(n, 3), within(t, 3*commandLimit)}
}

// sdkPart is the part size. 16 MiB parts of bigSize leave a short last one.
const sdkPart = 16 << 20

func (s *sdkClient) makeBucket(b string) error {
	_, err := s.s3.CreateBucket(s.ctx, &s3.CreateBucketInput{Bucket: &b})
	return err
}

func (s *sdkClient) upload(b, k, p string) error {
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() <= sdkPart {
		_, err := s.s3.PutObject(s.ctx, &s3.PutObjectInput{Bucket: &b, Key: &k, Body: f})
		return err
	}
	up, err := s.s3.CreateMultipartUpload(s.ctx, &s3.CreateMultipartUploadInput{Bucket: &b, Key: &k})
	if err != nil {
		return err
	}
	var parts []types.CompletedPart
	for off, i := int64(0), int32(1); off < st.Size(); off, i = off+sdkPart, i+1 {
		body := io.NewSectionReader(f, off, min(sdkPart, st.Size()-off))
		a, err := s.s3.UploadPart(s.ctx, &s3.UploadPartInput{Bucket: &b, Key: &k, UploadId: up.UploadId, PartNumber: &i, Body: body})
		if err != nil {
			return err
		}
		parts = append(parts, types.CompletedPart{PartNumber: aws.Int32(i), ETag: a.ETag, ChecksumCRC32: a.ChecksumCRC32})
	}
	_, err = s.s3.CompleteMultipartUpload(s.ctx, &s3.CompleteMultipartUploadInput{Bucket: &b, Key: &k, UploadId: up.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}})
	return err
}

func (s *sdkClient) list(b string) (keys []string, err error) {
	pages := s3.NewListObjectsV2Paginator(s.s3, &s3.ListObjectsV2Input{Bucket: &b, MaxKeys: aws.Int32(2)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(s.ctx)
		if err != nil {
			return nil, err
		}
		for _, o := range page.Contents {
			keys = append(keys, *o.Key)
		}
	}
	return keys, nil
}

func (s *sdkClient) download(b, k, p string) error {
	a, err := s.s3.GetObject(s.ctx, &s3.GetObjectInput{Bucket: &b, Key: &k})
	if err != nil {
		return err
	}
	defer a.Body.Close()
	return save(a.Body, p)
}

func save(r io.Reader, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

func (s *sdkClient) copy(b, from, to string) error {
	_, err := s.s3.CopyObject(s.ctx, &s3.CopyObjectInput{Bucket: &b, Key: &to, CopySource: aws.String(b + "/" + from)})
	return err
}

func (s *sdkClient) remove(b, k string) error {
	_, err := s.s3.DeleteObject(s.ctx, &s3.DeleteObjectInput{Bucket: &b, Key: &k})
	return err
}

func (s *sdkClient) removeBucket(b string) error {
	keys, err := s.list(b)
	if err != nil {
		return err
	}
	var ids []types.ObjectIdentifier
	for _, k := range keys {
		ids = append(ids, types.ObjectIdentifier{Key: aws.String(k)})
	}
	a, err := s.s3.DeleteObjects(s.ctx, &s3.DeleteObjectsInput{Bucket: &b, Delete: &types.Delete{Objects: ids}})
	if err != nil {
		return err
	}
	if len(a.Errors) > 0 {
		return fmt.Errorf("delete %s: %s", *a.Errors[0].Key, *a.Errors[0].Code)
	}
	_, err = s.s3.DeleteBucket(s.ctx, &s3.DeleteBucketInput{Bucket: &b})
	return err
}

// minioClient is minio-go.
type minioClient struct {
	m   *minio.Client
	ctx context.Context
}

func newMinio(t *testing.T, c *cluster, n node) client {
	m, err := minio.New(strings.TrimPrefix(n.S3, "http://"), &minio.Options{Creds: credentials.NewStaticV4(c.AccessKey, c.SecretKey, ""), Region: c.Region})
	if err != nil {
		t.Fatal(err)
	}
	return &minioClient{m, within(t, 3*commandLimit)}
}

func (m *minioClient) makeBucket(b string) error {
	return m.m.MakeBucket(m.ctx, b, minio.MakeBucketOptions{})
}

func (m *minioClient) upload(b, k, p string) error {
	_, err := m.m.FPutObject(m.ctx, b, k, p, minio.PutObjectOptions{PartSize: sdkPart})
	return err
}

func (m *minioClient) list(b string) (keys []string, err error) {
	for o := range m.m.ListObjects(m.ctx, b, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			return nil, o.Err
		}
		keys = append(keys, o.Key)
	}
	return keys, nil
}

func (m *minioClient) download(b, k, p string) error {
	o, err := m.m.GetObject(m.ctx, b, k, minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	defer o.Close()
	return save(o, p)
}

func (m *minioClient) copy(b, from, to string) error {
	_, err := m.m.CopyObject(m.ctx, minio.CopyDestOptions{Bucket: b, Object: to}, minio.CopySrcOptions{Bucket: b, Object: from})
	return err
}

func (m *minioClient) remove(b, k string) error {
	return m.m.RemoveObject(m.ctx, b, k, minio.RemoveObjectOptions{})
}

func (m *minioClient) removeBucket(b string) error {
	for e := range m.m.RemoveObjects(m.ctx, b, m.m.ListObjects(m.ctx, b, minio.ListObjectsOptions{Recursive: true}), minio.RemoveObjectsOptions{}) {
		return e.Err
	}
	return m.m.RemoveBucket(m.ctx, b)
}
