package config

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// entry is one row of the table, bound to a field. set parses and checks a value and stores it; show gives the field's
// value in the form that set reads.
type entry struct {
	name, kind, def, bounds, help string
	secret                        bool
	set                           func(string) error
	show                          func() string
}

func expected(read, want string) error { return fmt.Errorf("read %q, expected %s", read, want) }

func choiceEntry(name string, p *string, def, help string, values ...string) entry {
	want := "one of " + strings.Join(values, ", ")
	return entry{name: name, kind: "choice", def: def, bounds: strings.Join(values, "|"), help: help,
		show: func() string { return *p },
		set: func(v string) error {
			for _, ok := range values {
				if v == ok {
					*p = v
					return nil
				}
			}
			return expected(v, want)
		}}
}

func switchEntry(name string, p *bool, def, help string) entry {
	return entry{name: name, kind: "switch", def: def, bounds: "on|off", help: help,
		show: func() string {
			if *p {
				return "on"
			}
			return "off"
		},
		set: func(v string) error {
			if v != "on" && v != "off" {
				return expected(v, "on or off")
			}
			*p = v == "on"
			return nil
		}}
}

func levelEntry(name string, p *slog.Level, def, help string) entry {
	return entry{name: name, kind: "choice", def: def, bounds: "debug|info|warn|error", help: help,
		show: func() string { return strings.ToLower(p.String()) },
		set: func(v string) error {
			switch v {
			case "debug":
				*p = slog.LevelDebug
			case "info":
				*p = slog.LevelInfo
			case "warn":
				*p = slog.LevelWarn
			case "error":
				*p = slog.LevelError
			default:
				return expected(v, "debug, info, warn or error")
			}
			return nil
		}}
}

func textEntry(name string, p *string, def string, check func(string) error, help string) entry {
	return entry{name: name, kind: "text", def: def, help: help,
		show: func() string { return *p },
		set: func(v string) error {
			if v != "" {
				if err := check(v); err != nil {
					return err
				}
			} else if def != "" {
				return expected(v, "a value; leave the variable unset for "+strconv.Quote(def))
			}
			*p = v
			return nil
		}}
}

func secretEntry(name string, p *string, check func(string) error, help string) entry {
	e := textEntry(name, p, "", check, help)
	e.secret, e.kind = true, "secret"
	return e
}

func intEntry(name string, p *int, def, lo, hi int, help string) entry {
	return entry{name: name, kind: "number", def: strconv.Itoa(def), bounds: fmt.Sprintf("%d..%d", lo, hi), help: help,
		show: func() string { return strconv.Itoa(*p) },
		set: func(v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < lo || n > hi {
				return expected(v, fmt.Sprintf("a whole number from %d to %d", lo, hi))
			}
			*p = n
			return nil
		}}
}

func bytesEntry(name string, p *int64, def, lo, hi int64, help string) entry {
	return entry{name: name, kind: "size", def: FormatSize(def), bounds: FormatSize(lo) + ".." + FormatSize(hi), help: help,
		show: func() string { return FormatSize(*p) },
		set: func(v string) error {
			n, err := ParseSize(v)
			if err != nil || n < lo || n > hi {
				return expected(v, fmt.Sprintf("a size from %s to %s, such as 64MiB", FormatSize(lo), FormatSize(hi)))
			}
			*p = n
			return nil
		}}
}

func durationEntry(name string, p *time.Duration, def, lo, hi time.Duration, help string) entry {
	return entry{name: name, kind: "duration", def: formatDuration(def), bounds: formatDuration(lo) + ".." + formatDuration(hi), help: help,
		show: func() string { return formatDuration(*p) },
		set: func(v string) error {
			d, err := time.ParseDuration(v)
			if err != nil || d < lo || d > hi {
				return expected(v, fmt.Sprintf("a duration from %s to %s, such as 30s", formatDuration(lo), formatDuration(hi)))
			}
			*p = d
			return nil
		}}
}

// formatDuration drops the zero units that Duration.String keeps: 24h, not 24h0m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
