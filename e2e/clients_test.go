package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// client is an S3 client as the test drives it: a program, a script or a library.
type client interface {
	makeBucket(bucket string) error
	upload(bucket, key, path string) error
	list(bucket string) ([]string, error)
	download(bucket, key, path string) error
	copy(bucket, from, to string) error
	remove(bucket, key string) error
	removeBucket(bucket string) error // with what is in it
}

// bigSize is above the size from which every client here uploads in parts.
const bigSize = 210_000_000

// material are the files that the clients upload.
type material struct {
	key, path string
	digest
}

func makeMaterial(t *testing.T) []material {
	s, dir := seed(t), t.TempDir()
	var files []material
	for i, m := range []struct {
		key  string
		size int
	}{{"empty", 0}, {"folder/käse + brot & 100%.txt", 3000}, {"folder/odd", 1<<20 + 1}, {"big", bigSize}} {
		body := randomBytes(s, uint64(i), m.size)
		path := filepath.Join(dir, fmt.Sprintf("file%d", i))
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, material{m.key, path, digestBytes(body)})
	}
	return files
}

// TestRealClientsReadBackWhatTheyStore drives every client against one cluster, each with another node as its endpoint.
func TestRealClientsReadBackWhatTheyStore(t *testing.T) {
	files := makeMaterial(t)
	c := startCluster(t, options{})
	makers := clientMakers(t)
	for i, m := range makers {
		t.Run(m.name, func(t *testing.T) {
			n, other := c.Nodes[i%len(c.Nodes)], c.Nodes[(i+1)%len(c.Nodes)]
			begin := time.Now()
			exercise(t, m.make(t, c, n), c.sdk(other, 3), fmt.Sprintf("client-%d", i), files)
			t.Logf("took %s", time.Since(begin).Round(time.Millisecond))
		})
	}
}

// exercise is what every client does. reader is another client on another node, which sees the same.
func exercise(t *testing.T, cl client, reader *s3.Client, bucket string, files []material) {
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	check("make bucket", cl.makeBucket(bucket))
	var keys []string
	for _, f := range files {
		check("upload "+f.key, cl.upload(bucket, f.key, f.path))
		keys = append(keys, f.key)
	}
	mustList(t, cl, bucket, keys)
	mustBeMultipart(t, reader, bucket, "big")
	got := filepath.Join(t.TempDir(), "got")
	fetch := func(key string, want digest) {
		t.Helper()
		check("download "+key, cl.download(bucket, key, got))
		f, err := os.Open(got)
		check("download "+key, err)
		d, err := digestOf(f)
		check("download "+key, errorsOf(err, f.Close(), os.Remove(got)))
		if d != want {
			t.Fatalf("download %s: read %s, expected %s", key, d, want)
		}
		check("read by another client", readBack(t, reader, bucket, key, want))
	}
	for _, f := range files {
		fetch(f.key, f.digest)
	}
	for _, f := range files[2:] {
		to := f.key + " (copy)"
		check("copy "+f.key, cl.copy(bucket, f.key, to))
		keys = append(keys, to)
		fetch(to, f.digest)
	}
	mustList(t, cl, bucket, keys)
	check("delete", cl.remove(bucket, files[1].key))
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == files[1].key })
	mustList(t, cl, bucket, keys)
	check("remove bucket", cl.removeBucket(bucket))
	if _, err := reader.HeadBucket(within(t, time.Minute), &s3.HeadBucketInput{Bucket: &bucket}); err == nil {
		t.Fatal("the bucket is still there")
	} else if a, ok := answered(err); !ok || a.status != 404 {
		t.Fatalf("the removed bucket: %v, expected 404", err)
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func mustList(t *testing.T, cl client, bucket string, want []string) {
	t.Helper()
	got, err := cl.list(bucket)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	want = slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("list: read %q, expected %q", got, want)
	}
}

