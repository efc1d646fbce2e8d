package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"objstore/internal/loadgen"
)

func TestProcFilesAreRead(t *testing.T) {
	stat := "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0"
	if got, err := parseStat([]byte(stat)); err != nil || got != 2 {
		t.Errorf("CPU seconds %v, %v", got, err)
	}
	if _, err := parseStat([]byte("42 (x) S 1")); err == nil {
		t.Error("a short line was accepted")
	}
	if got, err := parseStatus("VmPeak:\t  9 kB\nVmHWM:\t    2048 kB\n"); err != nil || got != 2<<20 {
		t.Errorf("peak %v, %v", got, err)
	}
	if _, err := parseStatus("Name: x\n"); err == nil {
		t.Error("a status without VmHWM was accepted")
	}
	if cpu, err := cpuSeconds(os.Getpid()); err != nil || cpu < 0 {
		t.Errorf("own CPU %v, %v", cpu, err)
	}
	if peak, err := peakBytes(os.Getpid()); err != nil || peak < 1<<20 {
		t.Errorf("own peak %v, %v", peak, err)
	}
}

func TestTheReportHasTheMedianOfEachCell(t *testing.T) {
	o, err := parse([]string{"-sizes", "4KiB", "-concurrency", "8", "-tls", "off"})
	if err != nil {
		t.Fatal(err)
	}
	cells := o.cells("off")
	if len(cells) != 5 {
		t.Fatalf("%d cells", len(cells))
	}
	r := newReport(o)
	for i, ops := range []int64{100, 300, 200} {
		cells[0].runs = append(cells[0].runs, sample{Result: loadgen.Result{Ops: ops, Bytes: ops << 12, OpsPerS: float64(ops)}, ServerCPU: 0.1, PeakNode: int64(i+1) << 20})
	}
	r.add(cells[0])
	if c := r.Cells[0]; c.OpsPerS != 200 || c.CPUMSPerOp != 0.5 || c.PeakNodeByte != 3<<20 || c.SpreadPct != 100 {
		t.Errorf("row %+v", c)
	}
	dir := t.TempDir()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	var back report
	b, _ := os.ReadFile(filepath.Join(dir, "bench.json"))
	if err := json.Unmarshal(b, &back); err != nil || len(back.Cells) != 1 {
		t.Errorf("bench.json: %v", err)
	}
	if md, _ := os.ReadFile(filepath.Join(dir, "bench.md")); !strings.Contains(string(md), "| off | put | 4KiB | 8 | 200 |") {
		t.Errorf("bench.md: %s", md)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-sizes", "4k"}, {"-concurrency", "0"}, {"-runs", "0"}, {"-nope"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q: accepted", args)
		}
	}
}
