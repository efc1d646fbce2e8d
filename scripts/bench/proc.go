package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"objstore/cmd/objstore/devcluster"
)

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for every architecture that Go knows.
const ticksPerSecond = 100

// usage is what the processes have used so far.
type usage struct {
	servers, client   float64 // CPU seconds, user and system
	peakNode, peakSum int64   // bytes
}

func readUsage(s *devcluster.State) (usage, error) {
	var u usage
	for _, n := range s.Nodes {
		cpu, err := cpuSeconds(n.PID)
		if err != nil {
			return u, err
		}
		peak, err := peakBytes(n.PID)
		if err != nil {
			return u, err
		}
		u.servers += cpu
		u.peakSum += peak
		u.peakNode = max(u.peakNode, peak)
	}
	var err error
	u.client, err = cpuSeconds(os.Getpid())
	return u, err
}

// cpuSeconds reads utime and stime of /proc/PID/stat (proc_pid_stat(5)): fields 14 and 15. The name in field 2 may
// hold blanks, so counting begins behind its closing parenthesis.
func cpuSeconds(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(b)
}

func parseStat(b []byte) (float64, error) {
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const utime, stime = 14 - 3, 15 - 3
	if len(fields) <= stime {
		return 0, fmt.Errorf("proc stat: read %d fields, expected more than %d", len(fields), stime)
	}
	var ticks uint64
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("proc stat: field %d: %w", i+3, err)
		}
		ticks += n
	}
	return float64(ticks) / ticksPerSecond, nil
}

// peakBytes reads VmHWM, the largest resident set since the start or the last resetPeaks.
func peakBytes(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseStatus(string(b))
}

func parseStatus(s string) (int64, error) {
	for line := range strings.Lines(s) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("proc status: no VmHWM")
}

// resetPeaks sets VmHWM to the present size (clear_refs, value 5).
func resetPeaks(s *devcluster.State) error {
	for _, n := range s.Nodes {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", n.PID), []byte("5"), 0); err != nil {
			return err
		}
	}
	return nil
}

// freeBytes returns 0 when it cannot be found out.
func freeBytes(dir string) uint64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}