// mustBeMultipart makes sure that a client did what this test is to show.
func mustBeMultipart(t *testing.T, reader *s3.Client, bucket, key string) {
	t.Helper()
	h, err := reader.HeadObject(within(t, time.Minute), &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(*h.ETag, "-") {
		t.Fatalf("%s was not uploaded in parts: its etag is %s", key, *h.ETag)
	}
}

// clientMaker makes one client.
type clientMaker struct {
	name string
	make func(t *testing.T, c *cluster, n node) client
}

func clientMakers(t *testing.T) []clientMaker {
	makers := []clientMaker{}
	for _, aws := range programs(t, "aws", "awscli") {
		makers = append(makers, clientMaker{aws.version, func(t *testing.T, c *cluster, n node) client { return newAWS(t, c, n, aws.path) }})
	}
	return append(makers, clientMaker{"s3cmd", newS3cmd}, clientMaker{"rclone", newRclone}, clientMaker{"boto3", newBoto3},
		clientMaker{"aws-sdk-js", newNodeJS}, clientMaker{"aws-sdk-go-v2", newSDK}, clientMaker{"minio-go", newMinio})
}

// program is one version of a program.
type program struct{ path, version string }

// programs finds every version of a program in PATH.
func programs(t *testing.T, name, pkg string) []program {
	need(t, name, pkg)
	var found []program
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			continue
		}
		out, err := command(path, "--version").CombinedOutput()
		if err != nil {
			t.Logf("%s --version: %v\n%s", path, err, out)
			continue
		}
		version, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
		if !slices.ContainsFunc(found, func(p program) bool { return p.version == strings.ReplaceAll(version, "/", "-") }) {
			found = append(found, program{path, strings.ReplaceAll(version, "/", "-")})
		}
	}
	if len(found) == 0 {
		t.Fatalf("no %s in PATH works", name)
	}
	return found
}

// command is a client's program in an environment that points it nowhere.
func command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = append(cleanEnv(), "LC_ALL=C.UTF-8", "AWS_EC2_METADATA_DISABLED=true", "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=ignore")
	return cmd
}

// commandLimit is against hangs only.
const commandLimit = 4 * time.Minute

// outputOf runs a command to its end.
func outputOf(cmd *exec.Cmd) (string, error) {
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		return "", err
	}
	timer := time.AfterFunc(commandLimit, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%q: %w\n%s%s", cmd.Args, err, out.Bytes(), log.Bytes())
	}
	return out.String(), nil
}

// scriptClient drives a script that reads one JSON request a line and answers each with one JSON line.
type scriptClient struct {
	in  *json.Encoder
	out *json.Decoder
	log *bytes.Buffer
}

type scriptRequest struct {
	Op     string `json:"op"`
	Bucket string `json:"bucket"`
	Key    string `json:"key,omitempty"`
	Path   string `json:"path,omitempty"`
	To     string `json:"to,omitempty"`
}

func startScript(t *testing.T, cmd *exec.Cmd, c *cluster, n node) *scriptClient {
	t.Helper()
	cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID="+c.AccessKey, "AWS_SECRET_ACCESS_KEY="+c.SecretKey, "AWS_DEFAULT_REGION="+c.Region,
		"E2E_ENDPOINT="+n.S3, "E2E_REGION="+c.Region)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &scriptClient{in: json.NewEncoder(in), out: json.NewDecoder(out), log: &bytes.Buffer{}}
	cmd.Stderr = s.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(3*commandLimit, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		in.Close()
		io.Copy(io.Discard, out)
		err := cmd.Wait()
		timer.Stop()
		if err != nil || t.Failed() {
			t.Errorf("%q: %v\n%s", cmd.Args, err, s.log)
		}
	})
	return s
}

func (s *scriptClient) do(r scriptRequest) ([]string, error) {
	var a struct {
		Error string   `json:"error"`
		Keys  []string `json:"keys"`
	}
	if err := s.in.Encode(r); err != nil {
		return nil, err
	}
	if err := s.out.Decode(&a); err != nil {
		return nil, err
	}
	if a.Error != "" {
		return nil, fmt.Errorf("%s", a.Error)
	}
	return a.Keys, nil
}

func (s *scriptClient) run(r scriptRequest) error {
	_, err := s.do(r)
	return err
}

func (s *scriptClient) makeBucket(b string) error {
	return s.run(scriptRequest{Op: "make", Bucket: b})
}
func (s *scriptClient) upload(b, k, p string) error {
	return s.run(scriptRequest{Op: "upload", Bucket: b, Key: k, Path: p})
}
func (s *scriptClient) list(b string) ([]string, error) {
	return s.do(scriptRequest{Op: "list", Bucket: b})
}
func (s *scriptClient) download(b, k, p string) error {
	return s.run(scriptRequest{Op: "download", Bucket: b, Key: k, Path: p})
}
func (s *scriptClient) copy(b, from, to string) error {
	return s.run(scriptRequest{Op: "copy", Bucket: b, Key: from, To: to})
}
func (s *scriptClient) remove(b, k string) error {
	return s.run(scriptRequest{Op: "remove", Bucket: b, Key: k})
}
func (s *scriptClient) removeBucket(b string) error {
	return s.run(scriptRequest{Op: "remove_bucket", Bucket: b})
}
