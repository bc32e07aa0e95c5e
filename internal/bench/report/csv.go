// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// column is one column of WriteCSV.
type column struct {
	name string
	cell func(*record.File, *record.Run) string
}

// csvColumns returns the columns in their order. New columns are appended, so that scripts that count columns keep
// working.
func csvColumns() []column {
	real := func(v float64) string { return strconv.FormatFloat(v, 'g', 9, 64) }
	whole := func(v int64) string { return strconv.FormatInt(v, 10) }
	set := func(name string, f func(record.Settings) string) column {
		return column{name, func(_ *record.File, r *record.Run) string { return f(r.Settings) }}
	}
	run := func(name string, f func(*record.Run) string) column {
		return column{name, func(_ *record.File, r *record.Run) string { return f(r) }}
	}
	lat := func(name string, f func(*record.Latency) float64) column {
		return run(name, func(r *record.Run) string {
			if r.Latency == nil {
				return ""
			}
			return real(f(r.Latency) * 1e6)
		})
	}
	cache := func(name string, f func(*record.Cache) string) column {
		return run(name, func(r *record.Run) string {
			if r.Cache == nil {
				return ""
			}
			return f(r.Cache)
		})
	}
	file := func(name string, f func(*record.File) string) column {
		return column{name, func(x *record.File, _ *record.Run) string { return f(x) }}
	}
	return []column{
		file("started", func(f *record.File) string { return f.Started.UTC().Format(time.RFC3339) }),
		file("version", func(f *record.File) string { return f.Version }),
		run("name", func(r *record.Run) string { return r.Name }),
		set("op", func(s record.Settings) string { return s.Op }),
		set("route_requested", func(s record.Settings) string { return s.Route }),
		run("route_taken", func(r *record.Run) string {
			var p []string
			for _, x := range r.Routes {
				p = append(p, x.Route+"="+whole(x.Bytes))
			}
			return strings.Join(p, ";")
		}),
		run("measured", measured),
		set("memory", func(s record.Settings) string { return s.Memory }),
		set("pattern", func(s record.Settings) string { return s.Pattern }),
		set("block_bytes", func(s record.Settings) string { return whole(s.BlockSize) }),
		set("workers", func(s record.Settings) string { return strconv.Itoa(s.Workers) }),
		set("queue_depth", func(s record.Settings) string { return strconv.Itoa(s.QueueDepth) }),
		set("io", func(s record.Settings) string { return s.IO }),
		set("files", func(s record.Settings) string { return strconv.Itoa(s.Files) }),
		set("file_bytes", func(s record.Settings) string { return whole(s.FileSize) }),
		set("cache_requested", func(s record.Settings) string { return s.Cache }),
		run("bytes", func(r *record.Run) string { return whole(r.Bytes) }),
		run("ops", func(r *record.Run) string { return whole(r.Ops) }),
		run("seconds", func(r *record.Run) string { return real(r.Seconds) }),
		run("rate_gb_per_s", func(r *record.Run) string { return real(r.GBps) }),
		run("rate_gib_per_s", func(r *record.Run) string { return real(r.GBps * 1e9 / units.GiB) }),
		run("iops", func(r *record.Run) string { return real(r.IOPS) }),
		run("first_done_seconds", func(r *record.Run) string {
			if r.First == nil {
				return ""
			}
			return real(r.First.Seconds)
		}),
		run("first_done_gb_per_s", func(r *record.Run) string {
			if r.First == nil {
				return ""
			}
			return real(r.First.GBps)
		}),
		run("last_done_seconds", func(r *record.Run) string { return real(r.Last.Seconds) }),
		lat("latency_mean_us", func(l *record.Latency) float64 { return l.Mean }),
		lat("latency_p50_us", func(l *record.Latency) float64 { return l.P50 }),
		lat("latency_p90_us", func(l *record.Latency) float64 { return l.P90 }),
		lat("latency_p99_us", func(l *record.Latency) float64 { return l.P99 }),
		lat("latency_p99_9_us", func(l *record.Latency) float64 { return l.P999 }),
		lat("latency_max_us", func(l *record.Latency) float64 { return l.Max }),
		run("limit", func(r *record.Run) string {
			if r.Share == nil {
				return ""
			}
			return r.Share.Of
		}),
		run("limit_gb_per_s", func(r *record.Run) string {
			if r.Share == nil {
				return ""
			}
			return real(r.Share.Ceiling)
		}),
		run("share_of_limit", func(r *record.Run) string {
			if r.Share == nil {
				return ""
			}
			return real(r.Share.Ratio)
		}),
		cache("dataset_bytes", func(c *record.Cache) string { return whole(c.Dataset) }),
		cache("resident_before_bytes", func(c *record.Cache) string { return whole(c.Before) }),
		cache("resident_after_bytes", func(c *record.Cache) string { return whole(c.After) }),
		run("cpu_user_seconds", func(r *record.Run) string { return real(r.CPU.User) }),
		run("cpu_system_seconds", func(r *record.Run) string { return real(r.CPU.System) }),
		run("cpu_seconds_per_gib", func(r *record.Run) string { return real(r.CPU.PerGiB) }),
		run("verified", func(r *record.Run) string {
			switch {
			case r.Verify == nil:
				return ""
			case r.Verify.Mismatches > 0:
				return "failed"
			}
			return "ok"
		}),
		run("interrupted", func(r *record.Run) string { return strconv.FormatBool(r.Interrupted) }),
		file("device", func(f *record.File) string { return f.Machine.Device.ID }),
		file("device_model", func(f *record.File) string { return f.Machine.Device.Model }),
		file("driver", func(f *record.File) string { return f.Machine.Device.Driver }),
		file("kernel", func(f *record.File) string { return f.Machine.Kernel }),
		file("memory_bytes", func(f *record.File) string { return whole(f.Machine.Memory) }),
		file("command", func(f *record.File) string { return shell(f.Command) }),
	}
}

