// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// write writes README.md, results.json and plot.svg to dir.
func (r *result) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"README.md": []byte(r.markdown()), "results.json": append(data, '\n'),
		"plot.svg": []byte(plot(r))} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// markdown renders the run as a page.
func (r *result) markdown() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# S3 servers compared, %s\n", r.Date)
	p("`%s` on %s (%d cores), Linux %s, %s; client and servers on the same cores. Presigned URLs with unsigned payloads,",
		r.Command, r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.FileSystem)
	p("kept-alive connections, the same bytes for all; targets take turns in each of %d rounds. Figures are medians of",
		r.Rounds)
	p("the rounds [least..most]; CPU is the server's alone, user and system. Ratios are made round by round.\n")
	p("`bare` is net/http, the check of the signature and the file system: O_TMPFILE and linkat, sendfile; " +
		"`+fdatasync` syncs")
	p("the file, `+md5+sync` makes MD5 ETags and syncs file and directory. versitygw syncs nothing, MinIO no directory.\n")
	p("![Rates and CPU by server](plot.svg)\n")
	if len(r.Claims) > 0 {
		p("## What is wanted, and what was found\n")
		p("| what | found | wanted | |\n|---|---|---|---|")
		for _, c := range r.Claims {
			mark := "yes"
			if !c.met() {
				mark = "**no**"
			}
			p("| %s | %s%s | %s | %s |", c.What, c.Got, c.Unit, c.wantedText(), mark)
		}
		p("")
	}
	if len(r.Comparisons) > 0 {
		p("## Against the build before\n")
		p("%s\n", strings.Join(comparisonTable(r.Comparisons), "\n"))
	}
	for _, row := range r.Rows {
		rate, cpu := "requests/s", "server CPU µs/request"
		if row.ByBytes {
			rate, cpu = "MB/s", "server CPU s/GiB"
		}
		p("## %s\n", row.Name)
		p("| | %s | %s | p50 ms | p99 ms | client CPU µs/request |\n|---|---|---|---|---|---|", rate, cpu)
		for _, t := range r.Targets {
			if len(row.Samples[t]) == 0 {
				continue
			}
			client := row.each(t, func(s sample) float64 { return per(s.ClientCPU*1e6, float64(s.Ops)) })
			p("| %s | %s | %s | %s | %s | %s |", t, spreadOf(row.rate(t)), spreadOf(row.cpu(t)),
				number(spreadOf(row.each(t, func(s sample) float64 { return s.P50 })).Median),
				number(spreadOf(row.each(t, func(s sample) float64 { return s.P99 })).Median), number(spreadOf(client).Median))
		}
		if len(row.Cipher) > 0 {
			var gcm []float64
			for _, s := range row.Cipher {
				gcm = append(gcm, s.cpuPerGiB())
			}
			p("| AES-GCM alone | | %s | | | |", spreadOf(gcm))
		}
		if len(row.Decryption) > 0 {
			var gcm []float64
			for _, s := range row.Decryption {
				gcm = append(gcm, s.cpuPerGiB())
			}
			p("| AES-256-GCM alone, blocks of 64 KiB | | %s | | | |", spreadOf(gcm))
		}
		p("")
	}
	if len(r.Completions) > 0 {
		p("## CompleteMultipartUpload, %d equal parts\n", completedParts)
		p("| | 64 MiB, ms | 1 GiB, ms | ratio |\n|---|---|---|---|")
		for _, c := range r.Completions {
			p("| %s | %s | %s | %s |", c.Target, c.Millis[0], c.Millis[len(c.Millis)-1], c.Ratio)
		}
		p("")
	}
	if k := r.Keys; k != nil {
		p("## %d keys\n", k.Keys)
		p("Written at %s keys/s over 64 streams. All of them listed in %d pages in %s s. Restart after kill -9 to the "+
			"first answer: %s s.\n", number(k.LoadRate), k.WalkPages, number(k.Walk), spreadOf(k.Restart))
		p("| page | entries | %d keys: p50 ms | p99 ms | CPU µs | %d keys: p50 ms | p99 ms | CPU µs "+
			"|\n|---|---|---|---|---|---|---|---|", smallCount, k.Keys)
		for _, l := range k.Listings {
			p("| %s | %d | %s | %s | %s | %s | %s | %s |", l.Name, l.Large.Entries, number(l.Small.P50), number(l.Small.P99),
				number(l.Small.CPU), number(l.Large.P50), number(l.Large.P99), number(l.Large.CPU))
		}
		p("")
	}
	p("## Memory and versions\n")
	p("| | peak resident MiB | version |\n|---|---|---|")
	for _, t := range r.Targets {
		p("| %s | %d | %s |", t, r.Memory[t]>>20, r.Versions[t])
	}
	return b.String()
}
