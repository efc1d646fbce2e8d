package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"objstore/internal/config"
)

// report is bench.json.
type report struct {
	Date      time.Time `json:"date"`
	CPUs      int       `json:"cpus"`
	CPU       string    `json:"cpu"`
	Kernel    string    `json:"kernel"`
	Go        string    `json:"go"`
	Nodes     int       `json:"nodes"`
	Runs      int       `json:"runs"`
	DurationS float64   `json:"duration_s"`
	Cells     []row     `json:"cells"`
}

// row is one cell's median over its runs. CPU is of all servers together, user and system.
type row struct {
	TLS          string  `json:"shard_tls"`
	Op           string  `json:"op"`
	Size         int64   `json:"size"`
	Concurrency  int     `json:"concurrency"`
	OpsPerS      float64 `json:"ops_per_s"`
	MiBPerS      float64 `json:"mib_per_s"`
	KeysPerS     float64 `json:"keys_per_s,omitempty"`
	P50MS        float64 `json:"p50_ms"`
	P99MS        float64 `json:"p99_ms"`
	CPUMSPerOp   float64 `json:"server_cpu_ms_per_op"`
	CPUSPerGiB   float64 `json:"server_cpu_s_per_gib,omitempty"`
	ClientMSOp   float64 `json:"client_cpu_ms_per_op"`
	PeakNodeByte int64   `json:"peak_memory_bytes_largest_node"` // largest over the runs
	PeakSumByte  int64   `json:"peak_memory_bytes_all_nodes"`
	Errors       int64   `json:"errors"`         // sum over the runs
	SpreadPct    float64 `json:"spread_percent"` // of ops/s: (largest - smallest) / median
}

func newReport(o *options) *report {
	r := &report{Date: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), CPU: cpuModel(), Go: runtime.Version(), Nodes: benchNodes,
		Runs: o.runs, DurationS: o.duration.Seconds()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return r
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func (r *report) add(c *cell) {
	out := row{TLS: c.tls, Op: c.op, Size: c.size, Concurrency: c.conc}
	mid := func(f func(s *sample) float64) float64 {
		var v []float64
		for i := range c.runs {
			v = append(v, f(&c.runs[i]))
		}
		return median(v)
	}
	perOp := func(cpu float64, s *sample) float64 { return 1000 * cpu / float64(max(1, s.Ops)) }
	out.OpsPerS = mid(func(s *sample) float64 { return s.OpsPerS })
	out.MiBPerS = mid(func(s *sample) float64 { return s.MiBPerS })
	out.KeysPerS = mid(func(s *sample) float64 { return s.KeysPerS })
	out.P50MS = mid(func(s *sample) float64 { return s.P50MS })
	out.P99MS = mid(func(s *sample) float64 { return s.P99MS })
	out.CPUMSPerOp = mid(func(s *sample) float64 { return perOp(s.ServerCPU, s) })
	out.ClientMSOp = mid(func(s *sample) float64 { return perOp(s.ClientCPU, s) })
	if c.op == "put" || c.op == "get" {
		out.CPUSPerGiB = mid(func(s *sample) float64 { return s.ServerCPU / (float64(max(1, s.Bytes)) / (1 << 30)) })
	}
	lo, hi := math.Inf(1), 0.0
	for _, s := range c.runs {
		out.PeakNodeByte = max(out.PeakNodeByte, s.PeakNode)
		out.PeakSumByte = max(out.PeakSumByte, s.PeakSum)
		out.Errors += s.Errors
		lo, hi = min(lo, s.OpsPerS), max(hi, s.OpsPerS)
	}
	if out.OpsPerS > 0 {
		out.SpreadPct = 100 * (hi - lo) / out.OpsPerS
	}
	r.Cells = append(r.Cells, out)
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "bench.json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bench.md"), []byte(r.markdown()), 0o644)
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Measured %s\n\n%d nodes and the client on one machine: %d cores (%s), Linux %s, %s. Medians of %d interleaved runs of %.0f s.\n",
		r.Date.Format(time.RFC3339), r.Nodes, r.CPUs, r.CPU, r.Kernel, r.Go, r.Runs, r.DurationS)
	b.WriteString("CPU is user and system time of all servers together. Peak memory is the largest resident set during the runs.\n\n")
	b.WriteString("| shard TLS | op | size | conns | ops/s | MiB/s | p50 ms | p99 ms | CPU ms/op | CPU s/GiB | client ms/op | peak MiB, one node | all | spread | errors |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range r.Cells {
		perGiB, size := "", config.FormatSize(c.Size)
		if c.CPUSPerGiB > 0 {
			perGiB = fmt.Sprintf("%.2f", c.CPUSPerGiB)
		}
		rate := fmt.Sprintf("%.0f", c.OpsPerS)
		if c.Op == "list" {
			rate, size = fmt.Sprintf("%.0f (%.0f keys/s)", c.OpsPerS, c.KeysPerS), "-"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %s | %.1f | %.2f | %.2f | %.3f | %s | %.3f | %d | %d | %.0f %% | %d |\n", c.TLS, c.Op, size, c.Concurrency, rate,
			c.MiBPerS, c.P50MS, c.P99MS, c.CPUMSPerOp, perGiB, c.ClientMSOp, c.PeakNodeByte>>20, c.PeakSumByte>>20, c.SpreadPct, c.Errors)
	}
	return b.String()
}
