package loadgen

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Ops are the operations of Config.Op.
func Ops() []string { return []string{"put", "get", "head", "list", "delete", "mixed"} }

const (
	maxConcurrency = 4096
	maxSize        = 5 << 30  // bytes; S3's largest single PUT
	maxObjects     = 10 << 20 // keys of one run
	opTimeout      = 2 * time.Minute
	errorPause     = 20 * time.Millisecond // after a failed operation, so that a dead endpoint is not hammered
	listPage       = 1000                  // keys
	maxListBody    = 8 << 20               // bytes of one page
	maxErrorBody   = 16 << 10              // bytes of an error answer that are kept
)

// Config is one run.
type Config struct {
	Endpoints   []string // http://HOST:PORT or https://HOST[:PORT]; workers are spread over them
	AccessKey   string
	SecretKey   string
	Region      string
	Bucket      string // made when it is not there
	Prefix      string // of every key
	Op          string
	Size        int64 // bytes of each body
	Concurrency int
	Duration    time.Duration
	Objects     int  // keys to prepare for get, head, list, delete, mixed; for put: keys to cycle over, 0 is a new key each time
	Unsigned    bool // UNSIGNED-PAYLOAD instead of the body's SHA-256
	Verify      bool // compare every body that is read with the one that was written
	NoPrepare   bool // the objects are there already, from a run with Keep
	Warm        bool // read every object once before a get is measured
	Keep        bool // leave the objects in place

	// Progress is called about once a second from one goroutine; nil is none.
	Progress func(Progress)
	// Measuring is called just before the first measured request and just after the last; nil is none.
	Measuring func(begins bool)
}

// Progress is where a run stands.
type Progress struct {
	Phase   string // prepare, warm, run, clean
	Elapsed time.Duration
	Ops     int64
	Bytes   int64
	Errors  int64
}

// Result is what was measured. Rates are the sum over workers of each one's operations by the time it ran, so that
// the last operations of a run, when some workers have ended, do not bend them.
type Result struct {
	Op           string  `json:"op"`
	Size         int64   `json:"size"`
	Concurrency  int     `json:"concurrency"`
	DurationS    float64 `json:"duration_s"` // from the first request to the last answer
	Ops          int64   `json:"ops"`
	Bytes        int64   `json:"bytes"` // of bodies
	Errors       int64   `json:"errors"`
	OpsPerS      float64 `json:"ops_per_s"`
	MiBPerS      float64 `json:"mib_per_s"`
	P50MS        float64 `json:"p50_ms"`
	P99MS        float64 `json:"p99_ms"`
	Keys         int64   `json:"keys,omitempty"` // list: keys returned
	KeysPerS     float64 `json:"keys_per_s,omitempty"`
	FirstError   string  `json:"first_error,omitempty"`
	PrepareS     float64 `json:"prepare_s,omitempty"`
	CleanErrors  int64   `json:"clean_errors,omitempty"` // objects that could not be removed afterwards
	EndpointsRun int     `json:"endpoints"`
}

// Validate returns every problem at once.
func (c *Config) Validate() error {
	var p []error
	bad := func(format string, args ...any) { p = append(p, fmt.Errorf(format, args...)) }
	if len(c.Endpoints) == 0 {
		bad("endpoint: none given")
	}
	for _, e := range c.Endpoints {
		u, err := url.Parse(e)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			bad("endpoint: read %q, expected http://HOST:PORT or https://HOST[:PORT]", e)
		}
	}
	if c.AccessKey == "" || c.SecretKey == "" {
		bad("credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set")
	}
	known := false
	for _, op := range Ops() {
		known = known || c.Op == op
	}
	if !known {
		bad("op: read %q, expected one of %s", c.Op, strings.Join(Ops(), ", "))
	}
	if c.Bucket == "" || strings.ContainsAny(c.Bucket, "/?# ") {
		bad("bucket: read %q, expected a bucket name", c.Bucket)
	}
	if c.Size < 0 || c.Size > maxSize {
		bad("size: read %d, expected 0 to %d bytes", c.Size, int64(maxSize))
	}
	if c.Concurrency < 1 || c.Concurrency > maxConcurrency {
		bad("concurrency: read %d, expected 1 to %d", c.Concurrency, maxConcurrency)
	}
	if c.Duration <= 0 {
		bad("duration: read %s, expected more than 0", c.Duration)
	}
	if c.Objects < 0 || c.Objects > maxObjects {
		bad("objects: read %d, expected 0 to %d", c.Objects, maxObjects)
	}
	return errors.Join(p...)
}

// defaultObjects is how many objects a run prepares when nothing is said: enough that reads do not meet on one key,
// and not so many that preparing takes longer than measuring.
func (c *Config) defaultObjects() int {
	switch c.Op {
	case "put":
		return 0
	case "list", "delete":
		return 10_000
	}
	const total = 512 << 20 // bytes
	return int(max(int64(c.Concurrency), min(1000, total/max(1, c.Size))))
}
