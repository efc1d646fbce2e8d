package admin

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are the hooks that components call as they work. Every name begins with objstore_, units are seconds and
// bytes. Safe for concurrent use; a call costs well under a microsecond and does not allocate once its labels are known.
type Metrics struct {
	s3Requests  *prometheus.CounterVec
	s3Seconds   *prometheus.HistogramVec
	s3In, s3Out *prometheus.CounterVec
	inFlight    prometheus.Gauge

	shardBytes *prometheus.CounterVec
	shardOps   *prometheus.CounterVec

	wireRefused *prometheus.CounterVec
	events      *prometheus.CounterVec

	s3Cache    sync.Map // s3Labels → *s3Counters
	shardCache sync.Map // shardLabels → *ShardCounter
}

type s3Labels struct {
	op   string
	code int
}

type s3Counters struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
	in, out  prometheus.Counter
}

type shardLabels struct{ transport, op string }

// ShardCounter counts the shard traffic of one transport and direction.
type ShardCounter struct {
	bytes, ops prometheus.Counter
}

// Add counts one shard transfer of n bytes.
func (c *ShardCounter) Add(n int) {
	c.ops.Inc()
	c.bytes.Add(float64(n))
}

// latencyBuckets are in seconds: 0.25 ms to 32 s in steps of two.
func latencyBuckets() []float64 { return prometheus.ExponentialBuckets(0.00025, 2, 18) }

// NewMetrics registers everything in reg. With runtime, Go's and the process's own metrics too.
func NewMetrics(reg prometheus.Registerer, runtime bool) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "objstore", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		s3Requests:  counter("s3_requests_total", "S3 requests answered, by operation and HTTP status.", "op", "code"),
		s3Seconds:   prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "objstore", Name: "s3_request_seconds", Help: "Time from the request's head to the end of the answer.", Buckets: latencyBuckets()}, []string{"op"}),
		s3In:        counter("s3_received_bytes_total", "Body bytes received from S3 clients.", "op"),
		s3Out:       counter("s3_sent_bytes_total", "Body bytes sent to S3 clients.", "op"),
		inFlight:    prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "objstore", Name: "s3_requests_in_flight", Help: "S3 requests being served."}),
		shardBytes:  counter("shard_bytes_total", "Shard bytes moved, each counted once, at the gateway.", "transport", "op"),
		shardOps:    counter("shard_ops_total", "Shard transfers, counted at the gateway.", "transport", "op"),
		wireRefused: counter("cluster_connections_refused_total", "Internode connections closed for what they sent or who they were.", "reason"),
		events:      counter("cluster_events_total", "Events of the engines, by name.", "event"),
	}
	all := []prometheus.Collector{m.s3Requests, m.s3Seconds, m.s3In, m.s3Out, m.inFlight, m.shardBytes, m.shardOps,
		m.wireRefused, m.events}
	if runtime {
		all = append(all, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	for _, transport := range []string{"tcp", "rdma", "local"} {
		for _, op := range []string{"put", "get", "repair"} {
			m.Shard(transport, op) // a rate over a series that begins with the first byte misses that byte
		}
	}
	return m, nil
}

// S3 counts one answered request.
func (m *Metrics) S3(op string, code int, in, out int64, took time.Duration) {
	l := s3Labels{op, code}
	v, ok := m.s3Cache.Load(l)
	if !ok {
		v, _ = m.s3Cache.LoadOrStore(l, &s3Counters{m.s3Requests.WithLabelValues(op, strconv.Itoa(code)),
			m.s3Seconds.WithLabelValues(op), m.s3In.WithLabelValues(op), m.s3Out.WithLabelValues(op)})
	}
	c := v.(*s3Counters)
	c.requests.Inc()
	c.seconds.Observe(took.Seconds())
	if in > 0 {
		c.in.Add(float64(in))
	}
	if out > 0 {
		c.out.Add(float64(out))
	}
}

// S3Begin and S3End keep the number of requests in flight.
func (m *Metrics) S3Begin() { m.inFlight.Inc() }

// S3End ends what S3Begin began.
func (m *Metrics) S3End() { m.inFlight.Dec() }

// Shard returns the counter of a transport (tcp, rdma, local) and an operation (put, get, repair).
func (m *Metrics) Shard(transport, op string) *ShardCounter {
	l := shardLabels{transport, op}
	v, ok := m.shardCache.Load(l)
	if !ok {
		v, _ = m.shardCache.LoadOrStore(l, &ShardCounter{m.shardBytes.WithLabelValues(transport, op), m.shardOps.WithLabelValues(transport, op)})
	}
	return v.(*ShardCounter)
}

// CountShard counts one transfer of n bytes: the object engine's hook.
func (m *Metrics) CountShard(transport, op string, n int) { m.Shard(transport, op).Add(n) }

// ConnectionRefused counts an internode connection that was closed for a reason of this name.
func (m *Metrics) ConnectionRefused(reason string) { m.wireRefused.WithLabelValues(reason).Inc() }

// Event counts an engine's event by its name. Names come from the code, never from a request.
func (m *Metrics) Event(name string) { m.events.WithLabelValues(name).Inc() }
