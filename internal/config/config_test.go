package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnEmptyEnvironmentGivesTheDefaults(t *testing.T) {
	s, err := Load([]string{"PATH=/bin", "AWS_REGION=x"})
	if err != nil {
		t.Fatal(err)
	}
	if !s.ShardTLS || s.PutBufferBytes != 192<<20 || s.S3Region != "us-east-1" || s.VerifyInterval != 24*time.Hour {
		t.Errorf("defaults: %+v", *s)
	}
}

func TestEveryValueIsReadBackAsItIsShown(t *testing.T) {
	for _, r := range Default().Rows() {
		if r.Value != r.Default {
			t.Errorf("%s: shown as %q, default is %q", r.Name, r.Value, r.Default)
		}
		if r.Value == "" {
			continue
		}
		if _, err := Load([]string{r.Name + "=" + r.Value}); err != nil {
			t.Errorf("%s: the value shown is refused: %v", r.Name, err)
		}
	}
}

func TestTheTableIsSmallAndWellFormed(t *testing.T) {
	rows, seen := Default().Rows(), map[string]bool{}
	if len(rows) > MaxSettings {
		t.Errorf("%d settings, at most %d", len(rows), MaxSettings)
	}
	for _, r := range rows {
		if !strings.HasPrefix(r.Name, Prefix) || seen[r.Name] || r.Help == "" {
			t.Errorf("bad or repeated row %+v", r)
		}
		seen[r.Name] = true
	}
}

func TestProblemsAreNamed(t *testing.T) {
	for _, c := range []struct {
		env  string
		want []string
	}{
		{"OBJ_SHARD_TSL=off", []string{"OBJ_SHARD_TSL", "no such setting", "OBJ_SHARD_TLS?"}},
		{"OBJ_COMPLETELY_DIFFERENT=1", []string{"OBJ_COMPLETELY_DIFFERENT", "objstore config"}},
		{"OBJ_=1", []string{"OBJ_:", "no such setting"}},
		{"OBJ_SHARD_TLS=yes", []string{"OBJ_SHARD_TLS", `"yes"`, "on or off"}},
		{"OBJ_SHARD_TLS=", []string{"OBJ_SHARD_TLS", `""`, "on or off"}},
		{"OBJ_LOG_FORMAT=xml", []string{`"xml"`, "text, json"}},
		{"OBJ_LOG_LEVEL=trace", []string{`"trace"`, "debug, info, warn or error"}},
		{"OBJ_PUT_BUFFER_BYTES=1KiB", []string{`"1KiB"`, "16MiB to 64GiB"}},
		{"OBJ_PUT_BUFFER_BYTES=200M", []string{`"200M"`, "such as 64MiB"}},
		{"OBJ_MAX_REQUESTS=0", []string{`"0"`, "from 1 to 100000"}},
		{"OBJ_MAX_REQUESTS=ten", []string{`"ten"`}},
		{"OBJ_VERIFY_INTERVAL=1 day", []string{`"1 day"`, "such as 30s"}},
		{"OBJ_VERIFY_INTERVAL=-1h", []string{`"-1h"`, "from 0s"}},
		{"OBJ_S3_REGION=", []string{`""`, "us-east-1"}},
		{"OBJ_S3_REGION=Us East", []string{`"Us East"`}},
		{"OBJ_ROOT_ACCESS_KEY=a/b/c", []string{`"a/b/c"`}},
		{"OBJ_ROOT_ACCESS_KEY=abcdef", []string{"OBJ_ROOT_SECRET_KEY", "both or none"}},
		{"OBJ_RDMA_INTERNODE=on", []string{"no RDMA transport", "docs/configuration.md"}},
	} {
		_, err := Load([]string{c.env})
		if err == nil {
			t.Errorf("%s: accepted", c.env)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q does not say %q", c.env, err, w)
			}
		}
	}
}

func TestAllProblemsAreReportedAtOnceAndASecretIsNot(t *testing.T) {
	_, err := Load([]string{"OBJ_NOPE=1", "OBJ_SHARD_TLS=x", "OBJ_ROOT_SECRET_KEY=hush me"})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, w := range []string{"OBJ_NOPE", "OBJ_SHARD_TLS", "OBJ_ROOT_SECRET_KEY"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not name %s", err, w)
		}
	}
	if strings.Contains(err.Error(), "hush") {
		t.Errorf("error %q shows the secret", err)
	}
}

func TestASecretIsNotShown(t *testing.T) {
	s, err := Load([]string{"OBJ_ROOT_ACCESS_KEY=root", "OBJ_ROOT_SECRET_KEY=verysecret"})
	if err != nil {
		t.Fatal(err)
	}
	var table, raw bytes.Buffer
	if err := s.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteJSON(&raw); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{table.String(), raw.String()} {
		if strings.Contains(out, "verysecret") || !strings.Contains(out, "redacted") {
			t.Errorf("shown: %s", out)
		}
	}
	var rows []Row
	if err := json.Unmarshal(raw.Bytes(), &rows); err != nil || len(rows) != len(s.Rows()) {
		t.Errorf("JSON of %d rows: %v", len(rows), err)
	}
}

func TestEverySettingIsDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Default().Rows() {
		line := "| `" + r.Name + "` | " + r.Kind + " | " + dash(r.Default) + " |"
		if !strings.Contains(string(doc), line) {
			t.Errorf("docs/configuration.md lacks the row that begins %s", line)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "1": 1, "10B": 10, "4KiB": 4096, "64MiB": 64 << 20, "3GiB": 3 << 30, "2TiB": 2 << 40} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "B", "KiB", "-1", "+1", "1.5MiB", "64M", "64MB", "64 MiB", "9223372036854775808", "8388608TiB", "0x10"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d, expected an error", in, got)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"0", "64MiB", "1.5", "9223372036854775807", "8388607TiB", "KiB", "-4B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("ParseSize(%q) = %d", s, n)
		}
		if again, err := ParseSize(FormatSize(n)); err != nil || again != n {
			t.Fatalf("%d is written %q and read %d, %v", n, FormatSize(n), again, err)
		}
	})
}