// WriteCSV writes the benchmark results f as CSV (RFC 4180) with a header line and one row per run.
//
// The order of the CSV columns is fixed, and later versions append new columns at the end. The name of each CSV
// column ends in the column's unit. A CSV cell is empty if the value is missing. A value of -1 for resident bytes
// means that the kernel did not tell. The cell route_taken lists route=bytes pairs, separated by semicolons.
func WriteCSV(w io.Writer, f *record.File) error {
	cols := csvColumns()
	out := csv.NewWriter(w)
	row := make([]string, len(cols))
	for i, c := range cols {
		row[i] = c.name
	}
	_ = out.Write(row) // Error below tells
	for i := range f.Runs {
		for j, c := range cols {
			row[j] = c.cell(f, &f.Runs[i])
		}
		_ = out.Write(row)
	}
	out.Flush()
	return errs.Wrap("write", "CSV", out.Error())
}

// WriteGdsio writes a run as the line that gdsio prints, for scripts that parse gdsio's output. XferType is the route
// that the bytes took, not the requested one: GPUD only if all bytes went straight to the GPU. In the gdsio line, a
// mean latency that was not measured is 0. gdsio has no line for copies, so WriteGdsio returns an error of kind
// Unsupported for a copy.
func WriteGdsio(w io.Writer, r *record.Run) error {
	kind := map[string]string{"read": "READ", "write": "WRITE"}[r.Settings.Op]
	if kind == "" {
		return errs.New(errs.Unsupported, "write gdsio line", r.Name,
			fmt.Sprintf("op is %q; gdsio knows read and write", r.Settings.Op))
	}
	if r.Settings.Pattern == "random" {
		kind = "RAND" + kind
	}
	mean := 0.0
	if r.Latency != nil {
		mean = r.Latency.Mean
	}
	wanted := int64(r.Settings.Files) * r.Settings.FileSize
	if wanted <= 0 {
		wanted = r.Bytes
	}
	_, err := fmt.Fprintf(w, "IoType: %s XferType: %s Threads: %d DataSetSize: %d/%d(KiB) IOSize: %d(KiB) Throughput: "+
		"%f GiB/sec, Avg_Latency: %f usecs ops: %d total_time %f secs\n",
		kind, xfer(r), r.Settings.Workers, r.Bytes/units.KiB, wanted/units.KiB, r.Settings.BlockSize/units.KiB,
		r.GBps*1e9/units.GiB, mean*1e6, r.Ops, r.Seconds)
	return errs.Wrap("write", "gdsio line", err)
}

func xfer(r *record.Run) string {
	if r.Settings.Memory == "host" {
		return "CPUONLY"
	}
	straight := len(r.Routes) > 0 && r.Bytes > 0
	for _, x := range r.Routes {
		straight = straight && (x.Bytes == 0 || x.Route == "cufile_p2p" || x.Route == "cufile_nvfs")
	}
	if straight {
		return "GPUD"
	}
	return "CPU_GPU"
}
